"""Slurm as an executor: what is asked of it and what it says, as data.

- ``client.py`` calls sbatch, squeue, sacct, scancel and scontrol and parses what they print;
- ``states.py`` says what each of Slurm's words means;
- the rest records, submits, watches and cancels jobs.

An ID alone is never proof: Slurm uses numbers again after its controller has lost state. What belongs together is the
job's name, which holds a token of its own, and the time at which it was submitted.
"""

from __future__ import annotations

from dataclasses import dataclass


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
