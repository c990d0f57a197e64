"""What becomes of one job, from its record and from what Slurm says: pure rules, no calls, no clock of their own.

The record decides and Slurm explains. A record that says that the command ended by itself is the outcome, whatever
Slurm says; where it was ended by a signal, or has left no record, Slurm's word is the cause. Silence means *not known
yet*: never that a job has failed, and never that it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from canard_pipe.execution.causes import CANCELLED, LOST, NEVER_STARTS, NO_RECORD, NODE_FAILURE, PREEMPTED
from canard_pipe.execution.jobs import RUNNING
from canard_pipe.execution.record import Record
from canard_pipe.execution.slurm import Seen, states
from canard_pipe.execution.slurm.runner import TERMINATED

SUBMITTED = "submitted"
_SHELL_KILLED = (128 + 9, 128 + 15)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, in seconds.

    ``record``: for the record, once Slurm says that a job has ended; a shared folder may lag. ``requeue``: for Slurm to
    put a job back whose node has failed or that was preempted. ``silence``: for a job that Slurm does not know though
    it answers; ``doubt`` where it may never have got it. ``hopeless``: for one that waits for what cannot come true;
    ``held`` where a person may change that. ``told``: before either is told.
    """

    record: float = 60.0
    requeue: float = 120.0
    silence: float = 300.0
    doubt: float = 20.0
    told: float = 60.0
    hopeless: float = 3600.0
    held: float = 7 * 86400.0


@dataclass(slots=True)
class Clocks:
    """Since when something is so with a job, in seconds of a monotonic clock."""

    since: dict[str, float] = field(default_factory=dict)

    def age(self, what: str, now: float) -> float:
        """Return for how long ``what`` has been so; the first call starts the clock."""
        return now - self.since.setdefault(what, now)

    def stop(self, *what: str) -> None:
        """It is not so any more."""
        for each in what:
            self.since.pop(each, None)


@dataclass(frozen=True, slots=True)
class Goes:
    """The job goes on in ``state``. ``warning`` is for people."""

    state: str
    reason: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """The job is over. Without ``cause`` its record says how; ``give_up``: Slurm may still have it."""

    cause: str | None = None
    give_up: bool = False


def judge(
    state: str, seen: Seen | None, record: Record | None, clocks: Clocks, patience: Patience, now: float,
    *, complete: bool, outputs_there: bool,
) -> Goes | Ends:
    """Return what becomes of a job that is in ``state``. ``seen`` is None if no row of Slurm is about it, ``complete``
    as in Answer. ``outputs_there``: the outputs are visible here as the record describes them."""
    if seen is not None:
        clocks.stop("silence")
    meaning = states.meaning(seen.state) if seen is not None else None
    if meaning is None or not meaning.final:
        clocks.stop("ended")
    if record is not None:
        return _by_record(state, meaning, record, clocks, patience, now, outputs_there=outputs_there)
    if seen is None or meaning is None:
        return _silent(state, clocks, patience, now, complete=complete)
    if meaning.final:
        cause = meaning.cause or NO_RECORD
        longest = patience.requeue if cause in (NODE_FAILURE, PREEMPTED) else patience.record
        return Ends(cause) if clocks.age("ended", now) >= longest else Goes(state, seen.state)
    if meaning.waiting:
        return _waiting(seen, clocks, patience, now)
    clocks.stop("hopeless")
    if not meaning.known:
        old = clocks.age("unknown", now) >= patience.told
        return Goes(state, seen.state, f"Slurm says {seen.state}, a word that is not known here" if old else None)
    clocks.stop("unknown")
    return Goes(RUNNING, seen.state)


def _by_record(
    state: str, meaning: states.Meaning | None, record: Record, clocks: Clocks, patience: Patience, now: float,
    *, outputs_there: bool,
) -> Goes | Ends:
    waited = clocks.age("record", now)
    if record.succeeded:
        return Ends() if outputs_there or waited >= patience.record else Goes(state, "its outputs are not visible yet")
    if not _from_outside(record):
        return Ends()
    if meaning is not None and meaning.final:
        return Ends(None if meaning.cause in (None, NO_RECORD) and record.by_itself else meaning.cause or CANCELLED)
    if waited < patience.record:
        return Goes(state, "it was ended by a signal")
    return Ends() if record.by_itself else Ends(CANCELLED)


def _from_outside(record: Record) -> bool:
    """Tell whether somebody else may have ended the command, so that Slurm may know why."""
    if record.ended_by == TERMINATED:
        return True
    return record.by_itself and (record.signal in ("SIGTERM", "SIGKILL") or record.exit_code in _SHELL_KILLED)


def _silent(state: str, clocks: Clocks, patience: Patience, now: float, *, complete: bool) -> Goes | Ends:
    if not complete:  # an outage costs patience, however long it takes
        clocks.stop("silence")
        return Goes(state, "Slurm does not answer")
    if clocks.age("silence", now) >= patience.silence:
        return Ends(LOST, give_up=True)
    return Goes(state, "not known to Slurm yet")


def _waiting(seen: Seen, clocks: Clocks, patience: Patience, now: float) -> Goes | Ends:
    kind = states.hopeless(seen.reason)
    if kind is None:
        clocks.stop("hopeless")
        return Goes(SUBMITTED, seen.reason)
    age = clocks.age("hopeless", now)
    if age >= (patience.held if kind == "held" else patience.hopeless):
        return Ends(NEVER_STARTS, give_up=True)
    return Goes(SUBMITTED, seen.reason, f"waits for what does not come by itself: {seen.reason}"
                if age >= patience.told else None)
