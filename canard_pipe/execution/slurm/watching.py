"""What became of all jobs, with one question to Slurm for all of them together; and the end of those not wanted."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from canard_pipe.execution import causes, record
from canard_pipe.execution.folders import last_lines
from canard_pipe.execution.jobs import CANCELLED, ENDED, WAITING, LiveJob
from canard_pipe.execution.record import Record
from canard_pipe.execution.slurm import Client, Seen, SlurmJob, endings, states
from canard_pipe.execution.slurm.judging import SUBMITTED, Clocks, Ends, Goes, judge
from canard_pipe.execution.slurm.script import LOG
from canard_pipe.execution.slurm.settings import SlurmSettings
from canard_pipe.execution.slurm.submitting import CLOCK_SKEW_US, Move, revoke

log = logging.getLogger(__name__)
ASK_AGAIN_SECONDS = 15.0  # rc 0 of scancel proves nothing


class Watcher:
    """Judges jobs by their records and by what Slurm has said last. Every method returns rows of move_jobs.sql.

    It remembers since when something is so; a run that starts anew is patient anew.
    """

    def __init__(
        self, client: Client, settings: SlurmSettings, root: Path, *,
        note: Callable[[str], None], monotonic: Callable[[], float],
    ) -> None:
        self._client, self._settings, self._root = client, settings, root
        self._note, self._monotonic = note, monotonic
        self._seen: dict[str, Seen] = {}
        self._complete = False
        self._trouble: str | None = None
        self._clocks: dict[str, Clocks] = {}
        self._revoked: set[str] = set()
        self._asked: dict[str, float] = {}  # token -> when scancel was asked
        self._warned: set[tuple[str, str]] = set()

    def ask(self, rows: Sequence[LiveJob]) -> None:
        """Ask Slurm for the states of all jobs that it has a number for: one question."""
        known = [row for row in rows if row.job_id is not None]
        if not known:
            self._seen, self._complete = {}, True
            return
        since_us = min(row.recorded_us for row in known) - CLOCK_SKEW_US
        answer = self._client.states([_slurm_job(row) for row in known], since_us)
        by_id = {(seen.job_id, seen.name): seen for seen in answer.seen}  # a number alone is never proof
        self._seen = {
            row.token: by_id[row.job_id, row.name]
            for row in known if row.job_id is not None and row.name is not None and (row.job_id, row.name) in by_id
        }
        self._complete = answer.complete
        self._tell_trouble(answer.trouble)

    def judge(self, rows: Sequence[LiveJob], *, asked: bool) -> list[Move]:
        """Return what has changed with the live jobs. Without ``asked``, for now only by records that are there."""
        now = self._monotonic()
        moves = []
        for row in rows:
            if not row.live or row.job_id is None:
                continue
            found = endings.read(self._root / row.folder, row.token)
            if not asked and found is None:
                continue
            seen = self._seen.get(row.token)
            clocks = self._clocks.setdefault(row.token, Clocks())
            verdict = judge(
                row.state, seen, found, clocks, self._settings.patience, now, complete=self._complete and asked,
                outputs_there=found is None or _visible(found, self._root / row.folder),
            )
            move = self._end(row, verdict, seen) if isinstance(verdict, Ends) else self._go(row, verdict, seen)
            if move is not None:
                moves.append(move)
        return moves

    def give_up(self, rows: Sequence[LiveJob]) -> list[Move]:
        """Revoke what nobody waits for; return the rows that are given up now."""
        moves = [
            {"token": row.token, "state": row.state, "live": False, "to_cancel": True}
            for row in rows if row.unwanted and row.live
        ]
        for row in rows:
            if (row.to_cancel or (row.unwanted and row.live)) and row.token not in self._revoked:
                revoke(self._root / row.folder)
                self._revoked.add(row.token)
        return moves

    def cancel(self, rows: Sequence[LiveJob], *, asked: bool) -> list[Move]:
        """Ask scancel for what was given up, again and again until Slurm has it no more."""
        now = self._monotonic()
        moves, wanted = [], []
        for row in rows:
            if not row.to_cancel:
                continue
            if self._is_gone(row, now, asked=asked):
                state = CANCELLED if row.state != ENDED else None
                moves.append({"token": row.token, "state": state or row.state, "live": False, "to_cancel": False})
                self._forget(row.token)
            elif row.job_id is not None and now - self._asked.get(row.token, float("-inf")) >= ASK_AGAIN_SECONDS:
                wanted.append(row)
        if wanted:
            trouble = self._client.cancel([_slurm_job(row) for row in wanted])
            if trouble is None:
                self._asked |= {row.token: now for row in wanted}
            self._tell_trouble(trouble)
        return moves

    def _is_gone(self, row: LiveJob, now: float, *, asked: bool) -> bool:
        if row.state == WAITING:
            return True  # sbatch was never called
        clocks = self._clocks.setdefault(row.token, Clocks())
        if row.job_id is None:  # in doubt: the submitter looks for it; in the end `revoked` keeps it out
            return clocks.age("not found", now) >= self._settings.patience.silence
        if not asked or not self._complete:
            return False
        seen = self._seen.get(row.token)
        if seen is None:
            return clocks.age("not seen", now) >= self._settings.patience.doubt
        return states.meaning(seen.state).final

    def _go(self, row: LiveJob, verdict: Goes, seen: Seen | None) -> Move | None:
        if verdict.warning is not None and (row.token, verdict.reason) not in self._warned:
            self._warned.add((row.token, verdict.reason))
            self._note(f"job {row.job_id} ({row.name}): {verdict.warning}")
        if (verdict.state, verdict.reason) == (row.state, row.reason or ""):
            return None
        started_us = seen.start_us if seen is not None and verdict.state != SUBMITTED else None
        node = seen.node or None if seen is not None else None
        return {
            "token": row.token, "state": verdict.state, "live": True, "reason": verdict.reason,
            "started_us": started_us, "host": node,
        }

    def _end(self, row: LiveJob, verdict: Ends, seen: Seen | None) -> Move:
        folder = self._root / row.folder
        cause = verdict.cause
        if verdict.give_up:
            revoke(folder)
            self._revoked.add(row.token)
        if cause == causes.NO_RECORD and endings.memory_ran_out(folder):
            cause = causes.OOM
        if cause is not None:
            text = explain(row, cause, seen)
            if cause == causes.NO_RECORD:
                text = "\n    ".join([text, *last_lines(folder / LOG, 5)])
            trouble = endings.write(folder, cause, text, job_id=row.job_id, seen=seen)
            if trouble is not None:
                log.warning("%s", trouble)
        if not verdict.give_up:
            self._forget(row.token)
        return {
            "token": row.token, "state": ENDED, "live": False, "to_cancel": verdict.give_up, "cause": cause,
            "reason": seen.state if seen is not None else None,
        }

    def _forget(self, token: str) -> None:
        self._clocks.pop(token, None)
        self._asked.pop(token, None)
        self._seen.pop(token, None)

    def _tell_trouble(self, trouble: str | None) -> None:
        if (trouble is None) != (self._trouble is None):
            self._note("Slurm answers again" if trouble is None else f"Slurm does not answer, jobs go on: {trouble}")
        self._trouble = trouble


def explain(row: LiveJob, cause: str, seen: Seen | None) -> str:
    """Return why a job has ended, for people, with the way out where there is one."""
    job = f"job {row.job_id}"
    said = f" (Slurm says {seen.state})" if seen is not None else ""
    ran = ""
    if seen is not None and seen.start_us is not None and seen.end_us is not None:
        ran = f" after {max(0, seen.end_us - seen.start_us) / 60e6:.1f} min"
    texts: Mapping[str, str] = {
        causes.TIMEOUT: f"{job} came to its time limit{_asked_time(row)}{ran}{said}; ask for more with time=, or let "
        'it grow: time=Escalate("2h", max="24h")',
        causes.OOM: f"{job} ran out of memory{_asked_memory(row)}{said}; ask for more with memory=, or let it grow: "
        'memory=Escalate("4G", max="32G")',
        causes.CANCELLED: f"{job} was cancelled{said}: by scancel or by an administrator, not by this run",
        causes.NODE_FAILURE: f"the node of {job} failed{said}",
        causes.PREEMPTED: f"{job} was preempted{said}",
        causes.LOST: f"Slurm does not know {job} any more, and it has left no record",
        causes.NEVER_STARTS: f"{job} waited for what does not come: {row.reason}",
        causes.NO_RECORD: f"{job} has ended{said}, but left no record; what it said itself is in slurm.log",
    }
    return texts.get(cause, f"{job} has ended: {cause}{said}")


def _asked_time(row: LiveJob) -> str:
    return f" of {row.time_seconds / 60:.0f} min" if row.time_seconds else ""


def _asked_memory(row: LiveJob) -> str:
    return f" of {row.memory_bytes / 1024**2:.0f} MiB" if row.memory_bytes else ""


def _visible(found: Record, folder: Path) -> bool:
    return all(_has_size(folder / name, size) for name, size in found.outputs)


def _has_size(path: Path, size: int | None) -> bool:
    """Tell whether an output is here in the size that its node has seen.

    A client of a network file system keeps what it knew of names and sizes for a while; listing the folder and opening
    the file make it ask its server again (BUGS 54).
    """
    if record.size_of(path) == size:
        return True
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # noqa: PTH208 - nobody reads it
        path.open("rb").close()
    return record.size_of(path) == size


def _slurm_job(row: LiveJob) -> SlurmJob:
    return SlurmJob(row.token, row.name or "", row.recorded_us, row.job_id, row.cluster)
