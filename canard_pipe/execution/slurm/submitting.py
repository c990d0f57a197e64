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
ARRAY = 500  # elements of one array at most; Slurm's own limit (MaxArraySize) is 1000 by default
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
        room = min(self._settings.max_jobs - in_slurm, self._settings.per_minute - len(self._sent))
        if room <= 0 or now < self._not_before:
            return 0
        groups = self._groups(waiting[:room])
        if not groups:
            return 0
        self._record([move for group in groups for move in self._begin(group)])
        moves = []
        for place, group in enumerate(groups):
            answer = self._call(group)
            self._sent.extend([self._monotonic()] * len(group))
            moves += [self._move(row, answer, _element(group, at)) for at, row in enumerate(group)]
            if not isinstance(answer, JobId) and not (isinstance(answer, Refused) and answer.final):
                moves += [_back(row) for later in groups[place + 1 :] for row in later]
                self._wait(answer.text)
                break
        else:
            self._all_is_well()
        self._record(moves)
        return sum(map(len, groups))

    def _groups(self, waiting: Sequence[LiveJob]) -> list[list[LiveJob]]:
        """Return what is submitted by one call each: single jobs, or arrays of those that ask for the same, when they
        have waited for others to come."""
        if not self._settings.array:
            return [[row] for row in waiting[:BATCH]]
        alike: dict[tuple[Any, ...], list[LiveJob]] = {}
        for row in waiting:
            alike.setdefault((row.cpus, row.memory_bytes, row.time_seconds), []).append(row)
        parts = [rows[at : at + ARRAY] for rows in alike.values() for at in range(0, len(rows), ARRAY)]
        waited_us = self._now_us() - round(self._settings.array_window_seconds * 1e6)
        return [part for part in parts if len(part) == ARRAY or part[0].recorded_us <= waited_us]

    def _begin(self, group: Sequence[LiveJob]) -> list[Move]:
        """Return the intent, which is written before sbatch is called: the elements of an array share its name."""
        at_us, name = self._now_us(), _name(group)
        return [
            {
                "token": row.token, "state": SUBMITTING, "live": True, "submitted_us": at_us,
                "job_name": name, "array_index": at if len(group) > 1 else -1,
            }
            for at, row in enumerate(group)
        ]  # fmt: skip

    def _call(self, group: Sequence[LiveJob]) -> JobId | Refused | Doubt:
        first, folders = group[0], [self._root / row.folder for row in group]
        made = script.options(
            self._settings.site, name=_name(group), folder=folders[0], cpus=first.cpus,
            memory_bytes=first.memory_bytes, time_seconds=first.time_seconds,
            comment=script.comment(first.task_id or "", first.step), array=len(group) if len(group) > 1 else None,
        )  # fmt: skip
        if len(group) == 1:
            return self._client.submit(folders[0] / script.SCRIPT, made)
        try:
            return self._client.submit(script.write_array(folders, self._settings.site), made)
        except OSError as error:
            return Refused(f"the script of an array cannot be written: {error}", final=True)

    def look_up(self, rows: Sequence[LiveJob]) -> None:
        """Find out what became of submissions in doubt."""
        doubtful = [row for row in rows if row.state == SUBMITTING and row.job_id is None and row.name is not None]
        if not doubtful:
            return
        since_us = min(row.recorded_us for row in doubtful) - CLOCK_SKEW_US
        answer = self._client.by_name([row.name for row in doubtful if row.name is not None], since_us)
        found = {(seen.name, _element_of(seen)): seen for seen in answer.seen}
        now = self._monotonic()
        moves = []
        for row in doubtful:
            clocks = self._clocks.setdefault(row.token, Clocks())
            seen = found.get((row.name or "", row.array_index))
            if seen is not None:
                moves.append(_found(row, seen))
            elif not answer.complete:
                clocks.stop("doubt")
            elif clocks.age("doubt", now) >= self._settings.patience.doubt:
                moves.append(self._give_up(row))
        for move in moves:
            self._clocks.pop(move["token"], None)
        self._record(moves)

    def _move(self, row: LiveJob, answer: JobId | Refused | Doubt, element: int | None) -> Move:
        if isinstance(answer, JobId):
            job_id = answer.number if element is None else f"{answer.number}_{element}"
            return _submitted(row, job_id, answer.cluster)
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


def _name(group: Sequence[LiveJob]) -> str:
    return script.own_name(group[0].name or "", group[0].token)


def _element(group: Sequence[LiveJob], place: int) -> int | None:
    return place if len(group) > 1 else None


def _element_of(seen: Seen) -> int | None:
    _, _, element = seen.job_id.partition("_")
    return int(element) if element else None


def _back(row: LiveJob) -> Move:
    return {"token": row.token, "state": WAITING, "live": True}
