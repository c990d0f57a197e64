"""Read what the reports show: the rows of the plan with their steps, from a View or, without SQL, from status.json."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from canard_pipe.engine.mapping import root_of
from canard_pipe.engine.values import Codec
from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import View
from canard_pipe.pipeline.naming import named
from canard_pipe.report.items import ItemRow, read_items
from canard_pipe.report.selection import AT_WORK, EVERY, EVERYTHING, Selection
from canard_pipe.report.wording import instant_text

UNFINISHED = ("failed", "interrupted")  # how the last command of a step may have ended that is not saved


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A sample, once or cohort function. ``steps`` are the saved ones in order; ``now`` is the step it is in.

    ``now_state`` tells how ``now`` stands: running, queued, failed or interrupted. ``seq`` is None where no task was
    made yet.
    """

    kind: str
    function: str
    sample: str
    state: str
    attempt: int | None = None
    failures: int | None = None
    max_failures: int | None = None
    error: str | None = None
    skipped_because: str | None = None
    blocked_by: str | None = None
    folder: str = ""
    generation: int = 1
    task_id: str | None = None
    seq: int | None = None
    line: int | None = None
    available_us: int | None = None
    updated_us: int | None = None
    changed_because: str | None = None
    steps: tuple[str, ...] = ()
    now: str | None = None
    now_state: str | None = None
    items: tuple[ItemRow, ...] = ()

    @property
    def label(self) -> str:
        """Return what a person calls it."""
        return self.sample if self.kind in ("sample", self.function) else f"{self.function} ({self.kind})"

    @property
    def at_work(self) -> bool:
        """Whether a command of it runs or is queued."""
        return self.state in AT_WORK

    @property
    def lost(self) -> bool:
        """Whether the plan names a task that is not in the database (BUGS 3)."""
        return self.task_id is not None and self.seq is None

    def of_item(self, item: ItemRow) -> PlanRow:
        """Return an item of this row as a row of its own, named by its path."""
        return replace(
            self, kind="sample", sample=item.path, state=item.state, attempt=item.attempt, failures=item.failures,
            max_failures=item.max_failures, error=item.error, task_id=item.task_id, seq=item.seq, steps=(), now=None,
            now_state=None, available_us=item.available_us, items=(),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for machines. ``sample`` is the ID as typed; null for once and cohort functions."""
        return {
            "sample": self.sample if self.kind == "sample" else None,
            "kind": self.kind,
            "function": self.function,
            "state": self.state,
            "attempt": self.attempt,
            "failures": self.failures,
            "max_failures": self.max_failures,
            "error": self.error,
            "skipped_because": self.skipped_because,
            "blocked_by": self.blocked_by,
            "changed_because": self.changed_because,
            "steps": list(self.steps),
            "now": self.now,
            "items": [item.as_json() for item in self.items],
            "line": self.line,
            "task_id": self.task_id,
            "updated_at": instant_text(self.updated_us),
        }


@dataclass(frozen=True, slots=True)
class RunRow:
    """One ``run``, as recorded. ``params`` are as typed: ``NAME=VALUE``."""

    run_id: str
    pipeline: str
    pipeline_file: Path
    sheet_file: Path
    params: tuple[str, ...]
    settings: dict[str, Any]
    host: str
    pid: int
    started_us: int
    ended_us: int | None
    exit_status: int | None

    def folder(self, name: str) -> Path:
        """Return the folder of tries (``work``) or of results."""
        return Path(self.settings[name])


@dataclass(frozen=True, slots=True)
class Status:
    """What ``status`` shows. ``counts`` are those of all rows, by kind and state; ``rows`` may be fewer.

    ``matching`` is how many rows the selection has, of which ``rows`` are the page; ``steps``, by how many samples each
    step is saved. ``selection.needy`` is set only if it has left out rows.
    """

    pipeline: str
    run: RunRow | None
    counts: dict[str, dict[str, int]]
    rows: tuple[PlanRow, ...]
    others: tuple[str, ...] = field(default=())
    matching: int = 0
    selection: Selection = EVERYTHING
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return how many rows the plan has."""
        return sum(sum(states.values()) for states in self.counts.values())


def latest_run(view: View) -> RunRow | None:
    """Return the run that was started last, or None."""
    runs = read_runs(view, limit=1)
    return runs[0] if runs else None


def read_runs(view: View, *, limit: int = EVERY) -> list[RunRow]:
    """Return the runs, the latest first."""
    codec = Codec(view.root)
    runs = []
    for row in view.query("report_runs", most=limit):
        settings = json.loads(row[5])
        settings |= {name: codec.decode(json.dumps(settings[name])) for name in ("work", "results")}
        files = (codec.decode(row[2]), codec.decode(row[3]))
        runs.append(RunRow(row[0], row[1], *files, tuple(json.loads(row[4])), settings, *row[6:]))
    return runs


def read_rows(
    view: View, pipeline: str, selection: Selection = EVERYTHING, *, total: int = 0
) -> tuple[list[PlanRow], int]:
    """Return rows of the plan with their steps, and how many there would be without a cut; ``total`` is the whole plan.

    Names of ``selection.samples`` are taken as they are.
    """
    in_sql = selection.step is None
    found = view.query(
        "report_rows",
        pipeline=pipeline,
        most=selection.limit if in_sql else EVERY,
        skip=selection.offset if in_sql else 0,
        sort=selection.order(total),
        reverse=selection.reverse,
        needy=selection.needy,
        states=json.dumps(sorted(selection.states)) if selection.states else None,
        keys=json.dumps(list(selection.samples)) if selection.samples else None,
    )
    if not found and in_sql and selection.offset:  # past the end: then nothing has told how many there are
        return [], read_rows(view, pipeline, replace(selection, offset=0, limit=1), total=total)[1]
    matching = found[0][-1] if found else 0
    rows = _with_steps(view, [row[:-1] for row in found])
    if in_sql:
        return rows, matching
    rows = [row for row in rows if row.now == selection.step]
    return list(selection.page(rows)), len(rows)


def _with_steps(view: View, found: Sequence[tuple[Any, ...]]) -> list[PlanRow]:
    seqs = json.dumps([row[13] for row in found if row[13] is not None])
    steps: dict[int, list[str]] = {}
    for seq, name, *_ in view.query("report_steps", seqs=seqs):
        steps.setdefault(seq, []).append(name)
    last = {row[0]: row for row in view.query("report_last_jobs", seqs=seqs)}
    items = read_items(view, [row[13] for row in found if row[13] is not None])
    running = running_steps(view.snapshot, "task_id") if view.source == "live" else {}
    rows = []
    for row in found:
        saved, job = tuple(steps.get(row[13], ())), last.get(row[13])
        now, now_state = running.get(row[12]) if row[3] in AT_WORK else None, None
        if row[3] in AT_WORK and now is None and job is not None and job[7]:  # its task sleeps meanwhile
            now = job[1]
        if now is not None:
            now_state = row[3]
        elif job is not None and job[2] in UNFINISHED and job[1] not in saved and row[3] in ("failed", "waiting"):
            now, now_state = job[1], job[2]
        rows.append(PlanRow(*(*row, saved, now, now_state, items.get(row[13], ()))))
    return rows


def running_steps(snapshot: dict[str, Any] | None, by: str) -> dict[str, str]:
    """Return the step that each running row is in, as far as the snapshot knows, ``by`` task_id or sample."""
    running = (snapshot or {}).get("running") or []
    found = {str(item[by]): str(item["step"]) for item in running if item.get(by) and item.get("step")}
    for item in running:  # a sample is in the step that maps, while its items run
        if item.get("item") and item.get(by):
            found[root_of(str(item[by]))] = str(item["item"]).partition("/")[0]
    return found


def read_status(view: View, selection: Selection = EVERYTHING, *, pipeline: str | None = None) -> Status:
    """Return the status of the pipeline that was run last, or of ``pipeline``.

    Raises InputError if there is none, or if the selection names samples or a step that are not there.
    """
    if view.source == "snapshot":
        return _from_snapshot(view, selection)
    runs = read_runs(view)
    pipelines = list(dict.fromkeys(run.pipeline for run in runs))
    if pipeline is not None and pipeline not in pipelines:
        raise InputError(f"no pipeline named {pipeline!r} was run here; there is {', '.join(pipelines) or 'none'}")
    if not pipelines:
        return Status("", None, {}, ())
    chosen = pipeline or pipelines[0]
    counts: dict[str, dict[str, int]] = {}
    for kind, state, count in view.query("report_counts", pipeline=chosen):
        counts.setdefault(kind, {})[state] = count
    total = sum(sum(states.values()) for states in counts.values())
    selection = replace(selection, needy=selection.needy and total > selection.limit)
    if selection.samples:
        selection = replace(selection, samples=tuple(named(selection.samples, _names(view, chosen))))
    needs_steps = selection.step is not None or total > selection.limit
    counted: list[tuple[str, int]] = view.query("report_step_counts", pipeline=chosen) if needs_steps else []
    steps = dict(counted)
    rows, matching = read_rows(view, chosen, selection, total=total)
    if selection.step is not None and not rows and selection.step not in steps:
        raise InputError(f"no sample is in a step named {selection.step!r}{_close(selection.step, list(steps))}")
    run = next((run for run in runs if run.pipeline == chosen), None)
    others = tuple(name for name in pipelines if name != chosen)
    return Status(chosen, run, counts, tuple(rows), others, matching, selection, steps)


def find_row(view: View, name: str) -> tuple[RunRow | None, PlanRow]:
    """Return the row of the plan that is called ``name``: a sample's ID as typed, else a once or cohort function.

    Raises InputError with the names that are close if there is none.
    """
    run = latest_run(view)
    if run is None:
        raise InputError("nothing was run here yet: start with `canard-pipe run PIPELINE SHEET`")
    found, _ = read_rows(view, run.pipeline, Selection(samples=(name,)))
    if not found:
        raise InputError(f"{name!r} is not in the plan of {run.pipeline}{_close(name, _names(view, run.pipeline))}")
    found.sort(key=lambda row: row.kind != "sample")
    return run, found[0]


def _names(view: View, pipeline: str) -> list[str]:
    return [row[0] for row in view.query("report_names", pipeline=pipeline)]


def _close(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; it has {', '.join(names[:10])}{' …' if len(names) > 10 else ''}" if names else ""


def _from_snapshot(view: View, selection: Selection) -> Status:
    snapshot = view.snapshot or {}
    running = running_steps(snapshot, "sample")
    rows: list[PlanRow] = []
    counts: dict[str, dict[str, int]] = {}
    for item in snapshot.get("samples") or []:
        kind, state = str(item.get("kind", "sample")), str(item.get("state", "?"))
        counts.setdefault(kind, {}).setdefault(state, 0)
        counts[kind][state] += 1
        name = str(item.get("sample"))
        now = running.get(name) or item.get("step")
        rows.append(PlanRow(
            kind, str(item.get("function") or name), name, state, error=item.get("error"),
            skipped_because=item.get("error"), blocked_by=item.get("blocked_by"), now=now,
            now_state=(state if state in AT_WORK else None) if now else None,
        ))  # fmt: skip
    if selection.samples:
        selection = replace(selection, samples=tuple(named(selection.samples, [row.sample for row in rows])))
    selection = replace(selection, needy=selection.needy and len(rows) > selection.limit)
    shown, matching = selection.apply(rows)
    return Status(str(snapshot.get("pipeline", "")), None, counts, tuple(shown), (), matching, selection)
