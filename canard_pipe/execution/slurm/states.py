"""What Slurm's words mean: the one table of job states and of reasons for pending.

Words are those of Slurm 20.11 to 24.11 (``man sacct``, "JOB STATE CODES"; ``man squeue``, "JOB REASON CODES"). What
follows a blank or a plus is cut off before: ``CANCELLED by 0``; a column that is too narrow gives ``OUT_OF_ME+``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """``waiting``: not begun, or put back; ``final``: over, for ``cause`` (None: Slurm knows none). Neither: at work.

    Without ``known`` the word says nothing.
    """

    waiting: bool = False
    final: bool = False
    cause: str | None = None
    known: bool = True


_WAITING, _RUNNING, _UNKNOWN = Meaning(waiting=True), Meaning(), Meaning(known=False)
STATES = {
    "PENDING": _WAITING,
    "CONFIGURING": _WAITING,
    "REQUEUED": _WAITING,
    "REQUEUE_FED": _WAITING,
    "REQUEUE_HOLD": _WAITING,
    "SPECIAL_EXIT": _WAITING,
    "RESV_DEL_HOLD": _WAITING,
    "RUNNING": _RUNNING,
    "COMPLETING": _RUNNING,
    "SIGNALING": _RUNNING,
    "STAGE_OUT": _RUNNING,
    "RESIZING": _RUNNING,
    "SUSPENDED": _RUNNING,
    "STOPPED": _RUNNING,
    "POWER_UP_NODE": _RUNNING,
    "UPDATE_DB": _RUNNING,
    "EXPEDITING": _RUNNING,
    "COMPLETED": Meaning(final=True),
    "FAILED": Meaning(final=True),
    "CANCELLED": Meaning(final=True, cause="cancelled"),
    "REVOKED": Meaning(final=True, cause="cancelled"),
    "DEADLINE": Meaning(final=True, cause="timeout"),
    "TIMEOUT": Meaning(final=True, cause="timeout"),
    "OUT_OF_MEMORY": Meaning(final=True, cause="oom"),
    "NODE_FAIL": Meaning(final=True, cause="node_failure"),
    "BOOT_FAIL": Meaning(final=True, cause="node_failure"),
    "LAUNCH_FAILED": Meaning(final=True, cause="node_failure"),
    "RECONFIG_FAIL": Meaning(final=True, cause="node_failure"),
    "PREEMPTED": Meaning(final=True, cause="preempted"),
}
# Never true by itself for this job; "held": a person may change it. Prefixes, since sites see many variants.
REASONS = {
    "PartitionTimeLimit": "never",
    "PartitionNodeLimit": "never",
    "PartitionConfig": "never",
    "BadConstraints": "never",
    "DependencyNeverSatisfied": "never",
    "AccountNotAllowed": "never",
    "QOSNotAllowed": "never",
    "InvalidAccount": "never",
    "InvalidQOS": "never",
    "AssocMaxWallDurationPerJobLimit": "never",
    "QOSMaxWallDurationPerJobLimit": "never",
    "JobHeldUser": "held",
    "JobHeldAdmin": "held",
    "PartitionDown": "held",
    "PartitionInactive": "held",
    "launch_failed_requeued_held": "held",
}


def meaning(word: str) -> Meaning:
    """Return what a word for a state means, also one that a narrow column has cut off."""
    first = word.split()[0] if word.split() else ""
    if first.endswith("+"):
        whole = [state for state in STATES if state.startswith(first[:-1])]
        first = whole[0] if len(whole) == 1 else first
    return STATES.get(first, _UNKNOWN)


def hopeless(reason: str) -> str | None:
    """Return "never" or "held" for a reason for pending that does not pass by itself, else None."""
    return next((kind for start, kind in REASONS.items() if reason.startswith(start)), None)
