"""The open database: spawning, claiming, looking at and cancelling tasks."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from canard_pipe.engine import (
    arguments,
    claiming,
    looking,
    quack,
    recovery,
    retention,
    schema,
    spawning,
    transitions,
    waiting,
)
from canard_pipe.engine.backup import backup
from canard_pipe.engine.claim import Claim, Grant, Saved
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.clock_guard import ClockGuard
from canard_pipe.engine.coordinator import Coordinator
from canard_pipe.engine.lease import Lease
from canard_pipe.engine.open_claims import OpenClaims
from canard_pipe.engine.owner_record import process_start
from canard_pipe.engine.ownership import Ownership
from canard_pipe.engine.reading_ahead import Ahead
from canard_pipe.engine.records import TaskRecord, TaskSummary
from canard_pipe.engine.registered import Adapted
from canard_pipe.engine.runtime import Runtime, runtime
from canard_pipe.engine.store import Intercept, Rows, Store, straight
from canard_pipe.engine.values import Codec
from canard_pipe.engine.writer import Row, Writer
from canard_pipe.errors import CloseError, LeaseLost


class Database:
    """Durable tasks in one DuckDB file, owned by this process (G26). Use it as a context manager.

    Opening creates the schema or checks it (F1), takes the ownership lock beside the file, and hands back what a
    dead owner's attempts had claimed: they cost nothing. Starts no thread and downloads nothing (G19).
    """

    def __init__(
        self,
        path: Path | None,
        *,
        root: Path,
        clock: Clock | None = None,
        claim_type: Callable[[Database, Grant], Claim] = Claim,
        intercept: Intercept = straight,
        lock: Path | None = None,
        wait_seconds: float = 5.0,
        conflict_retries: int = 8,
        pulse_seconds: float | None = 0.2,
        beside: Database | None = None,
        migrations: Sequence[schema.Migration] | None = None,
        types: Iterable[type | Adapted] = (),
        supervised: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Open ``path``, None for a database in memory; ``root`` is the launch folder.

        Waits ``wait_seconds`` at most for another owner. ``pulse_seconds``: how often a worker notes that this
        process runs, so that a time when it did not is noticed; None does not. ``beside``: a second handle on the
        file of another Database of this process, instead of ``path``. ``migrations`` replace those of this release;
        a file of an older schema is copied, then migrated (L4). ``supervised`` is asked, once the file is ours, for the
        ids of tasks whose commands were at work when the last owner died (recovery.py).
        ``types``: dataclasses and pydantic models that can be stored.

        Raises StateHeld, SchemaError, StorageError.
        """
        self.clock = clock or SystemClock()
        self.codec = Codec(root, types)
        self.identity = f"{socket.gethostname()}:{os.getpid()}:{process_start(os.getpid()) or ''}"
        self.ownership: Ownership | None = None
        self._claim_type = claim_type
        self._claims = OpenClaims()
        self._guard, self._pulse_seconds = ClockGuard(self.clock), pulse_seconds
        self._closed = False
        self._server: quack.Server | None = None
        self.coordinator = Coordinator(self)
        if path is not None:
            self.ownership = Ownership.take(
                lock or path.with_name(f"{path.name}.lock"), wait_seconds=wait_seconds, clock=self.clock
            )
        try:
            guard = self.ownership.check if self.ownership else None
            shared = None if beside is None else beside.store
            self.store: Store = schema.open_store(
                lambda: Store(path, intercept=intercept, before_write=guard, beside=shared),
                self.clock.now_us(), migrations,
            )
            try:
                self.writer = Writer(
                    self.store, self.clock, conflict_retries=conflict_retries, guard=self._guard,
                    moved=self._claims.shift,
                )
                self.interrupted = recovery.hand_back(self, supervised()) if beside is None else 0
            except BaseException:
                self.store.close()
                raise
        except BaseException:  # a failed open leaves nothing open (F1)
            if self.ownership is not None:
                self.ownership.release()
            raise

    @property
    def root(self) -> Path:
        """The launch folder: stored paths below it are relative to it."""
        return self.codec.root

    @cached_property
    def origin(self) -> str:
        """What tells this database from any other: when its first schema was installed."""
        return str(self.query("database_origin")[0][0])

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, close the file and give up the ownership; a second call does nothing (F4).

        Every step is tried even if one fails; raises CloseError with all that failed.
        """
        if self._closed:
            return
        self._closed = True
        problems: list[Exception] = []
        release = [self.ownership.release] if self.ownership else []
        for step in (self.stop_serving, self.coordinator.close, self.writer.flush, self.store.close, *release):
            try:
                step()
            except Exception as error:
                problems.append(error)
        if problems:
            raise CloseError("closing the database failed", problems)

    def serve(self) -> str:
        """Listen on 127.0.0.1 for other processes of this user and say so in owner.json; return the address.

        Raises ExtensionError where Quack cannot be loaded, StorageError where it cannot listen.
        """
        if self._server is None:
            token = quack.new_token()
            # A connection of its own: one holds a single result, and another thread's would be taken for a writer's.
            connection = self.store.connection.cursor()
            quack.load_extensions(connection)
            self._server = quack.serve(connection, token)
            if self.ownership is not None:
                self.ownership.publish(self._server.uri, token)
        return self._server.uri

    def stop_serving(self) -> None:
        """Stop listening (S40); does nothing if it does not listen."""
        server, self._server = self._server, None
        if server is not None:
            if self.ownership is not None:
                self.ownership.withdraw()
            server.stop()

    def runtime(self) -> Runtime:
        """Return the versions of what executes the statements of this database (F5). Raises StorageError."""
        return runtime(self.store)

    def backup(self, path: str | Path) -> None:
        """Write what is committed now to the new file ``path``, which a Database can open; work goes on meanwhile.

        What is running keeps its lease in the copy. Raises InputError if ``path`` exists or its folder does not,
        StorageError.
        """
        backup(self.store, Path(path))

    def mind_the_clock(self) -> None:
        """If this process stood still or wall time was set: move all live leases by the gap, before anything else."""
        if self._guard.look() is not None:
            self.writer.mind_the_clock()

    def pulse(self) -> AbstractContextManager[None]:
        """Note within the block, every ``pulse_seconds``, that this process runs; a worker does so."""
        if self._pulse_seconds is None:
            return nullcontext()
        return self._guard.pulse(self._pulse_seconds, self.mind_the_clock)

    # -- spawning -----------------------------------------------------------------------------------------------

    def spawn(
        self, name: str, input: Any = None, *, id: str | None = None, queue: str = "default", priority: int = 0,
        max_failures: int = 3,
    ) -> str:
        """Make a task and return its id; a UUID if none is given. Idempotent by id, in any state (F6, S22).

        Raises SpawnConflict if the id belongs to a task that differs in queue, name, input (types and the order of
        keys count), priority or max_failures.
        """
        (found,) = self.spawn_many(
            name, [input], ids=None if id is None else [id], queue=queue, priority=priority, max_failures=max_failures
        )
        return found

    def spawn_many(
        self, name: str, inputs: Sequence[Any], *, ids: Sequence[str] | None = None, queue: str = "default",
        priority: int = 0, max_failures: int = 3,
    ) -> list[str]:
        """Make one task per input in one transaction and return their ids; the rules are those of :meth:`spawn`."""
        rows = spawning.rows(
            self.codec, name, inputs, ids=ids, queue=queue, priority=priority, max_failures=max_failures
        )
        if rows:
            spawning.spawn(self, rows)
        return [row["id"] for row in rows]

    def emit(self, name: str, value: Any = None) -> bool:
        """Emit an event: the first value stands for good, and this tells whether it was the first (L1).

        Tasks that wait for it wake at the next poll of a worker or of the coordinator. May be repeated after a
        StorageError, but then False can mean the caller's own first value.
        """
        return waiting.emit(self, name, self.codec.encode(value))

    # -- claiming -----------------------------------------------------------------------------------------------

    def claim(
        self, queue: str = "default", *, worker: str = "worker", lease_seconds: float = 30.0,
        names: Collection[str] | None = None, reap_limit: int = 64,
    ) -> Claim | None:
        """Sweep, then claim the first eligible task, or return None (F7)."""
        claims = self.claim_many(
            1, queue=queue, worker=worker, lease_seconds=lease_seconds, names=names, reap_limit=reap_limit
        )
        return claims[0] if claims else None

    def claim_many(
        self, limit: int, *, queue: str = "default", worker: str = "worker", lease_seconds: float = 30.0,
        names: Collection[str] | None = None, ids: Collection[str] | None = None, reap_limit: int = 64,
        ahead: Ahead | None = None,
    ) -> list[Claim]:
        """Claim at most ``limit`` tasks at once, by priority, then time (S7); only of ``names`` where given (S8),
        and only those of ``ids`` where given. ``reap_limit`` 0 does not sweep first. ``ahead`` holds what a worker
        has read ahead."""
        arguments.text("worker", worker, 128)
        arguments.whole("reap_limit", reap_limit, 0, 2**31 - 1)
        request = claiming.Request(limit, queue, f"{worker}@{self.identity}", lease_seconds, names, ids)
        request.check()
        if request.is_empty:
            return []
        if reap_limit:
            self.reap(queue, limit=reap_limit)

        known = Ahead() if ahead is None else ahead

        def act() -> list[Claim]:
            grants = claiming.grab(self.store, self.clock, request, known, self.writer.order)
            claims = [self._claim_type(self, grant) for grant in grants]
            # Before the commit: whoever cancels one of them after it finds the claim to tell.
            self._claims.add(claims)
            return claims

        return list(self.writer.transact(act, in_order=True))

    def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases of many claims at once; return those that are lost, with ``lost`` set on them.

        Raises StorageError if it is not known of some whether they were renewed; call again.
        """
        live = [claim for claim in claims if not claim.lost.is_set() and not claim.ended]
        writes = [claim.renewal() for claim in live]
        self.writer.write_all(writes)
        unknown: BaseException | None = None
        for claim, write in zip(live, writes, strict=True):
            if write.at_us is not None:
                claim.renewed(at_us=write.at_us)
            elif isinstance(write.error, LeaseLost):
                claim.lost.set()
            else:
                unknown = write.error
        if unknown is not None:
            raise unknown
        return [claim for claim in claims if claim.lost.is_set() or claim.ended]

    # -- looking ------------------------------------------------------------------------------------------------

    def inspect(self, id: str) -> TaskRecord | None:
        """Return a whole task with decoded values and checkpoints in saved order, or None if unknown (F8, G15).

        Raises RestoreError if one of its values cannot be read.
        """
        return looking.inspect(self.store, self.codec, id)

    def tasks(
        self, *, queue: str | None = None, state: str | Collection[str] | None = None, id: str | None = None,
        limit: int = 100,
    ) -> list[TaskSummary]:
        """List tasks without payload, the latest change first, then by id (F9). No state at all gives no rows."""
        return looking.tasks(self.store, queue=queue, state=state, id=id, limit=limit)

    def result(self, id: str) -> Any:
        """Return what a completed task returned (F10). Raises ResultUnavailable with the state otherwise (S37)."""
        return looking.result(self.store, self.codec, id)

    def wait(self, id: str, timeout_seconds: float | None = None, *, poll_seconds: float = 0.05) -> Any:
        """Wait until a task has come to its end and return its result (L22). It does not work on it.

        Raises ResultUnavailable with the state if the task failed or was cancelled, is unknown (at once), or has not
        ended within ``timeout_seconds``.
        """
        return looking.wait(self.store, self.codec, self.clock, id, timeout_seconds, poll_seconds)

    def queues(self) -> dict[str, dict[str, int]]:
        """Return how many tasks are in each state, by queue; every state is named, queues without tasks are not
        (L24)."""
        return looking.queues(self.store)

    def event(self, name: str, otherwise: Any = None) -> Any:
        """Return the value of an event, or ``otherwise`` if it was not emitted yet (L1)."""
        return waiting.event(self.store, self.codec, name, otherwise)

    def saved_checkpoints(self, seqs: Sequence[int]) -> dict[int, tuple[Saved, ...]]:
        """Return the saved checkpoints of tasks by their ``seq``, in saved order."""
        return claiming.saved_checkpoints(self.store.query, seqs)

    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read; it sees what is committed."""
        return self.store.query(name, **params)

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute a named statement with ``rows`` in a transaction of its own, as the owner, under no claim."""
        self.writer.transact(lambda: self.store.run(statement, rows=rows, now_us=self.clock.now_us()))

    # -- ending -------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """Cancel an unfinished task; False for a finished or unknown one (F14). Handlers here learn at once."""
        return bool(self.cancel_many([id]))

    def cancel_many(self, ids: Collection[str]) -> list[str]:
        """Cancel the unfinished tasks among ``ids`` in one transaction and return their ids."""
        arguments.texts("ids", ids, 256)
        cancelled = self.writer.transact(lambda: transitions.cancel(self.store, self.clock, ids))
        for row in cancelled:
            self.tell_lost(row[0])
        return [row[2] for row in cancelled]

    def reap(self, queue: str | None = None, *, limit: int = 64) -> int:
        """Fail tasks whose last lease has expired, oldest first, and return how many (S4, S6, G27)."""
        self.mind_the_clock()
        if not self.query("exhausted_tasks", queue=queue, most=limit, now_us=self.clock.now_us()):
            return 0  # mostly so: a look costs less than a transaction
        expired = self.writer.transact(lambda: transitions.expire(self.store, self.clock, queue, limit))
        for row in expired:
            self.tell_lost(row[0])
        return len(expired)

    def wake(self) -> int:
        """Make ready every suspended task whose waits are fulfilled or whose time has come; return how many."""
        self.mind_the_clock()
        if not self.query("wakeable_tasks", now_us=self.clock.now_us()):
            return 0
        return len(self.writer.transact(lambda: transitions.wake(self.store, self.clock)))

    def retain(
        self, *, older_than_seconds: float, keep: int = 0, queue: str | None = None, limit: int = 10_000
    ) -> int:
        """Remove finished tasks with their checkpoints, attempts and commands; return how many (L5).

        Those that ended more than ``older_than_seconds`` ago, the oldest first, ``limit`` at most in one
        transaction; the ``keep`` latest of each queue stay. Never an unfinished task, nor one that the plan of a
        pipeline or a published file names or an unfinished task waits for. A removed ID is free again (G25).
        """
        retention.check(older_than_seconds, keep, queue, limit)
        return int(self.writer.transact(
            lambda: retention.remove(self.store, self.clock, older_than_seconds, keep, queue, limit)
        ))

    def hand_back_all(self) -> None:
        """Release every claim of this process, as a worker does that stops; handlers learn at their next write."""
        for claim in self._claims.all():
            with suppress(LeaseLost):
                claim.release()

    def tell_lost(self, seq: int) -> None:
        """Tell the claim of this process on task ``seq``, if there is one, that its lease is gone."""
        self._claims.lose(seq)

    def forget(self, claim: Lease) -> None:
        """Drop an ended claim from those that are told of cancels."""
        self._claims.remove(claim)
