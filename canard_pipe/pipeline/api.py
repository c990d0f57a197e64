"""The engine by itself, as a program uses it: open, serve or connect to a database, and work on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from canard_pipe.engine import arguments, worker
from canard_pipe.engine.attempt import Handler
from canard_pipe.engine.claim import Claim, Grant
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.database import Database
from canard_pipe.engine.remote import RemoteDatabase
from canard_pipe.engine.tasks import Tasks
from canard_pipe.errors import CloseError, ConnectionClosed
from canard_pipe.execution.command import Command
from canard_pipe.execution.context import contexts
from canard_pipe.execution.executor import Leaseholder, RunningCommand, Slot
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget, Most, Request, machine_cpus, machine_memory, parse_memory

MARGIN_SECONDS = 12.0  # a command gets 10 s between TERM and KILL


class CommandDatabase(Database):
    """A database whose claims run commands: what :func:`open` and :func:`serve` return.

    Its executor starts with the first command.
    """

    def __init__(self, path: Path | None, *, root: Path, executor: LazyExecutor, work: Path, **options: Any) -> None:
        self._executor = executor
        super().__init__(path, root=root, claim_type=contexts(executor, work), **options)
        if self.ownership is not None:
            ownership = self.ownership
            executor.keep_open = lambda: [ownership.lock_fd]

    def close(self) -> None:
        """End every command, then close as a Database does (F4)."""
        _close_all(self._executor.close, super().close)


class RemoteCommandDatabase(RemoteDatabase):
    """A connection to a served database, whose claims run commands on this machine: what :func:`connect` returns."""

    def __init__(self, uri: str, token: str, *, executor: LazyExecutor, work: Path | None, **options: Any) -> None:
        self._executor = executor

        def context(tasks: Tasks, grant: Grant) -> Claim:
            return contexts(executor, tasks.root / "work" if work is None else work)(tasks, grant)

        super().__init__(uri, token, claim_type=context, **options)

    def close(self) -> None:
        """End every command, then disconnect (F4)."""
        _close_all(self._executor.close, super().close)


class LazyExecutor:
    """A local executor that is started by its first command. ``keep_open`` is as in LocalExecutor."""

    name, suspends = LocalExecutor.name, LocalExecutor.suspends

    def __init__(self, budget: Budget, clock: Clock | None = None, *, margin_seconds: float = 0.0) -> None:
        self.budget = budget
        self._clock, self._margin_seconds = clock, margin_seconds
        self._lock = threading.Lock()
        self._started: LocalExecutor | None = None
        self._closed = False
        self.keep_open: Callable[[], Sequence[int]] = tuple

    def of(self, command: Command) -> LazyExecutor:  # noqa: ARG002 - everything
        """See Executor."""
        return self

    def admit(self, claim: Leaseholder, command: Command, request: Request, step: str) -> AbstractContextManager[Slot]:
        """See Executor. Raises ConnectionClosed after :meth:`close`."""
        with self._lock:
            if self._closed:
                raise ConnectionClosed("the database is closed: no command can start")
            if self._started is None:
                executor = LocalExecutor(
                    self.budget, clock=self._clock, keep_open=lambda: self.keep_open(),
                    margin_seconds=self._margin_seconds,
                )
                self._started = executor.__enter__()
            started = self._started
        return started.admit(claim, command, request, step)

    @property
    def most(self) -> Most:
        """See Executor."""
        return Most(self.budget.whole.memory_bytes)

    def running(self) -> Sequence[RunningCommand]:
        """Return what is waiting and running now."""
        return self._started.running() if self._started is not None else ()

    def stop_jobs(self) -> None:
        """See Executor: there is no scheduler."""

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """End every command and admit none."""
        if self._started is not None:
            self._started.stop_all(grace_seconds)

    def close(self) -> None:
        """End every command; a second call does nothing."""
        with self._lock:
            self._closed = True
            started, self._started = self._started, None
        if started is not None:
            started.close()


def open(
    path: str | Path = ":memory:",
    *,
    work: str | Path | None = None,
    cpus: float | None = None,
    memory: str | int | None = None,
    limits: Mapping[str, int] | None = None,
    clock: Clock | None = None,
    wait_seconds: float = 5.0,
    types: Iterable[type] = (),
    conflict_retries: int = 8,
) -> CommandDatabase:
    """Open or create a database of durable tasks and return it; use it as a context manager (F1).

    ``path`` is a file, or ``:memory:``. Commands of handlers run in folders below ``work``: by default the folder
    ``work`` beside the file, or in the present folder. ``cpus`` and ``memory`` ("8G") bound what runs at once; by
    default what the machine has. ``limits`` are named ones, such as ``{"ftp": 2}``. Waits at most ``wait_seconds`` for
    another owner of the file.
    ``types`` are dataclasses and pydantic models whose instances can be inputs, results and values of steps.
    What loses against another transaction is repeated ``conflict_retries`` times, never code of a handler (G7).
    Raises InputError, StateHeld, SchemaError, StorageError.
    """
    arguments.whole("conflict_retries", conflict_retries, 0, 1000)
    in_memory = os.fspath(path) == ":memory:"
    file = None if in_memory else _absolute(path)
    root = Path.cwd() if file is None else file.parent
    clock = clock or SystemClock()
    executor = LazyExecutor(_budget(cpus, memory, limits, clock), clock)
    return CommandDatabase(
        file,
        root=root,
        executor=executor,
        work=root / "work" if work is None else _absolute(work),
        clock=clock,
        wait_seconds=wait_seconds,
        types=types,
        conflict_retries=conflict_retries,
    )


def serve(
    path: str | Path, uri: str | None = None, token: str | None = None, *, wait_seconds: float = 5.0,
    sweep_seconds: float = 0.5, types: Iterable[type] = (),
) -> CommandDatabase:
    """Open or create a database and let other processes work on it; use it as a context manager (F2).

    They :func:`connect` to its ``uri`` with its ``token``: by default a free port of this machine and a random token,
    which are also in ``owner.json`` beside the file (mode 0600). ``uri`` is ``quack:HOST:PORT``. The token grants any
    SQL, so it is as good as the file. No handler runs here; every ``sweep_seconds`` expired and waiting tasks are
    looked after. Raises as :func:`open`, and ExtensionError, StorageError if it cannot listen.
    """
    database = open(path, wait_seconds=wait_seconds, types=types)
    try:
        database.serve(uri, token)
        database.coordinator.start(poll_seconds=sweep_seconds)
    except BaseException:
        database.close()
        raise
    return database


def connect(
    uri: str, token: str, *, root: str | Path | None = None, work: str | Path | None = None, cpus: float | None = None,
    memory: str | int | None = None, limits: Mapping[str, int] | None = None, types: Iterable[type] = (),
    timeout_seconds: float = 30.0, tls: bool | str | Path | None = None,
) -> RemoteCommandDatabase:
    """Connect to a served database and return it; it is used like one of :func:`open` (F3).

    Commands of handlers run on this machine, within ``cpus``, ``memory`` and ``limits``, in folders below ``work``:
    by default ``work`` in the owner's folder, which must be there on this machine too. ``root`` is that folder's place
    here if it is another. ``timeout_seconds`` bounds each message. ``tls``: whether to speak HTTPS, as to a proxy
    before the owner; by default to other machines only. A path is a file of the certificates to be trusted then,
    instead of the system's.
    Raises StorageError (nobody listens, wrong token), SchemaError, ExtensionError.
    """
    clock = SystemClock()
    return RemoteCommandDatabase(
        uri, token, executor=LazyExecutor(_budget(cpus, memory, limits, clock), clock, margin_seconds=MARGIN_SECONDS),
        root=None if root is None else _absolute(root), work=None if work is None else _absolute(work), clock=clock,
        types=types, timeout_seconds=timeout_seconds, tls=tls,
    )


def _budget(
    cpus: float | None, memory: str | int | None, limits: Mapping[str, int] | None, clock: Clock
) -> Budget:
    memory_bytes = machine_memory() if memory is None else parse_memory(memory)
    return Budget(cpus or machine_cpus(), memory_bytes, limits, monotonic=clock.monotonic)


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - links are not followed


def _close_all(*steps: Callable[[], None]) -> None:
    problems: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:
            problems.append(error)
    if problems:
        raise CloseError("closing the database failed", problems)


def work(
    database: Tasks,
    handlers: Mapping[str, Handler],
    *,
    max_tasks: float = float("inf"),
    idle_timeout: float = float("inf"),
    **options: Any,
) -> int:
    """Take tasks from ``database`` and run ``handlers`` (name -> function of input and ctx); return how many (F18).

    Ends after ``max_tasks`` attempts, or when nothing was eligible for ``idle_timeout`` seconds: 0 drains what there
    is. Options are those of :class:`canard_pipe.engine.worker.Worker`: ``slots`` (1), ``lease_seconds`` (30),
    ``queue``, ``poll_seconds``, ``failure_delay``, ``retry`` (a RetryPolicy, or one for each name), ``on_result``.
    """
    return worker.work(database, handlers, max_tasks=max_tasks, idle_timeout=idle_timeout, **options)
