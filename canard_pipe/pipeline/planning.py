"""Hold the sheet against what was planned before, and say and do what follows: new, same, changed, retired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from canard_pipe.engine import mapping
from canard_pipe.engine.database import Database
from canard_pipe.engine.values import Codec
from canard_pipe.engine.writer import Row
from canard_pipe.pipeline import ready_again
from canard_pipe.pipeline.definition import Function, Pipeline
from canard_pipe.pipeline.fingerprint import Fingerprint
from canard_pipe.pipeline.naming import some
from canard_pipe.pipeline.rows import SampleRow


class Reading(Protocol):
    """What planning needs of a state: its own database, or a look at it from outside."""

    @property
    def codec(self) -> Codec: ...

    def query(self, name: str, **params: Any) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """One task that the pipeline and the sheet ask for. ``input`` is encoded; ``files`` names its input files."""

    function: Function
    key: str
    folder: str
    position: int
    line: int | None
    input: str
    made_from: Fingerprint
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """One row of the last plan, with its task's state."""

    kind: str
    name: str
    key: str
    folder: str
    position: int
    line: int | None
    generation: int
    task_id: str | None
    made_from: str
    because: str | None
    changed: bool
    retired: bool
    seq: int | None
    version: int | None
    state: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one task: ``what`` is new, same, again, changed or retired; ``because`` says what differs."""

    kind: str
    key: str
    what: str
    task_id: str | None = None
    because: str | None = None


_WORDS = {
    "new": "new",
    "same": "as before",
    "again": "run again with their present row and files",
    "changed": "changed since they were done; kept until --rerun-changed or --accept-changed",
    "retired": "no longer in the sheet",
}


@dataclass(slots=True)
class Plan:
    """What holding the sheet against the last plan has given: a decision per task, and what is to be written."""

    decisions: list[Decision] = field(default_factory=list)
    spawn: list[Row] = field(default_factory=list)
    revive: list[Row] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    planned: list[Row] = field(default_factory=list)

    def keys(self, what: str) -> list[str]:
        """Return the samples of which ``what`` was decided, in the order of the sheet."""
        return [each.key for each in self.decisions if each.kind == "sample" and each.what == what]

    def counts(self) -> dict[str, int]:
        """Return how many samples there are by what was decided."""
        return {what: len(keys) for what in _WORDS if (keys := self.keys(what))}

    def lines(self) -> list[str]:
        """Say the plan in words, one line per kind of thing."""
        by_what = {what: self.keys(what) for what in _WORDS}
        return [f"{len(keys)} {_WORDS[what]}: {some(keys)}" for what, keys in by_what.items() if keys]


def known_rows(database: Reading, pipeline: str) -> dict[tuple[str, str], Known]:
    """Return the rows of the last plan by kind and key."""
    rows = [Known(*row) for row in database.query("planned_rows", pipeline=pipeline)]
    return {(row.kind, row.key): row for row in rows}


def row_value(row: SampleRow) -> dict[str, Any]:
    """Return a row as a storable dict, files as paths; ``rows.model_validate`` makes the row of it again."""
    value = row.model_dump(mode="json")
    for name in type(row).file_fields:
        path = getattr(row, name)
        value[name] = None if path is None else Path(path)
    return value


def make_plan(
    pipeline: Pipeline,
    wanted: Sequence[Wanted],
    known: dict[tuple[str, str], Known],
    *,
    run_id: str,
    rerun_changed: bool = False,
    accept_changed: bool = False,
) -> Plan:
    """Decide for each wanted and each known row; nothing is written. Cohort rows are decided when their time comes."""
    plan = Plan()
    for want in wanted:
        before = known.get((want.function.kind, want.key))
        _decide(plan, pipeline, want, before, run_id, rerun_changed, accept_changed)
    live = {(want.function.kind, want.key) for want in wanted}
    for before in known.values():
        if (before.kind, before.key) in live or (before.kind == "cohort" and before.name in pipeline.functions):
            continue
        if not before.retired:
            plan.decisions.append(Decision(before.kind, before.key, "retired", before.task_id))
        if before.task_id is not None and before.state in ("ready", "suspended"):
            plan.cancel.append(before.task_id)
        plan.planned.append(_known_row(pipeline, before, run_id) | {"retired": True})
    return plan


def _decide(
    plan: Plan, pipeline: Pipeline, want: Wanted, before: Known | None, run_id: str, rerun: bool, accept: bool
) -> None:
    row: Row = {
        "pipeline": pipeline.name,
        "kind": want.function.kind,
        "name": want.function.name,
        "key": want.key,
        "folder": want.folder,
        "position": want.position,
        "line": want.line,
        "made_from": want.made_from.text,
        "because": None,
        "after": list(pipeline.prerequisites(want.function)),
        "allow_missing": want.function.allow_missing,
        "changed": False,
        "retired": False,
        "run_id": run_id,
    }
    because = None
    if before is None or before.task_id is None or before.state is None:
        generation = 1 if before is None else before.generation + 1
        _spawn(plan, pipeline, want, row, generation)
        what = "new"
    elif before.made_from == want.made_from.text and (
        before.state == "completed" or before.name == want.function.name
    ):
        if before.retired and before.state == "cancelled":
            plan.revive.append({"seq": before.seq, "version": before.version, "input": want.input})
        row |= {"generation": before.generation, "task_id": before.task_id}
        what = "same"
    else:
        because = _what_changed(want, before)
        if before.state != "completed":
            # Not done yet: it simply takes its present row, files and function. A generation of its own, so that
            # nothing saved, and no command that has ended, of the old ones counts.
            if before.state in ("ready", "suspended"):
                plan.cancel.append(before.task_id)
            _spawn(plan, pipeline, want, row, before.generation + 1)
            what = "again"
        elif rerun or want.function.kind != "sample":
            _spawn(plan, pipeline, want, row, before.generation + 1)
            what = "again"
        else:
            row |= {"generation": before.generation, "task_id": before.task_id}
            what = "same"
            if not accept:
                row |= {"made_from": before.made_from, "because": because, "changed": True}
                what = "changed"
    plan.planned.append(row)
    plan.decisions.append(Decision(want.function.kind, want.key, what, row["task_id"], because))


def _what_changed(want: Wanted, before: Known) -> str | None:
    said = want.made_from.changes_since(before.made_from, want.files)
    if before.name != want.function.name:
        said.append(f"function {want.function.name}, before {before.name}")
    return "; ".join(said) or None


def _spawn(plan: Plan, pipeline: Pipeline, want: Wanted, row: Row, generation: int) -> None:
    id = task_id(pipeline, want.function, want.key, generation)
    row |= {"generation": generation, "task_id": id}
    plan.spawn.append(spawn_row(pipeline, want.function, id, want.input, want.position))


def task_id(pipeline: Pipeline, function: Function, key: str, generation: int) -> str:
    """Return the task id: pipeline / kind / key / generation."""
    return f"{pipeline.name}/{function.kind}/{key}/{generation}"


def shared_folder(pipeline: Pipeline, kind: str, key: str) -> str:
    """Return the folder of a once or cohort task below the results and below the pipeline's part of ``work/``."""
    return "cohort" if kind == "cohort" and len(pipeline.of_kind("cohort")) == 1 else f"{kind}/{key}"


