"""Cohort tasks: decided when what they come after has ended, made anew when their membership changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.values import Skipped
from canard_pipe.errors import ResultUnavailable
from canard_pipe.pipeline import planning
from canard_pipe.pipeline.definition import Function, Pipeline

UNFINISHED = ("waiting", "running", "queued", "blocked")


@dataclass(frozen=True, slots=True)
class SampleState:
    """One row of the view ``samples``."""

    kind: str
    function: str
    key: str
    state: str
    task_id: str | None
    task_seq: int | None
    attempt: int | None
    failures: int | None
    max_failures: int | None
    error: str | None
    skipped_because: str | None
    blocked_by: str | None
    folder: str
    generation: int
    position: int
    line: int | None


def sample_states(database: planning.Reading, pipeline: str) -> list[SampleState]:
    """Return every row of the plan with its state, in the order of the sheet."""
    return [SampleState(*row) for row in database.query("sample_states", pipeline=pipeline)]


class CohortResults(Mapping[str, Any]):
    """What the samples returned, by key in the order of the sheet; only of those that are done.

    ``skipped`` maps the keys of samples that left themselves out to their reasons; ``missing`` names those that are
    failed, cancelled or changed (only with ``allow_missing``).
    """

    def __init__(self, done: dict[str, Any], skipped: dict[str, str], missing: Sequence[str]) -> None:
        self._done = done
        self.skipped = skipped
        self.missing = tuple(missing)

    def __getitem__(self, key: str) -> Any:
        return self._done[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._done)

    def __len__(self) -> int:
        return len(self._done)


def refresh(database: Database, pipeline: Pipeline, params_value: Any, run_id: str, *, spawn: bool) -> list[str]:
    """Bring the cohort rows of the plan up to date and return the keys of the cohort tasks made.

    Level-triggered: it looks at what is committed, so it may be called at any time and any number of times. A row
    whose membership is not settled, or that is held back, has no task; with ``spawn`` a settled one gets its task.
    """
    made: list[str] = []
    for function in pipeline.of_kind("cohort"):
        states = sample_states(database, pipeline.name)
        before = planning.known_rows(database, pipeline.name).get(("cohort", function.name))
        members = [row for row in states if row.function in function.after and row.state != "retired"]
        outcomes = [[row.key, row.task_id, _outcome(row), _making(row)] for row in members]
        made_from = _digest(database, function.name, params_value, outcomes)
        if before is not None and before.task_id is not None and before.made_from == made_from and not before.retired:
            continue
        row: dict[str, Any] = {
            "pipeline": pipeline.name,
            "kind": "cohort",
            "name": function.name,
            "key": function.name,
            "folder": planning.shared_folder(pipeline, "cohort", function.name),
            "position": len(states) + 1,
            "line": None,
            "generation": before.generation if before else 0,
            "task_id": None,
            "made_from": before.made_from if before else "",  # of the last generation, which may do once more
            "because": None,
            "after": list(pipeline.prerequisites(function)),
            "allow_missing": function.allow_missing,
            "changed": False,
            "retired": False,
            "run_id": run_id,
        }
        spawned = []
        if spawn and _settled(function, states, members):
            last = planning.task_id(pipeline, function, function.name, row["generation"])
            if row["made_from"] == made_from and [task.state for task in database.tasks(id=last)] == ["completed"]:
                planning.apply_plan(database, planning.Plan(spawn=[], planned=[row | {"task_id": last}], cancel=[]))
                continue
            generation = row["generation"] + 1
            id = planning.task_id(pipeline, function, function.name, generation)
            given = database.codec.encode({"members": [[r.key, r.task_id, _outcome(r)] for r in members]})
            row |= {"generation": generation, "task_id": id, "made_from": made_from}
            spawned = [planning.spawn_row(pipeline, function, id, given, 0)]
            made.append(function.name)
        elif before is not None and before.task_id is None and not before.retired:
            continue
        superseded = [before.task_id] if before is not None and before.task_id is not None else []
        planning.apply_plan(database, planning.Plan(spawn=spawned, planned=[row], cancel=superseded))
    return made


def results(database: Tasks, given: Mapping[str, Any]) -> CohortResults:
    """Read the results of a cohort task's members. ``given`` is the task's input."""
    members = given["members"]
    ids = [id for _, id, _ in members]
    found = {row[0]: (row[1], row[2]) for row in database.query("member_results", ids=json.dumps(ids))}
    done: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    missing: list[str] = []
    for key, id, outcome in members:
        if outcome == "missing":
            missing.append(key)
            continue
        state, text = found.get(id, (None, None))
        if state != "completed" or text is None:
            raise ResultUnavailable(id, state)
        value = database.codec.decode(text)
        if isinstance(value, Skipped):
            skipped[key] = value.reason
        else:
            done[key] = value
    return CohortResults(done, skipped, missing)


def _digest(database: Database, *parts: Any) -> str:
    return hashlib.sha256(database.codec.encode(list(parts)).encode()).hexdigest()


def _making(row: SampleState) -> int | None:
    """Tell one making of a sample from the next, as after a retry from a step; one that failed made nothing."""
    return row.attempt if row.state in ("done", "skipped") else None


def _outcome(row: SampleState) -> str:
    if row.state in ("done", "skipped"):
        return row.state
    return "unfinished" if row.state in UNFINISHED else "missing"


def _settled(function: Function, states: list[SampleState], members: list[SampleState]) -> bool:
    once = [row for row in states if row.kind == "once" and row.state != "retired"]
    if any(row.state != "done" for row in once) or any(row.state in UNFINISHED for row in members):
        return False
    return function.allow_missing or all(row.state in ("done", "skipped") for row in members)
