"""What a context asks of an executor, and what it gives and gets. Each scheduler is another module.

An executor runs a command while its handler waits (``LocalExecutor``), or *suspends*: it records the command in
``jobs``, gives up the claim in the same transaction, and only then starts anything. Then the task sleeps, holding no
thread, lease or budget, until that row is not live any more; the handler starts from its top and finds how it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from canard_pipe.execution.command import Command
from canard_pipe.execution.record import Identity, Record
from canard_pipe.execution.resources import Most, Request


class Leaseholder(Protocol):
    """The part of a claim that an executor needs."""

    id: str
    seq: int
    attempt: int
    lease_seconds: float
    lost: threading.Event
    database: Any

    def check(self) -> None:
        """Raise LeaseLost if the lease is known to be gone, TaskReleased if the worker stops."""

    def suspend(
        self, waits: Iterable[tuple[str, str]], *, extra: Sequence[tuple[str, Sequence[dict[str, Any]]]] = ()
    ) -> NoReturn:
        """Give up the claim until the waits are fulfilled, and write ``extra`` with it. Raises TaskSuspended."""


@dataclass(frozen=True, slots=True)
class Job:
    """One try of a command, ready to start: its folder is made, ``command.sh`` is written.

    ``members`` are the argument lists to start: those of the command, or what runs them in their surroundings.
    ``enders`` are programs to start when the try was not left to end by itself (see surroundings.py).
    """

    token: str
    digest: str
    identity: Identity
    command: Command
    attempt: int
    folder: Path
    environment: Mapping[str, str]
    seconds: float | None
    request: Request
    members: tuple[tuple[str, ...], ...] = ()
    enders: tuple[tuple[str, ...], ...] = ()

    def start_message(
        self, variables: Mapping[str, str], grace_seconds: float, linger_seconds: float
    ) -> dict[str, Any]:
        """Return what tells a launcher to start it (see launcher.py), with the whole environment."""
        return {
            "op": "start",
            "token": self.token,
            "digest": self.digest,
            "identity": {
                "task": self.identity.task, "step": self.identity.step, "ordinal": self.identity.ordinal,
                "origin": self.identity.origin, "attempt": self.attempt,
            },
            "folder": str(self.folder),
            "members": self.members or self.command.members,
            "enders": self.enders,
            "env": dict(variables),
            "stdin": self.command.stdin,
            "stdout": self.command.stdout or "stdout.log",
            "stderr": "stderr.log",
            "outputs": self.command.outputs,
            "timeout": self.seconds,
            "memory": self.request.memory_bytes,
            "grace": grace_seconds,
            "linger": linger_seconds,
            "sigpipe_ok": self.command.sigpipe_ok,
        }


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A command for status views. ``state`` is waiting (for its share of the budget), queued (in a scheduler's queue,
    under ``job_id``) or running."""

    task_id: str
    step: str
    command: str
    state: str
    cpus: float
    since_us: int
    pids: tuple[int, ...] = ()
    folder: Path | None = None
    memory_bytes: int | None = None
    job_id: str | None = None


class Slot(Protocol):
    """What a command holds while it is admitted: its share of the budget, its lease kept alive."""

    def run(self, job: Job) -> Record:
        """Run one try to its end and return how it ended, also if that was not by itself. Blocks.

        An executor that suspends records it and raises TaskSuspended.
        """


class Executor(Protocol):
    """Runs commands. ``name`` is what the ``jobs`` table says; ``suspends``: see the top of this file."""

    @property
    def name(self) -> str: ...
    @property
    def suspends(self) -> bool: ...

    @property
    def most(self) -> Most:
        """The most that one command can get."""

    def of(self, command: Command) -> Executor:
        """Return the executor that runs ``command``: this one, or the local one where the command asks for it."""

    def admit(
        self, claim: Leaseholder, command: Command, request: Request, step: str
    ) -> AbstractContextManager[Slot]:
        """Wait until the command may start, keeping the lease alive; the share is given back at the end.

        Raises BudgetError at once if it never could, LeaseLost and TaskReleased.
        """

    def running(self) -> Sequence[RunningCommand]:
        """Return what is waiting and running now."""

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """Admit nothing more and end what runs on this machine. Does not wait; a second call may make it sooner."""

    def stop_jobs(self) -> None:
        """After a second signal: cancel what is in a scheduler, if the run was asked to do so then. Does not wait."""
