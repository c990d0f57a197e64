"""What the owner does to tasks on its own, under no claim: cancel, expire, wake.

Each runs within the caller's transaction: the version read with a row is the fence of its update.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from canard_pipe.engine.clock import Clock
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.writer import Row


def ended(seq: int, attempt: int, worker: str, started_us: int, outcome: str, error: str | None = None,
          *, cause: str | None = None) -> Row:
    """Return the row of record_attempts.sql for an attempt that its holder has not ended itself (L3)."""
    return {"seq": seq, "attempt": attempt, "worker": worker, "started_us": started_us, "outcome": outcome,
            "error": error, "cause": None if cause is None else json.dumps({"kind": cause})}


def cancel(store: Store, clock: Clock, ids: Collection[str]) -> Rows:
    """Cancel the unfinished tasks among ``ids``; return their rows: seq, version, id, state, ... (F14, S36)."""
    now_us = clock.now_us()
    found = store.run("live_tasks", ids=json.dumps(list(ids)))
    if found:
        store.run("cancel_tasks", rows=_versions(found), now_us=now_us)
        _record(store, now_us, [
            ended(row[0], row[4], row[5], row[6], "cancelled") for row in found if row[3] == "running"
        ])
    return found


def expire(store: Store, clock: Clock, queue: str | None, limit: int) -> Rows:
    """Fail tasks whose last lease has expired; return their rows: seq, version, id, ... (S4, S6, G27)."""
    now_us = clock.now_us()
    found = store.run("exhausted_tasks", queue=queue, most=limit, now_us=now_us)
    if found:
        store.run("expire_tasks", rows=_versions(found), now_us=now_us)
        _record(store, now_us, [
            ended(row[0], row[3], row[4], row[5], "expired", "worker lease expired", cause="lease") for row in found
        ])
    return found


def wake(store: Store, clock: Clock) -> Rows:
    """Make ready every suspended task whose waits are fulfilled or whose time has come; return their rows."""
    now_us = clock.now_us()
    found = store.run("wakeable_tasks", now_us=now_us)
    if found:
        store.run("wake_tasks", rows=_versions(found), now_us=now_us)
    return found


def disown(store: Store, clock: Clock, holder: str, tokens: Collection[str]) -> int:
    """Release what the process ``holder`` has claimed under other tokens than ``tokens``; return how many tasks.

    Nothing is counted for them. ``holder`` is the identity that its workers' names end with.
    """
    now_us = clock.now_us()
    found = [
        row for row in store.run("running_tasks")
        if row[4].endswith(f"@{holder}") and row[6] not in tokens and row[7] > now_us
    ]
    if found:
        rows = [{"seq": row[0], "token": row[6]} for row in found]
        store.run("release_tasks", rows=rows, now_us=now_us)
        _record(store, now_us, [ended(row[0], row[3], row[4], row[5], "released") for row in found])
    return len(found)


def _versions(found: Rows) -> list[Row]:
    return [{"seq": row[0], "version": row[1]} for row in found]


def _record(store: Store, now_us: int, rows: list[Row]) -> None:
    if rows:
        store.run("record_attempts", rows=rows, now_us=now_us)
