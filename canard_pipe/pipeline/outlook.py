"""What a run would do, before it does it: the plan, and its words for people."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from canard_pipe.engine.values import Codec
from canard_pipe.pipeline import planning
from canard_pipe.pipeline.access import View
from canard_pipe.pipeline.planning import Decision, Known, Plan, Reading
from canard_pipe.pipeline.prepare import Prepared, wanted_tasks
from canard_pipe.pipeline.step_code import StepCode
from canard_pipe.pipeline.stored_run import RunOptions

MOST_NAMES = 8
_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Outlook:
    """A plan, the rows of the last one by kind and key, and sentences about what was noticed on the way."""

    plan: Plan
    known: dict[tuple[str, str], Known]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class FromOutside:
    """What planning reads, through a view: the state is not opened as its owner."""

    view: View
    codec: Codec

    def query(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        """Execute a named read statement."""
        return self.view.query(name, **params)


def look_ahead(reading: Reading, prepared: Prepared, options: RunOptions, run_id: str) -> Outlook:
    """Hold pipeline, parameters, sheet and files against the last plan. Nothing is written."""
    pipeline = prepared.loaded.pipeline
    known = planning.known_rows(reading, pipeline.name)
    notes = []
    for place, row in known.items():
        if row.kind == "once" and row.state == "completed" and not _is_whole(reading, row):
            notes.append(f"files that {row.name} has made are gone: it is made anew")
            known[place] = dataclasses.replace(row, made_from="")
    before = {key: row for (kind, key), row in known.items() if kind == "sample"}
    plan = planning.make_plan(
        pipeline,
        wanted_tasks(reading, prepared, before, compare_content=options.sheet.compare_content),
        known,
        run_id=run_id,
        rerun_changed=options.rerun_changed,
        accept_changed=options.accept_changed,
    )
    return Outlook(plan, known, notes + list(_changed_code(reading, prepared)))


def details(
    reading: Reading, prepared: Prepared, outlook: Outlook, only: Collection[str] | None = None
) -> Iterator[str]:
    """Say for every sample and function that would run what would run of it and why, a line each.

    ``only``: the samples that the run is limited to, None for all.
    """
    pipeline = prepared.loaded.pipeline
    steps = {(kind, key): names for kind, key, names in reading.query("steps_of_samples", pipeline=pipeline.name)}
    will_run = False
    for decision in outlook.plan.decisions:
        if only is not None and decision.kind == "sample" and decision.key not in only:
            continue
        before = outlook.known.get((decision.kind, decision.key))
        said = _say(decision, before, steps.get((decision.kind, decision.key), []))
        will_run = will_run or (said is not None and decision.what in ("new", "again", "same"))
        if said is not None:
            yield f"{_label(decision)}: {said}"
    for function in pipeline.of_kind("cohort"):
        before = outlook.known.get(("cohort", function.name))
        if will_run or before is None or before.state != "completed":
            yield f"{function.name} (cohort): when {', '.join(function.after)} has ended for all samples"


def _say(decision: Decision, before: Known | None, steps: list[str]) -> str | None:
    """Say what becomes of one row; None where nothing does."""
    because = f" ({decision.because} changed)" if decision.because else ""
    if decision.what == "new":
        return "new, every step"
    if decision.what == "again":
        return f"from the top{because}"
    if decision.what == "changed":
        return f"nothing: it is done{because}; --rerun-changed makes it anew, --accept-changed keeps it"
    if decision.what == "retired":
        return "nothing: it is no longer in the sheet" if before is not None and not before.retired else None
    if before is None or before.state in _ENDED:
        failed = before is not None and before.state in ("failed", "cancelled")
        return f"nothing: it has {before.state}; `retry` runs it again" if failed and before else None
    return f"goes on after {', '.join(steps)}" if steps else "every step"


def _label(decision: Decision) -> str:
    return decision.key if decision.kind == "sample" else f"{decision.key} ({decision.kind})"


def _changed_code(reading: Reading, prepared: Prepared) -> Iterator[str]:
    """Name the saved steps that were made by other code than there is now; they stay as they are."""
    last = reading.query("latest_run_of", pipeline=prepared.loaded.pipeline.name)
    if not last:
        return
    code = StepCode(prepared.loaded.file.parent)
    found = False
    for step, saved, kind, keys in reading.query("saved_code", pipeline=prepared.loaded.pipeline.name):
        if code.has_changed(saved):
            found = True
            whom = f"of {_some(keys)}" if kind == "sample" else f"of {keys[0]} ({kind})"
            yield (
                f"the code of step {step} has changed since it was saved {whom}: kept as it is; "
                f"retry {shlex.quote(keys[0])} --from {shlex.quote(step)} makes it anew"
            )
    if not found and last[0][0] != prepared.loaded.digest:
        yield "the pipeline file has changed since the last run, but not the code of the steps that are saved"


def _is_whole(reading: Reading, row: Known) -> bool:
    """Tell whether the files that a once function returned are still there: samples to come would miss them."""
    found = reading.query("task_result", id=row.task_id)
    return not found or all(file.unchanged() for file in reading.codec.files(found[0][1] or "null"))


def _some(keys: list[str]) -> str:
    shown = ", ".join(keys[:MOST_NAMES])
    return shown if len(keys) <= MOST_NAMES else f"{shown}, … and {len(keys) - MOST_NAMES} more"

