"""Removing finished tasks that nobody needs any more, with all that belongs to them (L5)."""

from __future__ import annotations

from canard_pipe.engine import arguments
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.store import Store
from canard_pipe.errors import ConflictError


def check(older_than_seconds: float, keep: int, queue: str | None, limit: int) -> None:
    """Raise InputError for arguments that mean nothing."""
    arguments.seconds("older_than_seconds", older_than_seconds, zero=True)
    arguments.whole("keep", keep, 0, 2**31 - 1)
    arguments.whole("limit", limit, 0, 2**31 - 1)
    if queue is not None:
        arguments.text("queue", queue, 128)


def remove(store: Store, clock: Clock, older_than_seconds: float, keep: int, queue: str | None, limit: int) -> int:
    """See Database.retain. Runs within the caller's transaction."""
    found = store.run(
        "retainable_tasks", before_us=clock.now_us() - round(older_than_seconds * 1e6), keep=keep, queue=queue,
        most=limit,
    )
    if not found:
        return 0
    rows = [{"seq": row[0], "version": row[1]} for row in found]
    if store.changed("remove_tasks", rows=rows) != len(found):
        raise ConflictError("a task left its final state while it was to be removed", operation="remove_tasks")
    return len(found)
