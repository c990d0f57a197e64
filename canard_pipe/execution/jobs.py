"""Rows of ``jobs``: what is recorded of the tries of commands, and what executors that suspend find out about them.

``live``: waiting, queued or running; the task waits for it. ``ended``: over, and its task not there yet to take it in;
then done, failed or interrupted. ``to_cancel``: given up, but a scheduler may still have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.writer import Row
from canard_pipe.execution.executor import Job, Leaseholder
from canard_pipe.execution.record import Record

WAITING, RUNNING, ENDED, INTERRUPTED, CANCELLED = "waiting", "running", "ended", "interrupted", "cancelled"


@dataclass(frozen=True, slots=True)
class Known:
    """What the database knows of a try."""

    token: str
    state: str
    live: bool
    archived: bool
    attempt: int
    task_attempt: int
    digest: str
    cause: str | None
    folder: str


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that may be at work. ``unwanted``: nobody waits for it any more."""

    token: str
    state: str
    live: bool
    to_cancel: bool
    name: str | None
    job_id: str | None
    cluster: str | None
    folder: str
    step: str
    command: str
    cpus: float
    memory_bytes: int | None
    time_seconds: float | None
    recorded_us: int
    submitted_us: int | None
    started_us: int | None
    task_id: str | None
    reason: str | None
    array_index: int | None
    unwanted: bool


def tries_of(database: Tasks, task_seq: int, step: str, ordinal: int) -> dict[str, Known]:
    """Return the tries of a command by token, the oldest first."""
    rows = database.query("tries_of_command", task_seq=task_seq, step=step, ordinal=ordinal)
    return {row[0]: Known(*row) for row in rows}


def live_jobs(database: Database, executor: str) -> list[LiveJob]:
    """Return the jobs of an executor that may be at work or are to be cancelled, in the order of their recording."""
    return [LiveJob(*row) for row in database.query("live_jobs", executor=executor)]


def move(database: Database, rows: Sequence[Row]) -> None:
    """Write what was found out about live jobs (move_jobs.sql); nothing happens to those that are not live."""
    if rows:
        database.write("move_jobs", rows)


def row_of(claim: Leaseholder, job: Job, executor: str, state: str, **facts: Any) -> Row:
    """Return the row of record_jobs.sql for a try."""
    return {
        "task_seq": claim.seq, "task_attempt": claim.attempt, "step": job.identity.step,
        "ordinal": job.identity.ordinal, "attempt": job.attempt, "executor": executor, "token": job.token,
        "digest": job.digest, "folder": relative(job.folder, claim.database.root),
        "command": job.command.text().encode(errors="replace").decode(), "state": state,
        "cpus": job.request.cpus, "memory_bytes": job.request.memory_bytes or None, "time_seconds": job.seconds,
        **facts,
    }


def facts_of(record: Record) -> Row:
    """Return what a record says of its try, as columns."""
    return {
        "exit_code": record.exit_code, "signal": record.signal, "peak_memory_bytes": record.peak_memory_bytes,
        "cpu_seconds": record.cpu_seconds, "read_bytes": record.read_bytes, "written_bytes": record.written_bytes,
        "host": record.host,
        "started_us": record.started_us, "ended_us": record.ended_us,
    }


def relative(folder: Path, root: Path) -> str:
    """Return a folder as it is stored: relative to the launch folder where it lies below it."""
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder)
