"""A dead owner's work costs nothing: its attempts are closed as interrupted when the file is opened again."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from canard_pipe.engine.owner_record import process_start
from canard_pipe.engine.store import Rows
from canard_pipe.engine.transitions import ended

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

log = logging.getLogger(__name__)
RUNS_BEFORE_BLAME = 10  # runs in a row that died while one task ran and saved nothing


def hand_back(database: Database) -> int:
    """Make ready the tasks whose holders on this host are dead; return how many.

    Leases of workers on other hosts, and of living ones here, are left alone. A task that was running in ten
    interrupted runs in a row without a new checkpoint fails with the cause ``kills the run``.
    """
    predecessor = database.ownership.predecessor if database.ownership else None
    dead = None if predecessor is None else _identity(predecessor.host, predecessor.pid, predecessor.identity.started)

    def act() -> int:
        holders = [
            row for row in database.store.run("running_tasks")
            if _is_dead(row[4].rpartition("@")[2], database.identity, dead)
        ]
        if holders:
            _interrupt(database, holders)
        return len(holders)

    count = int(database.writer.transact(act))
    if count:
        log.info("closed attempts of a dead owner as interrupted", extra={"tasks": count})
    return count


def _interrupt(database: Database, holders: Rows) -> None:
    now_us = database.clock.now_us()
    attempts = [ended(row[0], row[3], row[4], row[5], "interrupted") for row in holders]
    database.store.run("record_attempts", rows=json.dumps(attempts), now_us=now_us)
    runs: dict[int, int] = dict(database.store.run("interrupted_runs", seqs=json.dumps([row[0] for row in holders])))
    rows = [
        {"seq": row[0], "version": row[1], "runs": runs.get(row[0], 0),
         "kills": runs.get(row[0], 0) >= RUNS_BEFORE_BLAME}
        for row in holders
    ]
    database.store.run("interrupt_tasks", rows=json.dumps(rows), now_us=now_us)


def _is_dead(holder: str, own: str, predecessor: str | None) -> bool:
    # This process has just opened the file: what it holds under its own name is of a handle that was closed.
    if holder in (own, predecessor):
        return True
    host, pid, started = _parts(holder)
    if host != _parts(own)[0] or not pid.isdigit():
        return False
    if started:
        return process_start(int(pid)) != started  # a process number alone is used again
    return not _exists(int(pid))


def _identity(host: str, pid: int, started: str) -> str:
    return f"{host}:{pid}:{started}"


def _parts(holder: str) -> tuple[str, str, str]:
    host, pid, started = [*holder.split(":", 2), "", ""][:3]
    return host, pid, started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
