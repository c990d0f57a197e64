"""Run commands on this machine: the launcher, the budget, and the thread that watches over both."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.errors import LeaseLost, TaskReleased
from canard_pipe.execution import environment, record
from canard_pipe.execution.channel import Guard, LauncherProcess, end_processes_of_run, run_enders
from canard_pipe.execution.command import Command
from canard_pipe.execution.executor import Job, Leaseholder, RunningCommand
from canard_pipe.execution.heartbeats import Heartbeats, Renew, renew_in_their_databases
from canard_pipe.execution.record import Record
from canard_pipe.execution.resources import Budget, Most, Request, Ticket

log = logging.getLogger(__name__)
LOST, STOP = "lost", "stop"
TICK_SECONDS = 0.1
PATIENCE_SECONDS = 40.0  # for a launcher told to quit; it gives up processes that do not die after 30


@dataclass(slots=True, eq=False)
class _Admitted:
    """One command from the moment it queues. ``reason`` says why it was ended from outside."""

    executor: LocalExecutor
    claim: Leaseholder
    command: Command
    request: Request
    step: str
    since_us: int
    ticket: Ticket | None = None
    reason: str | None = None
    job: Job | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    outcome: Record | None = None
    pids: tuple[int, ...] = ()
    memory_bytes: int | None = None

    def run(self, job: Job) -> Record:
        return self.executor._run(self, job)

    def raise_reason(self) -> None:
        """Raise what the handler is to get if the command was ended from outside."""
        if self.reason == STOP:
            raise TaskReleased(self.claim.id)
        if self.reason == LOST:
            raise LeaseLost(self.claim.id, self.claim.attempt, operation="its command")


class LocalExecutor:
    """Runs commands in processes of this machine, as many at once as the budget allows. A context manager.

    One launcher process starts and ends them (see launcher.py); if it dies, its commands are ended, those of
    this run go on with another. ``renew`` is called with all claims that wait or run, each time the earliest
    renewal is due. ``keep_open`` gives the descriptors the launcher has to hold: the owner's lock.
    ``grace_seconds`` lie between TERM and KILL, ``linger_seconds`` are left to processes that a command leaves
    behind in its own session. ``margin_seconds`` before the end of a lease that cannot be renewed its command is ended:
    where another machine may take the task then. ``enforce_memory``: the kernel limits the memory of commands where it
    lets us (see groups.py); else it is watched. All methods may be called from any thread.
    """

    name = "local"
    suspends = False

    def __init__(
        self,
        budget: Budget,
        *,
        renew: Renew = renew_in_their_databases,
        clock: Clock | None = None,
        grace_seconds: float = 10.0,
        linger_seconds: float = 2.0,
        keep_open: Callable[[], Sequence[int]] = tuple,
        margin_seconds: float = 0.0,
        enforce_memory: bool = True,
    ) -> None:
        self.budget = budget
        self.run_token = secrets.token_hex(16)
        self.grace_seconds, self.linger_seconds = grace_seconds, linger_seconds
        self.enforce_memory = enforce_memory
        self._clock = clock or SystemClock()
        self._keep_open = keep_open
        self._heartbeats = Heartbeats(renew, self._clock.monotonic, margin_seconds)
        self._lock = threading.RLock()
        self._starting = threading.Lock()  # taken first: nothing starts while a dead one's rest is ended
        self._admitted: set[_Admitted] = set()
        self._launcher: LauncherProcess | None = None
        self._guard: Guard | None = None
        self._stopping = self._closing = False
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def __enter__(self) -> LocalExecutor:
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        with contextlib.suppress(OSError):  # a system without a shell: then the next run ends what is left
            self._guard = Guard(self.run_token)
        with self._lock:
            self._start_launcher()  # it gets ready while the first claims are made
        self._heartbeats.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every command, the launcher and the threads. A second call does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self.stop_all()  # under the lock: no command may start a launcher that nobody watches any more
            launcher = self._launcher
        if launcher is not None:
            launcher.send({"op": "quit", "grace": self.grace_seconds})
        self._wake()
        self._thread.join(self.grace_seconds + PATIENCE_SECONDS)
        if launcher is not None and self._thread.is_alive():  # it is stuck
            launcher.kill()
            self._thread.join()
            end_processes_of_run(self.run_token)
        if self._guard is not None:
            self._guard.dismiss()
        self._heartbeats.close()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def of(self, command: Command) -> LocalExecutor:  # noqa: ARG002 - everything
        """See :class:`Executor`."""
        return self

    @contextmanager
    def admit(
        self, claim: Leaseholder, command: Command, request: Request, step: str
    ) -> Iterator[_Admitted]:
        """See :class:`Executor`. A claim that is lost, and the end of the run, end the waiting too."""
        self.budget.check(request)
        admitted = _Admitted(self, claim, command, request, step, self._clock.now_us())
        with self._heartbeats.keeping(claim, command.heartbeat_seconds):
            with self._lock:
                if self._stopping:
                    raise TaskReleased(claim.id)
                admitted.ticket = self.budget.ask(request)
                self._admitted.add(admitted)
            self._wake()
            try:
                admitted.ticket.wait()
                admitted.raise_reason()
                claim.check()  # G30: the last look before anything is made or started
                yield admitted
            finally:
                admitted.ticket.release()
                with self._lock:
                    self._admitted.discard(admitted)

    @property
    def most(self) -> Most:
        """See :class:`Executor`."""
        return Most(self.budget.whole.memory_bytes)

    def stop_jobs(self) -> None:
        """See Executor: there is no scheduler."""

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """End all commands and admit none: waiting and running handlers get TaskReleased. Does not wait.

        A second call with less grace makes it sooner.
        """
        with self._lock:
            self._stopping = True
            for admitted in self._admitted:
                self._end(admitted, STOP, grace_seconds)

    def running(self) -> list[RunningCommand]:
        """Return what waits and runs now, the oldest first."""
        with self._lock:
            return sorted((self._shown(admitted) for admitted in self._admitted), key=lambda one: one.since_us)

    # -- one try ------------------------------------------------------------------------------------------------

    def _run(self, admitted: _Admitted, job: Job) -> Record:
        variables = environment.of_try(job.environment, job.folder, token=job.token, run_token=self.run_token)
        message = job.start_message(variables, self.grace_seconds, self.linger_seconds)
        message["enforce"] = self.enforce_memory
        with self._starting, self._lock:
            admitted.raise_reason()
            admitted.ended.clear()
            admitted.outcome, admitted.job, admitted.since_us = None, job, self._clock.now_us()
            (self._launcher or self._start_launcher()).send(message)
        try:
            admitted.ended.wait()
        except BaseException:  # an interrupt in the handler's thread: nothing may outlive it
            with self._lock:
                self._end(admitted, STOP)
            admitted.ended.wait()
            raise
        return self._outcome_of(admitted)

    def _outcome_of(self, admitted: _Admitted) -> Record:
        with self._lock:
            admitted.job, admitted.pids, admitted.memory_bytes = None, (), None
            if admitted.outcome is None:
                raise TaskReleased(admitted.claim.id)
            return admitted.outcome

    def _end(self, admitted: _Admitted, reason: str, grace_seconds: float | None = None) -> None:
        """End a command that waits or runs. Call with the lock held."""
        again = admitted.reason is not None
        if again and grace_seconds is None:
            return
        admitted.reason = admitted.reason or reason
        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        if admitted.ticket is not None:
            admitted.ticket.withdraw()
        if admitted.job is not None and self._launcher is not None:
            self._launcher.send({"op": "stop", "token": admitted.job.token, "reason": reason, "grace": grace})

    def _shown(self, admitted: _Admitted) -> RunningCommand:
        job = admitted.job
        return RunningCommand(
            admitted.claim.id, admitted.step, admitted.command.text(), "running" if job else "waiting",
            admitted.request.cpus, admitted.since_us, admitted.pids,
            job.folder if job else None, admitted.memory_bytes,
        )

    # -- the supervisor's thread --------------------------------------------------------------------------------

    def _start_launcher(self) -> LauncherProcess:
        guard = () if self._guard is None else (self._guard.writing,)
        self._launcher = LauncherProcess((*self._keep_open(), *guard))
        self._selector.register(self._launcher, selectors.EVENT_READ)
        self._wake()
        return self._launcher

    def _wake(self) -> None:
        os.write(self._wake_write, b"x")

    def _supervise(self) -> None:
        while True:
            with self._lock:
                busy = bool(self._admitted)
                if self._closing and self._launcher is None:
                    return
            for key, _ in self._selector.select(TICK_SECONDS if busy else None):
                if key.fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                elif isinstance(key.fileobj, LauncherProcess):
                    events = key.fileobj.events()
                    if events is None:
                        self._launcher_is_gone(key.fileobj)
                    else:
                        self._take(events)
            self._end_the_lost()

    def _take(self, events: list[dict[str, Any]]) -> None:
        with self._lock:
            by_token = {admitted.job.token: admitted for admitted in self._admitted if admitted.job}
            for event in events:
                admitted = by_token.get(event.get("token", ""))
                if event["event"] == "memory":
                    for token, memory_bytes in event["bytes"].items():
                        if token in by_token:
                            by_token[token].memory_bytes = memory_bytes
                elif admitted is not None and event["event"] == "started":
                    admitted.pids = tuple(event["pids"])
                elif admitted is not None and event["event"] == "ended":
                    if event["not_written"]:
                        log.warning("the record of a command could not be written: %s", event["not_written"])
                    admitted.outcome = record.parse(event["record"])
                    admitted.ended.set()

    def _end_the_lost(self) -> None:
        overdue = self._heartbeats.overdue()
        with self._lock:
            for admitted in self._admitted:
                if admitted.claim.lost.is_set() or admitted.claim in overdue:
                    self._end(admitted, LOST)

    def _launcher_is_gone(self, launcher: LauncherProcess) -> None:
        """It was told to quit, or it died: then its commands are ended, and their handlers told."""
        with self._starting:
            with self._lock:
                self._selector.unregister(launcher)
                self._launcher = None
                orphaned = [  # one whose end was told is its handler's, which takes its job away at any moment
                    (admitted, admitted.job) for admitted in self._admitted
                    if admitted.job is not None and not admitted.ended.is_set()
                ]  # fmt: skip
            launcher.close(1.0)
            complaints = launcher.complaints()
            if self._closing and not orphaned:
                return
            count = end_processes_of_run(self.run_token)
            for _, job in orphaned:
                run_enders(job.enders, job.environment)
        log.error("the launcher died; %d processes of its commands were ended. %s", count, complaints)
        for admitted, job in orphaned:
            found = record.read(job.folder, job.identity)
            if found is None or found.token != job.token:
                found = Record(job.identity, job.token, job.digest, "interrupted", None, None)
            admitted.outcome = found
            admitted.ended.set()
