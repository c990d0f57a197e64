"""Reading tasks: one whole, many without payload, a result."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from canard_pipe.engine import arguments
from canard_pipe.engine.claiming import saved_checkpoints
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.records import Checkpoint, TaskRecord, TaskSummary, summary
from canard_pipe.engine.store import Store
from canard_pipe.engine.values import Codec
from canard_pipe.errors import RestoreError, ResultUnavailable

FINAL = ("completed", "failed", "cancelled")


def inspect(store: Store, codec: Codec, id: str) -> TaskRecord | None:
    """See Database.inspect. Row and checkpoints are of one moment (G15)."""
    arguments.text("id", id, 256)
    with store.snapshot():
        rows = store.query("inspect_task", id=id)
        if not rows:
            return None
        seq, given, result = rows[0][14:17]
        saved = saved_checkpoints(store.query, [seq]).get(seq, ())
    checkpoints = tuple(Checkpoint(each.name, each.kind, _decoded(codec, each.text, id)) for each in saved)
    ended = None if result is None else _decoded(codec, result, id)
    return TaskRecord(summary(rows[0]), _decoded(codec, given, id), ended, checkpoints)


def tasks(
    store: Store, *, queue: str | None, state: str | Collection[str] | None, id: str | None, limit: int
) -> list[TaskSummary]:
    """See Database.tasks."""
    wanted = arguments.states(state)
    arguments.whole("limit", limit, 0, 2**31 - 1)
    if queue is not None:
        arguments.text("queue", queue, 128)
    if id is not None:
        arguments.text("id", id, 256)
    rows = store.query(
        "list_tasks", id=id, queue=queue, most=limit, states=None if wanted is None else json.dumps(wanted)
    )
    return [summary(row) for row in rows]


def result(store: Store, codec: Codec, id: str) -> Any:
    """See Database.result."""
    arguments.text("id", id, 256)
    rows = store.query("task_result", id=id)
    state, text = rows[0] if rows else (None, None)
    if state != "completed":
        raise ResultUnavailable(id, state)
    return _decoded(codec, text, id)


def wait(
    store: Store, codec: Codec, clock: Clock, id: str, timeout_seconds: float | None, poll_seconds: float
) -> Any:
    """See Database.wait."""
    arguments.text("id", id, 256)
    arguments.seconds("poll_seconds", poll_seconds)
    if timeout_seconds is not None:
        arguments.seconds("timeout_seconds", timeout_seconds, zero=True, endless=True)
    since = clock.monotonic()
    while True:
        rows = store.query("task_result", id=id)
        if not rows or rows[0][0] in FINAL:
            return result(store, codec, id)
        left = float("inf") if timeout_seconds is None else timeout_seconds - (clock.monotonic() - since)
        if left <= 0:
            raise ResultUnavailable(id, rows[0][0])
        clock.sleep(min(poll_seconds, left))


def queues(store: Store) -> dict[str, dict[str, int]]:
    """See Database.queues."""
    found: dict[str, dict[str, int]] = {}
    for queue, state, count in store.query("queue_states"):
        found.setdefault(queue, dict.fromkeys(arguments.STATES, 0))[state] = count
    return found


def _decoded(codec: Codec, text: str, id: str) -> Any:
    try:
        return codec.decode(text)
    except ValueError as error:
        raise RestoreError(f"a stored value cannot be read: {error}", task_id=id, operation="read") from error
