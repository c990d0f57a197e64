"""Hold the sheet against what was planned before, and say and do what follows: new, same, changed, retired."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.writer import Row
from canard_pipe.pipeline.definition import Function, Pipeline
from canard_pipe.pipeline.rows import SampleRow


@dataclass(frozen=True, slots=True)
class Wanted:
    """One task that the pipeline and the sheet ask for. ``input`` is encoded; ``digest`` covers what it depends on."""

    function: Function
    key: str
    folder: str
    position: int
    line: int | None
    input: str
    digest: str


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
    digest: str
    changed: bool
    retired: bool
    seq: int | None
    version: int | None
    state: str | None


@dataclass(slots=True)
class Plan:
    """What holding the sheet against the last plan has given; keys by what becomes of them."""

    new: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    spawn: list[Row] = field(default_factory=list)
    revive: list[Row] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    planned: list[Row] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Say the plan in words, one line per kind of thing."""
        said = [
            (self.new, "new"),
            (self.same, "as before"),
            (self.again, "run again with their present row and files"),
            (self.changed, "changed since they were done; kept until --rerun-changed or --accept-changed"),
            (self.retired, "no longer in the sheet"),
        ]
        return [f"{len(keys)} {words}: {_some(keys)}" for keys, words in said if keys]


def known_rows(database: Database, pipeline: str) -> dict[tuple[str, str], Known]:
    """Return the rows of the last plan by kind and key."""
    rows = [Known(*row) for row in database.query("planned_rows", pipeline=pipeline)]
    return {(row.kind, row.key): row for row in rows}


def digest(database: Database, *parts: Any, files: Iterable[Path] = ()) -> str:
    """Return the SHA-256 of values together with size and time of files (of a folder only that it is there)."""
    signatures = []
    for file in files:
        found = file.stat()
        signatures.append([found.st_size, found.st_mtime_ns] if file.is_file() else [])
    text = database.codec.encode([list(parts), signatures])
    return hashlib.sha256(text.encode()).hexdigest()


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
        if not before.retired and before.kind == "sample":
            plan.retired.append(before.key)
        if before.task_id is not None and before.state in ("ready", "suspended"):
            plan.cancel.append(before.task_id)
        plan.planned.append(_known_row(pipeline, before, run_id) | {"retired": True})
    return plan


def _decide(
    plan: Plan, pipeline: Pipeline, want: Wanted, before: Known | None, run_id: str, rerun: bool, accept: bool
) -> None:
    row = {
        "pipeline": pipeline.name,
        "kind": want.function.kind,
        "name": want.function.name,
        "key": want.key,
        "folder": want.folder,
        "position": want.position,
        "line": want.line,
        "digest": want.digest,
        "after": list(pipeline.prerequisites(want.function)),
        "allow_missing": want.function.allow_missing,
        "changed": False,
        "retired": False,
        "run_id": run_id,
    }
    of_sample = want.function.kind == "sample"
    if before is None or before.task_id is None or before.state is None:
        generation = 1 if before is None else before.generation + 1
        _spawn(plan, pipeline, want, row, generation)
        said = plan.new
    elif before.digest == want.digest and (before.state == "completed" or before.name == want.function.name):
        if before.retired and before.state == "cancelled":
            plan.revive.append({"seq": before.seq, "version": before.version, "input": want.input})
        row |= {"generation": before.generation, "task_id": before.task_id}
        said = plan.same
    elif before.state != "completed":
        # Not done yet: it simply takes its present row, files and function. A generation of its own, so that nothing
        # saved, and no command that has ended, of the old ones counts.
        if before.state in ("ready", "suspended"):
            plan.cancel.append(before.task_id)
        _spawn(plan, pipeline, want, row, before.generation + 1)
        said = plan.again
    elif rerun or not of_sample:
        _spawn(plan, pipeline, want, row, before.generation + 1)
        said = plan.again
    else:
        row |= {"generation": before.generation, "task_id": before.task_id}
        said = plan.same
        if not accept:
            row |= {"digest": before.digest, "changed": True}
            said = plan.changed
    plan.planned.append(row)
    if of_sample:
        said.append(want.key)


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
    """Return kind, key and generation of a task id made by :func:`task_id`; another id is taken as a key."""
    _, _, rest = id.partition("/")
    kind, _, rest = rest.partition("/")
    key, _, generation = rest.rpartition("/")
    return (kind, key, int(generation)) if generation.isdigit() else ("", id, 1)


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
                database.store.run(statement, rows=json.dumps(rows), now_us=now_us)

        run("spawn_tasks", plan.spawn)
        run("retry_tasks", plan.revive)
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
            before.digest,
            before.changed,
            before.retired,
            before.position,
            before.folder,
            before.line,
            before.name,
        ) != (row["digest"], row["changed"], row["retired"], row["position"], row["folder"], row["line"], row["name"]):
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
        "digest": before.digest,
        "after": [],
        "allow_missing": False,
        "changed": before.changed,
        "retired": before.retired,
        "run_id": run_id,
    }


def _some(keys: list[str], most: int = 8) -> str:
    shown = ", ".join(keys[:most])
    return shown if len(keys) <= most else f"{shown}, … and {len(keys) - most} more"
