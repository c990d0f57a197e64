"""A dead owner's work costs nothing: its attempts are closed as interrupted when the file is opened again."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from canard_pipe.engine.owner_record import process_start
from canard_pipe.engine.store import Rows
from canard_pipe.engine.transitions import ended

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

log = logging.getLogger(__name__)
RUNS_BEFORE_BLAME = 10  # runs in a row that died while one task's own code ran and saved nothing


def hand_back(database: Database, supervised: Collection[str] = ()) -> int:
    """Make ready the tasks whose holders on this host are dead; return how many.

    Leases of workers on other hosts, and of living ones here, are left alone, unless they ran out while nobody owned
    the file: they could not be renewed then, which is no failure of the task. A task that was running in ten
    interrupted runs in a row without a new checkpoint fails with the cause ``kills the run``; but not the
    ``supervised`` ones (ids), whose command ran or waited for its budget: what they do cannot end the run.
    """
    predecessor = database.ownership.predecessor if database.ownership else None
    dead = None if predecessor is None else _identity(predecessor.host, predecessor.pid, predecessor.identity.started)

    def act() -> int:
        now_us = database.clock.now_us()
        running = database.store.run("running_tasks")
        died = {row[0] for row in running if _is_dead(row[4].rpartition("@")[2], database.identity, dead)}
        holders = [row for row in running if row[0] in died or row[7] <= now_us]
        if holders:
            _interrupt(database, holders, {*supervised, *(row[2] for row in holders if row[0] not in died)})
        return len(holders)

    count = int(database.writer.transact(act))
    if count:
        log.info("closed attempts of a dead owner as interrupted", extra={"tasks": count})
    return count


def _interrupt(database: Database, holders: Rows, supervised: set[str]) -> None:
    now_us = database.clock.now_us()
    before: dict[int, int] = dict(database.store.run("interrupted_runs", seqs=json.dumps([row[0] for row in holders])))
    attempts, rows = [], []
    for seq, version, id, attempt, worker, started_us, *_ in holders:
        at_work = id not in supervised
        runs = before.get(seq, 0) + at_work
        kills = at_work and runs >= RUNS_BEFORE_BLAME
        # An attempt that is blamed is a failure, so that a retry begins to count anew.
        outcome, cause = ("failed", "kills_the_run") if kills else ("interrupted", None if at_work else "supervised")
        attempts.append(ended(seq, attempt, worker, started_us, outcome, cause=cause))
        rows.append({"seq": seq, "version": version, "runs": runs, "kills": kills})
    database.store.run("record_attempts", rows=attempts, now_us=now_us)
    database.store.run("interrupt_tasks", rows=rows, now_us=now_us)


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
