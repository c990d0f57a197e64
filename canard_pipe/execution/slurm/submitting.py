"""Submission that cannot double: a job is recorded before sbatch is called, and looked up by its name after any doubt.

A row goes from ``waiting`` to ``submitting``, durably, then sbatch is called, then it is ``submitted`` with its job ID.
What is found ``submitting`` (the run died in between, sbatch timed out, a connection broke) may or may not exist. It is
looked up by name until it is found, or until all that must know it have said for a while that they do not; then the
try is revoked and its task makes a new one, with a folder, a token and a name of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from canard_pipe.execution import causes
from canard_pipe.execution.jobs import ENDED, WAITING, LiveJob
from canard_pipe.execution.slurm import Client, Doubt, JobId, Refused, Seen, endings, script
from canard_pipe.execution.slurm.judging import SUBMITTED, Clocks
from canard_pipe.execution.slurm.runner import REVOKED
from canard_pipe.execution.slurm.settings import SlurmSettings

log = logging.getLogger(__name__)
SUBMITTING = "submitting"
BATCH = 20  # so many are in doubt at most when the run dies
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0
CLOCK_SKEW_US = 3600 * 1_000_000  # a cluster's clock may differ from this one
Move = dict[str, Any]


def revoke(folder: Path) -> None:
    """Tell a job that it is not wanted: it starts nothing and writes no record from now on."""
    try:
        (folder / REVOKED).touch()
    except OSError as error:  # the folder is gone, and with it what the job needs to start
        log.warning("%s: %s", folder / REVOKED, error)


class Submitter:
    """Submits what waits, within the limits. ``record`` writes rows of move_jobs.sql durably; ``note`` tells people."""

    def __init__(
        self, client: Client, settings: SlurmSettings, root: Path, *,
        record: Callable[[Sequence[Move]], None], note: Callable[[str], None], now_us: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._client, self._settings, self._root = client, settings, root
        self._record, self._note, self._now_us, self._monotonic = record, note, now_us, monotonic
        self._sent: deque[float] = deque()
        self._not_before = float("-inf")
        self._pause = FIRST_PAUSE_SECONDS
        self._troubled = False
        self._clocks: dict[str, Clocks] = {}

    def submit(self, rows: Sequence[LiveJob]) -> int:
        """Submit as many of the rows that wait as the limits allow, at most one batch; return how many were tried."""
        waiting = [row for row in rows if row.live and row.state == WAITING]
        now = self._monotonic()
        while self._sent and now - self._sent[0] >= 60.0:
            self._sent.popleft()
        in_slurm = sum(1 for row in rows if row.state != WAITING)
        room = min(self._settings.max_jobs - in_slurm, self._settings.per_minute - len(self._sent), BATCH)
        batch = waiting[: max(0, room)] if now >= self._not_before else []
        if not batch:
            return 0
        at_us = self._now_us()
        self._record([
            {"token": row.token, "state": SUBMITTING, "live": True, "submitted_us": at_us} for row in batch
        ])
        moves = []
        for place, row in enumerate(batch):
            answer = self._client.submit(self._root / row.folder / script.SCRIPT, self._options(row))
            self._sent.append(self._monotonic())
            moves.append(self._move(row, answer))
            if not isinstance(answer, JobId) and not (isinstance(answer, Refused) and answer.final):
                moves += [_back(later) for later in batch[place + 1 :]]
                self._wait(answer.text)
                break
        else:
            self._all_is_well()
        self._record(moves)
        return len(batch)

    def look_up(self, rows: Sequence[LiveJob]) -> None:
        """Find out what became of submissions in doubt."""
        doubtful = [row for row in rows if row.state == SUBMITTING and row.job_id is None and row.name is not None]
        if not doubtful:
            return
        since_us = min(row.recorded_us for row in doubtful) - CLOCK_SKEW_US
        answer = self._client.by_name([row.name for row in doubtful if row.name is not None], since_us)
        found = {seen.name: seen for seen in answer.seen}
        now = self._monotonic()
        moves = []
        for row in doubtful:
            clocks = self._clocks.setdefault(row.token, Clocks())
            seen = found.get(row.name or "")
            if seen is not None:
                moves.append(_found(row, seen))
            elif not answer.complete:
                clocks.stop("doubt")
            elif clocks.age("doubt", now) >= self._settings.patience.doubt:
                moves.append(self._give_up(row))
        for move in moves:
            self._clocks.pop(move["token"], None)
        self._record(moves)

    def _options(self, row: LiveJob) -> list[str]:
        return script.options(
            self._settings.site, name=row.name or "", folder=self._root / row.folder, cpus=row.cpus,
            memory_bytes=row.memory_bytes, time_seconds=row.time_seconds,
            comment=script.comment(row.task_id or "", row.step),
        )

    def _move(self, row: LiveJob, answer: JobId | Refused | Doubt) -> Move:
        if isinstance(answer, JobId):
            return _submitted(row, answer.number, answer.cluster)
        if isinstance(answer, Refused) and answer.final:
            text = f"Slurm has refused the job: {answer.text}"
            self._write_ending(row, causes.NOT_SUBMITTED, text)
            return {"token": row.token, "state": ENDED, "live": False, "reason": answer.text}
        if isinstance(answer, Refused):
            return _back(row) | {"reason": answer.text}
        return {"token": row.token, "state": SUBMITTING, "live": True, "reason": answer.text}

    def _give_up(self, row: LiveJob) -> Move:
        revoke(self._root / row.folder)  # before the task learns of it and makes another one
        if row.live:
            text = "Slurm knows no job of this name; another one is submitted"
            self._write_ending(row, causes.UNSURE_SUBMISSION, text)
        state = ENDED if row.live else row.state
        return {"token": row.token, "state": state, "live": False, "to_cancel": True}

    def _write_ending(self, row: LiveJob, cause: str, text: str) -> None:
        trouble = endings.write(self._root / row.folder, cause, text)
        if trouble is not None:
            log.warning("%s", trouble)

    def _wait(self, text: str) -> None:
        if not self._troubled:
            self._note(f"Slurm takes no jobs now, they wait here: {text}")
        self._troubled = True
        self._not_before = self._monotonic() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _all_is_well(self) -> None:
        if self._troubled:
            self._note("Slurm takes jobs again")
        self._troubled, self._pause = False, FIRST_PAUSE_SECONDS


def _submitted(row: LiveJob, job_id: str, cluster: str | None) -> Move:
    return {"token": row.token, "state": SUBMITTED, "live": row.live, "job_id": job_id, "cluster": cluster}


def _found(row: LiveJob, seen: Seen) -> Move:
    return _submitted(row, seen.job_id, None)


def _back(row: LiveJob) -> Move:
    return {"token": row.token, "state": WAITING, "live": True}