def parts_of_id(id: str) -> tuple[str, str, int]:
    """Return kind, key and generation of a task id made by :func:`task_id`, of an item's those of its root.

    Another id is taken as a key.
    """
    id = mapping.root_of(id)
    _, _, rest = id.partition("/")
    kind, _, rest = rest.partition("/")
    key, _, generation = rest.rpartition("/")
    return (kind, key, int(generation)) if generation.isdigit() else ("", id, 1)


def label_of_id(id: str) -> tuple[str, str]:
    """Return the kind of a task and what people call it: an item is the key of its sample with its path."""
    kind, key, _ = parts_of_id(id)
    path = mapping.path_of(id)
    return ("item", f"{key}/{path}") if path else (kind, key)


def spawn_row(pipeline: Pipeline, function: Function, id: str, input: str, position: int) -> Row:
    """Return the row of spawn_tasks.sql; the pipeline's name is the queue."""
    return {
        "position": position,
        "id": id,
        "name": function.name,
        "queue": pipeline.name,
        "priority": 0,
        "max_failures": function.max_failures,
        "input": input,
    }


def apply_plan(database: Database, plan: Plan) -> None:
    """Cancel what the plan gives up, then write the plan in one transaction. A crash between is made good next time."""

    def act() -> None:
        now_us = database.clock.now_us()

        def run(statement: str, rows: list[Row]) -> None:
            if rows:
                database.store.run(statement, rows=rows, now_us=now_us)

        run("spawn_tasks", plan.spawn)
        if plan.revive:
            ready_again.make_ready(database, plan.revive)
        run("delete_planned", plan.planned)
        run("insert_planned", plan.planned)

    if plan.cancel:
        database.cancel_many(plan.cancel)
    database.writer.transact(act)


def unchanged(plan: Plan, known: dict[tuple[str, str], Known]) -> bool:
    """Tell whether the plan is the last one again, so that there is nothing to write."""
    if plan.spawn or plan.revive or plan.cancel:
        return False
    for row in plan.planned:
        before = known.get((row["kind"], row["key"]))
        if before is None or (
            before.made_from,
            before.because,
            before.changed,
            before.retired,
            before.position,
            before.folder,
            before.line,
            before.name,
        ) != tuple(
            row[name] for name in ("made_from", "because", "changed", "retired", "position", "folder", "line", "name")
        ):
            return False
    return True


def _known_row(pipeline: Pipeline, before: Known, run_id: str) -> Row:
    return {
        "pipeline": pipeline.name,
        "kind": before.kind,
        "name": before.name,
        "key": before.key,
        "folder": before.folder,
        "position": before.position,
        "line": before.line,
        "generation": before.generation,
        "task_id": before.task_id,
        "made_from": before.made_from,
        "because": before.because,
        "after": [],
        "allow_missing": False,
        "changed": before.changed,
        "retired": before.retired,
        "run_id": run_id,
    }
