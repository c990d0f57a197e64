"""The engine by itself, as a program uses it: open a database whose handlers can run commands, and work on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from canard_pipe.engine import worker
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.database import Database
from canard_pipe.engine.worker import Handler
from canard_pipe.errors import CloseError, ConnectionClosed
from canard_pipe.execution.command import Command
from canard_pipe.execution.context import contexts
from canard_pipe.execution.executor import Leaseholder, RunningCommand, Slot
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget, Most, Request, machine_cpus, machine_memory, parse_memory


class CommandDatabase(Database):
    """A database whose claims run commands: what :func:`open` returns. Its executor starts with the first command."""

    def __init__(self, path: Path | None, *, root: Path, executor: LazyExecutor, work: Path, **options: Any) -> None:
        self._executor = executor
        super().__init__(path, root=root, claim_type=contexts(executor, work), **options)
        if self.ownership is not None:
            ownership = self.ownership
            executor.keep_open = lambda: [ownership.lock_fd]

    def close(self) -> None:
        """End every command, then close as a Database does (F4)."""
        problems: list[Exception] = []
        for step in (self._executor.close, super().close):
            try:
                step()
            except Exception as error:
                problems.append(error)
        if problems:
            raise CloseError("closing the database failed", problems)


class LazyExecutor:
    """A local executor that is started by its first command. ``keep_open`` is as in LocalExecutor."""

    name, suspends = LocalExecutor.name, LocalExecutor.suspends

    def __init__(self, budget: Budget, clock: Clock | None = None) -> None:
        self.budget = budget
        self._clock = clock
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
                executor = LocalExecutor(self.budget, clock=self._clock, keep_open=lambda: self.keep_open())
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
) -> CommandDatabase:
    """Open or create a database of durable tasks and return it; use it as a context manager (F1).

    ``path`` is a file, or ``:memory:``. Commands of handlers run in folders below ``work``: by default the folder
    ``work`` beside the file, or in the present folder. ``cpus`` and ``memory`` ("8G") bound what runs at once; by
    default what the machine has. ``limits`` are named ones, such as ``{"ftp": 2}``. Waits at most ``wait_seconds`` for
    another owner of the file.
    ``types`` are dataclasses and pydantic models whose instances can be inputs, results and values of steps.
    Raises StateHeld, SchemaError, StorageError.
    """
    in_memory = os.fspath(path) == ":memory:"
    file = None if in_memory else Path(os.path.abspath(path))  # noqa: PTH100 - links are not followed
    root = Path.cwd() if file is None else file.parent
    clock = clock or SystemClock()
    memory_bytes = machine_memory() if memory is None else parse_memory(memory)
    budget = Budget(cpus or machine_cpus(), memory_bytes, limits, monotonic=clock.monotonic)
    executor = LazyExecutor(budget, clock)
    return CommandDatabase(
        file,
        root=root,
        executor=executor,
        work=root / "work" if work is None else Path(os.path.abspath(work)),  # noqa: PTH100 - links are not followed
        clock=clock,
        wait_seconds=wait_seconds,
        types=types,
    )


def work(
    database: Database,
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
