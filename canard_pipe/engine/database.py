"""The open database: the process that owns the file does here what :class:`Tasks` leaves to the owner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from canard_pipe.engine import (
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
from canard_pipe.engine.claim import Claim, Grant
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.clock_guard import ClockGuard, Gap
from canard_pipe.engine.coordinator import Coordinator
from canard_pipe.engine.ownership import Ownership
from canard_pipe.engine.reading_ahead import Ahead
from canard_pipe.engine.registered import Adapted
from canard_pipe.engine.runtime import Runtime, runtime
from canard_pipe.engine.service import Offer, Service, closed_answer
from canard_pipe.engine.store import Intercept, Rows, Store, straight
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.writer import Row, Write, Writer
from canard_pipe.errors import CloseError


class Database(Tasks):
    """Durable tasks in one DuckDB file, owned by this process (G26). Use it as a context manager.

    Opening creates the schema or checks it (F1), takes the ownership lock beside the file, and hands back what a
    dead owner's attempts had claimed: they cost nothing. Starts no thread and downloads nothing (G19).
    """

    writer: Writer

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
        super().__init__(root=root, clock=clock or SystemClock(), claim_type=claim_type, types=types)
        self.ownership: Ownership | None = None
        self.shifted_us = 0  # by how much all deadlines have been moved since this was opened
        self._guard, self._pulse_seconds = ClockGuard(self.clock), pulse_seconds
        self._closed = False
        self._server: quack.Server | None = None
        self._service: Service | None = None
        self._farewell = False
        self._ahead = Ahead()  # one for all workers, here and elsewhere: none finds what another has taken
        self._asked_on: Any = None  # the connection by which DuckDB knows our function: it lives as long as this
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
                    moved=self._deadlines_moved, grant=self._grant,
                )
                self.interrupted = recovery.hand_back(self, supervised()) if beside is None else 0
            except BaseException:
                self.store.close()
                raise
        except BaseException:  # a failed open leaves nothing open (F1)
            if self.ownership is not None:
                self.ownership.release()
            raise

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

    def serve(
        self, uri: str | None = None, token: str | None = None, *, offer: Offer | None = None,
        noticed: Callable[[], None] = lambda: None, farewell: bool = False,
    ) -> str:
        """Listen for other processes and say so in owner.json; return the address.

        On this machine only, at a free port and with a random token, unless ``uri`` (``quack:HOST:PORT``) and
        ``token`` say otherwise. Whoever has the token may execute any SQL here. ``offer`` says what may be claimed from
        elsewhere, all by default; ``noticed`` is called when somebody elsewhere has changed a task.
        With ``farewell`` the end of serving waits a moment, so that idle workers hear that this owner ends in order.

        Raises ExtensionError where Quack cannot be loaded, StorageError where it cannot listen.
        """
        if self._server is None:
            token = token or quack.new_token()
            # A connection of its own: one holds a single result, and another thread's would be taken for a writer's.
            connection = self.store.connection.cursor()
            quack.load_extensions(connection)
            self._service, self._farewell = Service(self, offer=offer, noticed=noticed), farewell
            if self._asked_on is None:
                quack.let_ask(connection, self._answer)
                self._asked_on = connection
            self._server = quack.serve(connection, token, uri=uri)
            if self.ownership is not None:
                self.ownership.publish(self._server.uri, token)
        return self._server.uri

    @property
    def uri(self) -> str | None:
        """Where this listens, None where it does not."""
        return None if self._server is None else self._server.uri

    @property
    def token(self) -> str | None:
        """What others need to be answered; whoever has it may execute any SQL. None where this does not listen."""
        return None if self._server is None else self._server.token

    def _answer(self, text: str) -> str:
        service = self._service
        return closed_answer() if service is None else service.answer(text)

    def stop_serving(self) -> None:
        """Stop listening (S40); does nothing if it does not listen."""
        server, self._server = self._server, None
        service = self._service
        try:
            if server is not None and self.ownership is not None:
                self.ownership.withdraw()
            if service is not None and self._farewell:
                service.say_farewell()
        finally:
            self._service = None  # what is asked from now on is refused
            if server is not None:
                server.stop()
            if service is not None:
                service.drain()

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

    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read; it sees what is committed."""
        return self.store.query(name, **params)

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute a named statement with ``rows`` in a transaction of its own, as the owner, under no claim."""
        self.writer.transact(lambda: self.store.run(statement, rows=rows, now_us=self.clock.now_us()))

    # -- what Tasks leaves to the owner -------------------------------------------------------------------------

    def reap(self, queue: str | None = None, *, limit: int = 64) -> int:
        """See Tasks."""
        self.mind_the_clock()
        if not self.query("exhausted_tasks", queue=queue, most=limit, now_us=self.clock.now_us()):
            return 0  # mostly so: a look costs less than a transaction
        expired = self.writer.transact(lambda: transitions.expire(self.store, self.clock, queue, limit))
        for row in expired:
            self.tell_lost(row[0])
        return len(expired)

    def wake(self) -> int:
        """See Tasks."""
        self.mind_the_clock()
        if not self.query("wakeable_tasks", now_us=self.clock.now_us()):
            return 0
        return len(self.writer.transact(lambda: transitions.wake(self.store, self.clock)))

    def sweep(self, queue: str, limit: int) -> None:
        """See Tasks."""
        self.writer.flush_if_due()
        self.wake()
        self.reap(queue, limit=limit)

    def retain(
        self, *, older_than_seconds: float, keep: int = 0, queue: str | None = None, limit: int = 10_000
    ) -> int:
        """See Tasks."""
        retention.check(older_than_seconds, keep, queue, limit)
        return int(self.writer.transact(
            lambda: retention.remove(self.store, self.clock, older_than_seconds, keep, queue, limit)
        ))

    def look(self, asked: waiting.Asked) -> waiting.Found:
        """See Tasks."""
        return waiting.look(self.store, asked)

    def read_task(self, id: str) -> looking.StoredTask | None:
        """See Tasks."""
        return looking.read_task(self.store, id)

    def spawn_rows(self, rows: Sequence[Row]) -> None:
        """See Tasks."""
        self.writer.transact(lambda: spawning.insert(self.store, self.clock, rows))

    def emit_text(self, name: str, text: str) -> bool:
        """See Tasks."""
        return bool(self.writer.transact(lambda: waiting.insert_event(self.store, self.clock, name, text)))

    def grab(self, request: claiming.Request, register: Callable[[list[Grant]], list[Claim]]) -> list[Claim]:
        """See Tasks."""
        if request.reap_limit:
            self.reap(request.queue, limit=request.reap_limit)
        ahead = self._ahead if request.ahead else Ahead()

        def act() -> list[Claim]:
            # Registered before the commit: whoever cancels one of them after it finds the claim to tell.
            return register(claiming.grab(self.store, self.clock, request, ahead, self.writer.order))

        return list(self.writer.transact(act, in_order=request.ahead))

    def _grant(self, writes: Sequence[Write]) -> None:
        wishes: dict[claiming.Request, list[Write]] = {}
        for write in writes:
            wishes.setdefault(write.wish, []).append(write)
        for request, wishing in wishes.items():
            claims = self._register(claiming.grab_at_hand(
                self.store, self.clock, request, len(wishing), self._ahead, self.writer.order
            ))
            for write, claim in zip(wishing, claims, strict=False):
                write.granted = claim

    def cancel_tasks(self, ids: Collection[str]) -> list[tuple[int, str]]:
        """See Tasks."""
        cancelled = self.writer.transact(lambda: transitions.cancel(self.store, self.clock, ids))
        return [(row[0], row[2]) for row in cancelled]

    def _deadlines_moved(self, gap: Gap) -> None:
        self.shifted_us += gap.shift_us
        self._claims.shift(gap.shift_us)
