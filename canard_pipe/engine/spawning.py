"""Making tasks, once for each id."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import arguments
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.values import Codec
from canard_pipe.engine.writer import Row
from canard_pipe.errors import InputError, SpawnConflict, StorageError

if TYPE_CHECKING:
    from canard_pipe.engine.tasks import Tasks


def rows(
    codec: Codec, name: str, inputs: Sequence[Any], *, ids: Sequence[str] | None, queue: str, priority: int,
    max_failures: int,
) -> list[Row]:
    """Check what was given and return the rows of spawn_tasks.sql, before anything is sent (G16, G17, L15)."""
    arguments.text("name", name, 256)
    arguments.text("queue", queue, 128)
    arguments.whole("priority", priority, -(2**31), 2**31 - 1)
    arguments.whole("max_failures", max_failures, 1, 1_000_000)
    chosen = [str(uuid.uuid4()) for _ in inputs] if ids is None else arguments.texts("ids", ids, 256)
    if len(chosen) != len(inputs):
        raise InputError(f"{len(inputs)} inputs but {len(chosen)} ids")
    if len(set(chosen)) != len(chosen):
        raise InputError("ids are not unique")
    common = {"name": name, "queue": queue, "priority": priority, "max_failures": max_failures}
    return [
        {"position": at, "id": id, "input": codec.encode(value)} | common
        for at, (id, value) in enumerate(zip(chosen, inputs, strict=True))
    ]


def spawn(tasks: Tasks, rows: Sequence[Row]) -> None:
    """Insert those that are not there yet, in one transaction. Raises SpawnConflict for one that differs (S22)."""
    try:
        tasks.spawn_rows(rows)
    except StorageError as error:
        # The insert may have committed: look, and never insert a second time (S23).
        try:
            known = _known(tasks.query, rows)
        except StorageError as unseen:
            raise unseen from error
        if not all(_same(row, known.get(row["id"])) for row in rows):
            raise


def insert(store: Store, clock: Clock, rows: Sequence[Row]) -> None:
    """Insert those that are not there yet, within the caller's transaction. Raises SpawnConflict."""
    known = _known(store.run, rows)
    new = [row for row in rows if not _same(row, known.get(row["id"]))]
    if new:
        store.run("spawn_tasks", rows=new, now_us=clock.now_us())


def _known(read: Callable[..., Rows], rows: Sequence[Row]) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in read("known_tasks", ids=json.dumps([row["id"] for row in rows]))}


def _same(row: Row, known: tuple[Any, ...] | None) -> bool:
    if known is None:
        return False
    fields = ("name", "queue", "priority", "max_failures", "input")
    differs = [field for field, found in zip(fields, known[1:], strict=True) if row[field] != found]
    if differs:
        raise SpawnConflict(row["id"], differs)
    return True
