"""Reading tasks: one whole, many without payload, a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import arguments
from canard_pipe.engine.claiming import saved_checkpoints
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.grants import Saved
from canard_pipe.engine.records import Checkpoint, TaskRecord, TaskSummary, summary
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.values import Codec
from canard_pipe.errors import RestoreError, ResultUnavailable

if TYPE_CHECKING:
    from canard_pipe.engine.tasks import Tasks

Read = Callable[..., Rows]
FINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as it is stored: the columns of inspect_task.sql, and its checkpoints in saved order."""

    row: tuple[Any, ...]
    saved: tuple[Saved, ...]


def read_task(store: Store, id: str) -> StoredTask | None:
    """See Tasks.read_task. Row and checkpoints are of one moment (G15)."""
    with store.snapshot():
        rows = store.query("inspect_task", id=id)
        if not rows:
            return None
        seq = rows[0][14]
        return StoredTask(rows[0], saved_checkpoints(store.query, [seq]).get(seq, ()))


def inspect(tasks: Tasks, id: str) -> TaskRecord | None:
    """See Tasks.inspect."""
    found = tasks.read_task(arguments.text("id", id, 256))
    if found is None:
        return None
    given, result = found.row[15:17]
    codec = tasks.codec
    checkpoints = tuple(Checkpoint(each.name, each.kind, _decoded(codec, each.text, id)) for each in found.saved)
    ended = None if result is None else _decoded(codec, result, id)
    return TaskRecord(summary(found.row), _decoded(codec, given, id), ended, checkpoints)


def tasks(
    read: Read, *, queue: str | None, state: str | Collection[str] | None, id: str | None, limit: int
) -> list[TaskSummary]:
    """See Tasks.tasks."""
    wanted = arguments.states(state)
    arguments.whole("limit", limit, 0, 2**31 - 1)
    if queue is not None:
        arguments.text("queue", queue, 128)
    if id is not None:
        arguments.text("id", id, 256)
    rows = read(
        "list_tasks", id=id, queue=queue, most=limit, states=None if wanted is None else json.dumps(wanted)
    )
    return [summary(row) for row in rows]


def result(read: Read, codec: Codec, id: str) -> Any:
    """See Tasks.result."""
    arguments.text("id", id, 256)
    rows = read("task_result", id=id)
    state, text = rows[0] if rows else (None, None)
    if state != "completed":
        raise ResultUnavailable(id, state)
    return _decoded(codec, text, id)


def wait(
    read: Read, codec: Codec, clock: Clock, id: str, timeout_seconds: float | None, poll_seconds: float
) -> Any:
    """See Tasks.wait."""
    arguments.text("id", id, 256)
    arguments.seconds("poll_seconds", poll_seconds)
    if timeout_seconds is not None:
        arguments.seconds("timeout_seconds", timeout_seconds, zero=True, endless=True)
    since = clock.monotonic()
    while True:
        rows = read("task_result", id=id)
        if not rows or rows[0][0] in FINAL:
            return result(read, codec, id)
        left = float("inf") if timeout_seconds is None else timeout_seconds - (clock.monotonic() - since)
        if left <= 0:
            raise ResultUnavailable(id, rows[0][0])
        clock.sleep(min(poll_seconds, left))


def queues(read: Read) -> dict[str, dict[str, int]]:
    """See Tasks.queues."""
    found: dict[str, dict[str, int]] = {}
    for queue, state, count in read("queue_states"):
        found.setdefault(queue, dict.fromkeys(arguments.STATES, 0))[state] = count
    return found


def _decoded(codec: Codec, text: str, id: str) -> Any:
    try:
        return codec.decode(text)
    except ValueError as error:
        raise RestoreError(f"a stored value cannot be read: {error}", task_id=id, operation="read") from error
