"""A dead owner's work costs nothing: its attempts are closed as interrupted when the file is opened again."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

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
    dead_identity = f"{predecessor.host}:{predecessor.pid}" if predecessor else None
    here = database.identity.rpartition(":")[0]

    def is_dead(worker: str) -> bool:
        identity = worker.rpartition("@")[2]
        if identity == dead_identity:
            return True
        host, _, pid = identity.rpartition(":")
        return host == here and pid.isdigit() and not _alive(int(pid))

    def act() -> int:
        now_us = database.clock.now_us()
        dead = [row for row in database.store.run("running_tasks") if is_dead(row[4])]
        if not dead:
            return 0
        ended = [
            {"seq": row[0], "attempt": row[3], "worker": row[4], "started_us": row[5], "outcome": "interrupted",
             "error": None, "cause": None}
            for row in dead
        ]
        database.store.run("record_attempts", rows=json.dumps(ended), now_us=now_us)
        runs = dict(database.store.run("interrupted_runs", seqs=json.dumps([row[0] for row in dead])))
        rows = [
            {"seq": row[0], "version": row[1], "runs": runs.get(row[0], 0),
             "kills": runs.get(row[0], 0) >= RUNS_BEFORE_BLAME}
            for row in dead
        ]
        database.store.run("interrupt_tasks", rows=json.dumps(rows), now_us=now_us)
        return len(dead)

    count = int(database.writer.transact(act))
    if count:
        log.info("closed attempts of a dead owner as interrupted", extra={"tasks": count})
    return count


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
