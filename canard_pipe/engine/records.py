"""What the engine tells about a task: frozen records."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

UTC = datetime.UTC
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task without its payload (F9). Instants are aware datetimes in UTC."""

    id: str
    name: str
    queue: str
    state: str
    priority: int
    attempt: int
    failures: int
    max_failures: int
    available_at: datetime.datetime
    created_at: datetime.datetime
    updated_at: datetime.datetime
    worker: str | None
    deadline: datetime.datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved step: ``kind`` is step, sleep, wait, or waiting while a wait goes on; ``value`` is what it returned."""

    name: str
    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A whole task (F8): the summary's fields, input, result (None until completed) and checkpoints in saved order."""

    summary: TaskSummary
    input: Any
    result: Any
    checkpoints: tuple[Checkpoint, ...]

    def __getattr__(self, name: str) -> Any:
        # record.state reads as well as record.summary.state
        if name in TaskSummary.__dataclass_fields__:
            return getattr(self.summary, name)
        raise AttributeError(name)


def instant(us: int | None) -> datetime.datetime | None:
    """Return the aware UTC datetime of microseconds since 1970, exactly (L21)."""
    if us is None:
        return None
    return _EPOCH + _after(us)


def _after(us: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=us)


def summary(row: tuple[Any, ...]) -> TaskSummary:
    """Make a summary of the first 14 columns of list_tasks.sql or inspect_task.sql."""
    (id, name, queue, state, priority, attempt, failures, max_failures, available, created, updated, worker, deadline,
     error) = row[:14]
    return TaskSummary(
        id, name, queue, state, priority, attempt, failures, max_failures, _EPOCH + _after(available),
        _EPOCH + _after(created), _EPOCH + _after(updated), worker, instant(deadline), error,
    )
