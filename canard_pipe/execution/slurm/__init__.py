"""Slurm as an executor: what is asked of it and what it says, as data.

- ``client.py`` calls sbatch, squeue, sacct, scancel and scontrol and parses what they print;
- ``states.py`` says what each of Slurm's words means;
- the rest records, submits, watches and cancels jobs.

An ID alone is never proof: Slurm uses numbers again after its controller has lost state. What belongs together is the
job's name, which holds a token of its own, and the time at which it was submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of ours. ``job_id`` is ``17``, or ``17_2`` for an element of an array; None before it is known.

    ``recorded_us`` is when it was meant to be submitted: nothing that Slurm knows from long before is this job.
    """

    token: str
    name: str
    recorded_us: int
    job_id: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One job as Slurm shows it: one row, the newest of its ID. Instants are UTC microseconds.

    ``state`` is Slurm's word (``CANCELLED``, without ``by 0``), ``reason`` that for pending (or ``""``).
    ``exit_code`` and ``signal`` are what Slurm says, which for codes above 127 is not what the job said.
    ``source`` is the program that was asked: sacct, squeue or scontrol.
    """

    job_id: str
    name: str
    state: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    submit_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    node: str = ""
    source: str = "sacct"


@dataclass(frozen=True, slots=True)
class JobId:
    """A submission that Slurm has accepted: digits only, and the cluster where it named one."""

    number: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """No job was made. ``final``: another try cannot help (bad partition, account, option), in Slurm's own words."""

    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody knows whether a job was made (time-out, lost connection): look it up by its name first."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What Slurm says of jobs. ``complete``: whoever must know has answered, so what is not in ``seen`` is not known to
    Slurm now; else ``trouble`` says who did not, for people."""

    seen: tuple[Seen, ...]
    complete: bool
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a job of a partition can ask for; None where there is no limit, or it is not known."""

    time_seconds: float | None = None
    memory_bytes: int | None = None


class Client(Protocol):
    """The calls of Slurm that are needed. Each ends in bounded time and raises nothing for what Slurm does or not."""

    def submit(self, script: Path, options: Sequence[str]) -> JobId | Refused | Doubt:
        """Submit a script with sbatch; ``options`` are all but ``--parsable``."""

    def by_name(self, names: Sequence[str], since_us: int) -> Answer:
        """Look jobs up by their names, of those submitted at ``since_us`` or later: squeue, then sacct."""

    def states(self, jobs: Sequence[SlurmJob], since_us: int) -> Answer:
        """Return the newest state of each job: one call of sacct for all, and of squeue where that is not enough."""

    def cancel(self, jobs: Sequence[SlurmJob]) -> str | None:
        """Ask scancel to end jobs; return why it could not be asked. None is no proof that they are gone."""

    def limits(self, partition: str | None) -> Limits:
        """Return the limits of a partition, or of the default one."""
