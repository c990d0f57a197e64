"""Durable tasks, wherever their file is open: spawning, claiming, looking at and cancelling them."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from canard_pipe.engine import arguments, claiming, looking, spawning, waiting
from canard_pipe.engine.claim import Claim, Grant, Saved
from canard_pipe.engine.clock import Clock
from canard_pipe.engine.lease import Lease
from canard_pipe.engine.open_claims import OpenClaims
from canard_pipe.engine.owner_record import process_start
from canard_pipe.engine.records import TaskRecord, TaskSummary
from canard_pipe.engine.registered import Adapted
from canard_pipe.engine.runtime import Runtime
from canard_pipe.engine.store import Rows
from canard_pipe.engine.values import Codec
from canard_pipe.engine.writer import Row, Write
from canard_pipe.errors import LeaseLost, StorageError


class Writes(Protocol):
    """What claims write through; see :class:`canard_pipe.engine.writer.Writer`."""

    def write(self, write: Write) -> None: ...

    def write_all(self, writes: Sequence[Write]) -> None: ...

    def ride(self, statement: str, row: Row) -> None: ...


class Tasks(ABC):
    """What a program does with durable tasks. Use it as a context manager.

    Values become text, and text values, in the process that uses them, and its claims live there. What is done to
    the file is left to a few methods: :class:`~canard_pipe.engine.database.Database`, its owner, does them, and
    :class:`~canard_pipe.engine.remote.RemoteDatabase` asks the owner to.
    """

    writer: Writes

    def __init__(
        self, *, root: Path, clock: Clock, claim_type: Callable[[Any, Grant], Claim], types: Iterable[type | Adapted]
    ) -> None:
        self.clock = clock
        self.codec = Codec(root, types)
        self.identity = f"{socket.gethostname()}:{os.getpid()}:{process_start(os.getpid()) or ''}"
        self._claim_type = claim_type
        self._claims = OpenClaims()
        self._renewals_fail = False

    @property
    def root(self) -> Path:
        """The launch folder: stored paths below it are relative to it."""
        return self.codec.root

    @cached_property
    def origin(self) -> str:
        """What tells this database from any other: when its first schema was installed."""
        return str(self.query("database_origin")[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the owner of the file does ------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Give up what is held; a second call does nothing (F4, S40)."""

    @abstractmethod
    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read; it sees what is committed."""

    @abstractmethod
    def runtime(self) -> Runtime:
        """Return the versions of what executes the statements of this database (F5). Raises StorageError."""

    @abstractmethod
    def reap(self, queue: str | None = None, *, limit: int = 64) -> int:
        """Fail tasks whose last lease has expired, oldest first, and return how many (S4, S6, G27)."""

    @abstractmethod
    def wake(self) -> int:
        """Make ready every suspended task whose waits are fulfilled or whose time has come; return how many."""

    @abstractmethod
    def sweep(self, queue: str, limit: int) -> None:
        """Wake and reap before the next claim, which a worker asks for at once."""

    @abstractmethod
    def retain(
        self, *, older_than_seconds: float, keep: int = 0, queue: str | None = None, limit: int = 10_000
    ) -> int:
        """Remove finished tasks with their checkpoints, attempts and commands; return how many (L5).

        Those that ended more than ``older_than_seconds`` ago, the oldest first, ``limit`` at most in one
        transaction; the ``keep`` latest of each queue stay. Never an unfinished task, nor one that the plan of a
        pipeline or a published file names or an unfinished task waits for. A removed ID is free again (G25).
        """

    @abstractmethod
    def look(self, asked: waiting.Asked) -> waiting.Found:
        """Return what is there of what a task waits for, as of one moment."""

    @abstractmethod
    def read_task(self, id: str) -> looking.StoredTask | None:
        """Return a task's row and checkpoints of one moment, not yet as values; None if it is unknown."""

    @abstractmethod
    def spawn_rows(self, rows: Sequence[Row]) -> None:
        """Insert the tasks that are not there yet, in one transaction. Raises SpawnConflict."""

    @abstractmethod
    def emit_text(self, name: str, text: str) -> bool:
        """Emit an event with a value as stored; False if one stands already."""

    @abstractmethod
    def grab(self, request: claiming.Request, register: Callable[[list[Grant]], list[Claim]]) -> list[Claim]:
        """Claim what is asked for; ``register`` makes the claims, and may be called again after a conflict."""

    @abstractmethod
    def cancel_tasks(self, ids: Collection[str]) -> list[tuple[int, str]]:
        """Cancel the unfinished tasks among ``ids`` and their items at once; return ``seq`` and id of each."""

    def disown(self) -> int:
        """Give back what is claimed for this process and nobody here works on, after answers were lost."""
        return 0

    def mind_the_clock(self) -> None:  # noqa: B027 - the owner minds its own
        """If the owner's process stood still or wall time was set: move all live leases by the gap, before all else."""

    def pulse(self) -> AbstractContextManager[None]:
        """Note within the block that this process runs, as far as the leases depend on that; a worker does so."""
        return nullcontext()

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
        ahead: bool = False,
    ) -> list[Claim]:
        """Claim at most ``limit`` tasks at once, by priority, then time (S7); only of ``names`` where given (S8),
        and only those of ``ids`` where given. ``reap_limit`` 0 does not sweep first. ``ahead`` lets it take what was
        read for an earlier claim."""
        request = self.request(limit, queue=queue, worker=worker, lease_seconds=lease_seconds, names=names, ids=ids,
                               reap_limit=reap_limit, ahead=ahead)
        return self.grab_for(request)

    def grab_for(self, request: claiming.Request) -> list[Claim]:
        """Claim what :meth:`request` has made."""
        return [] if request.is_empty else self.grab(request, self._register)

    def request(self, limit: int, *, queue: str, worker: str, **options: Any) -> claiming.Request:
        """Return what :meth:`claim_many` asks for. Raises InputError."""
        arguments.text("worker", worker, 128)
        request = claiming.Request(limit, queue, f"{worker}@{self.identity}", **options)
        request.check()
        return request

    def _register(self, grants: list[Grant]) -> list[Claim]:
        claims = [self._claim_type(self, grant) for grant in grants]
        self._claims.add(claims)
        return claims

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
        self._renewals_fail = unknown is not None
        if unknown is not None:
            raise unknown
        return [claim for claim in claims if claim.lost.is_set() or claim.ended]

    @property
    def renewals_fail(self) -> bool:
        """Whether the last renewal of leases here has failed."""
        return self._renewals_fail

    def can_renew(self, *, or_raise: type[StorageError] | tuple[()] = ()) -> bool:
        """Tell whether leases can be renewed: after a renewal that failed, by trying it with all that are held here.

        A worker claims nothing meanwhile: it could not keep it. Raises what the trial raises if it is ``or_raise``.
        """
        if self._renewals_fail:
            try:
                self.renew(self._claims.all())
            except or_raise:
                raise
            except StorageError:
                return False
        return not self._renewals_fail

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

    # -- looking ------------------------------------------------------------------------------------------------

    def inspect(self, id: str) -> TaskRecord | None:
        """Return a whole task with decoded values and checkpoints in saved order, or None if unknown (F8, G15).

        Raises RestoreError if one of its values cannot be read.
        """
        return looking.inspect(self, id)

    def tasks(
        self, *, queue: str | None = None, state: str | Collection[str] | None = None, id: str | None = None,
        limit: int = 100,
    ) -> list[TaskSummary]:
        """List tasks without payload, the latest change first, then by id (F9). No state at all gives no rows."""
        return looking.tasks(self.query, queue=queue, state=state, id=id, limit=limit)

    def result(self, id: str) -> Any:
        """Return what a completed task returned (F10). Raises ResultUnavailable with the state otherwise (S37)."""
        return looking.result(self.query, self.codec, id)

    def wait(self, id: str, timeout_seconds: float | None = None, *, poll_seconds: float = 0.05) -> Any:
        """Wait until a task has come to its end and return its result (L22). It does not work on it.

        Raises ResultUnavailable with the state if the task failed or was cancelled, is unknown (at once), or has not
        ended within ``timeout_seconds``.
        """
        return looking.wait(self.query, self.codec, self.clock, id, timeout_seconds, poll_seconds)

    def queues(self) -> dict[str, dict[str, int]]:
        """Return how many tasks are in each state, by queue; every state is named, queues without tasks are not
        (L24)."""
        return looking.queues(self.query)

    def event(self, name: str, otherwise: Any = None) -> Any:
        """Return the value of an event, or ``otherwise`` if it was not emitted yet (L1)."""
        return waiting.event(self.query, self.codec, name, otherwise)

    def saved_checkpoints(self, seqs: Sequence[int]) -> dict[int, tuple[Saved, ...]]:
        """Return the saved checkpoints of tasks by their ``seq``, in saved order."""
        return claiming.saved_checkpoints(self.query, seqs)

    # -- ending -------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """Cancel an unfinished task; False for a finished or unknown one (F14). Handlers here learn at once."""
        return bool(self.cancel_many([id]))

    def cancel_many(self, ids: Collection[str]) -> list[str]:
        """Cancel the unfinished tasks among ``ids`` and their unfinished items at once; return the ids of all these."""
        cancelled = self.cancel_tasks(arguments.texts("ids", ids, 256))
        for seq, _ in cancelled:
            self.tell_lost(seq)
        return [id for _, id in cancelled]
