"""The open database: spawning, claiming, looking at and cancelling tasks."""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from canard_pipe.engine import arguments, quack, recovery, schema
from canard_pipe.engine.claim import Claim, Grant, Saved
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.ownership import Ownership
from canard_pipe.engine.records import Checkpoint, TaskRecord, TaskSummary, summary
from canard_pipe.engine.store import Intercept, Rows, Store, straight
from canard_pipe.engine.values import Codec
from canard_pipe.engine.writer import Row, Write, Writer
from canard_pipe.errors import CloseError, InputError, ResultUnavailable, RestoreError, SpawnConflict, StorageError


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
    ) -> None:
        self.clock = clock or SystemClock()
        self.codec = Codec(root)
        self.identity = f"{socket.gethostname()}:{os.getpid()}"
        self.ownership: Ownership | None = None
        self._claim_type = claim_type
        self._claims: weakref.WeakValueDictionary[int, Claim] = weakref.WeakValueDictionary()
        self._claims_lock = threading.Lock()
        self._closed = False
        self._server: quack.Server | None = None
        if path is not None:
            self.ownership = Ownership.take(
                lock or path.with_name(f"{path.name}.lock"), wait_seconds=wait_seconds, clock=self.clock
            )
        try:
            guard = self.ownership.check if self.ownership else None
            self.store = Store(path, intercept=intercept, before_write=guard)
            try:
                schema.install(self.store, self.clock.now_us())
                self.writer = Writer(self.store, self.clock, conflict_retries=conflict_retries)
                self.interrupted = recovery.hand_back(self)
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
        for step in (self.stop_serving, self.writer.flush, self.store.close, *release):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - every clean-up step is tried, then all errors are raised
                problems.append(error)
        if problems:
            raise CloseError("closing the database failed", problems)

    def serve(self) -> str:
        """Listen on 127.0.0.1 for other processes of this user and say so in owner.json; return the address.

        Raises ExtensionError where Quack cannot be loaded, StorageError where it cannot listen.
        """
        if self._server is None:
            token = quack.new_token()
            quack.load_extensions(self.store.connection)
            self._server = quack.serve(self.store.connection, token)
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
        arguments.text("name", name, 256)
        arguments.text("queue", queue, 128)
        arguments.whole("priority", priority, -(2**31), 2**31 - 1)
        arguments.whole("max_failures", max_failures, 1, 1_000_000)
        chosen = [str(uuid.uuid4()) for _ in inputs] if ids is None else [arguments.text("id", i, 256) for i in ids]
        if len(chosen) != len(inputs):
            raise InputError(f"{len(inputs)} inputs but {len(chosen)} ids")
        if len(set(chosen)) != len(chosen):
            raise InputError("ids are not unique")
        common = {"name": name, "queue": queue, "priority": priority, "max_failures": max_failures}
        rows = [
            {"position": at, "id": id, "input": self.codec.encode(value)} | common
            for at, (id, value) in enumerate(zip(chosen, inputs, strict=True))
        ]

        def insert() -> None:
            known = self._known(chosen, within_transaction=True)
            new = [row for row in rows if not _same(row, known.get(row["id"]))]
            if new:
                self.store.run("spawn_tasks", rows=json.dumps(new), now_us=self.clock.now_us())

        try:
            self.writer.transact(insert)
        except StorageError:
            # The insert may have committed: look, and never insert a second time (S23).
            known = self._known(chosen)
            if not all(_same(row, known.get(row["id"])) for row in rows):
                raise
        return chosen

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
    ) -> list[Claim]:
        """Claim at most ``limit`` tasks at once, by priority, then time (S7); only of ``names`` where given (S8),
        and only those of ``ids`` where given."""
        arguments.whole("limit", limit, 0, 2**31 - 1)
        arguments.text("queue", queue, 128)
        arguments.text("worker", worker, 128)
        arguments.seconds("lease_seconds", lease_seconds)
        if limit == 0 or (names is not None and not names):
            return []
        self.reap(queue, limit=reap_limit)
        holder = f"{worker}@{self.identity}"

        def grab() -> list[Grant]:
            return self._grab(limit, queue, holder, lease_seconds, names, ids)

        claims = [self._claim_type(self, grant) for grant in self.writer.transact(grab)]
        with self._claims_lock:
            for claim in claims:
                self._claims[claim.seq] = claim
        return claims

    def _grab(
        self, limit: int, queue: str, holder: str, lease_seconds: float, names: Collection[str] | None,
        ids: Collection[str] | None,
    ) -> list[Grant]:
        now_us = self.clock.now_us()
        found = self.store.run(
            "claim_candidates", queue=queue, most=limit, now_us=now_us,
            names=None if names is None else json.dumps(sorted(names)), ids=None if ids is None else json.dumps(sorted(ids)),
        )
        if not found:
            return []
        tokens = [uuid.uuid4().hex for _ in found]
        rows = [
            {"seq": row[0], "version": row[1], "expired": int(row[8]), "token": token}
            for row, token in zip(found, tokens, strict=True)
        ]
        deadline_us = now_us + round(lease_seconds * 1e6)
        self.store.run("claim_tasks", rows=json.dumps(rows), worker=holder, now_us=now_us, deadline_us=deadline_us)
        expired = [
            {"seq": row[0], "attempt": row[4], "worker": row[9], "started_us": row[10], "outcome": "expired",
             "error": "worker lease expired", "cause": None}
            for row in found if row[8]
        ]
        if expired:
            self.store.run("record_attempts", rows=json.dumps(expired), now_us=now_us)
        again = [row[0] for row in found if row[4] > 0]
        saved = self._saved(again, within_transaction=True) if again else {}
        return [
            Grant(
                id=row[2], seq=row[0], name=row[3], attempt=row[4] + 1, failures=row[5] + int(row[8]),
                max_failures=row[6], token=token, worker=holder, started_us=now_us, deadline_us=deadline_us,
                lease_seconds=lease_seconds, input=row[7], saved=saved.get(row[0], ()),
            )
            for row, token in zip(found, tokens, strict=True)
        ]

    def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases of many claims; return those that are lost, with ``lost`` set on them."""
        lost = []
        for claim in claims:
            if claim.lost.is_set() or claim.ended:
                lost.append(claim)
        live = [claim for claim in claims if claim not in lost]
        writes = [
            Write("renew_leases", claim._owner_row(), claim.id, claim.attempt, operation="heartbeat")
            for claim in live
        ]
        self.writer.write_all(writes)
        for claim, write in zip(live, writes, strict=True):
            if write.error is None:
                claim.renewed()
            elif isinstance(write.error, StorageError):
                claim.lost.set()
                lost.append(claim)
        return lost

    # -- looking ------------------------------------------------------------------------------------------------

    def inspect(self, id: str) -> TaskRecord | None:
        """Return a whole task with decoded values and checkpoints in saved order, or None if unknown (F8)."""
        rows = self.store.query("inspect_task", id=id)
        if not rows:
            return None
        seq, given, result = rows[0][14:17]
        checkpoints = tuple(
            Checkpoint(saved.name, saved.kind, self._decode(saved.text, id))
            for saved in self._saved([seq]).get(seq, ())
        )
        return TaskRecord(
            summary(rows[0]), self._decode(given, id), None if result is None else self._decode(result, id), checkpoints
        )

    def tasks(
        self, *, queue: str | None = None, state: str | Collection[str] | None = None, id: str | None = None,
        limit: int = 100,
    ) -> list[TaskSummary]:
        """List tasks without payload, the latest change first, then by id (F9). No state at all gives no rows."""
        wanted = arguments.states(state)
        arguments.whole("limit", limit, 0, 2**31 - 1)
        rows = self.store.query(
            "list_tasks", id=id, queue=queue, most=limit, states=None if wanted is None else json.dumps(wanted)
        )
        return [summary(row) for row in rows]

    def result(self, id: str) -> Any:
        """Return what a completed task returned (F10). Raises ResultUnavailable with the state otherwise (S37)."""
        rows = self.store.query("task_result", id=id)
        state, result = rows[0] if rows else (None, None)
        if state != "completed":
            raise ResultUnavailable(id, state)
        return self._decode(result, id)

    def saved_checkpoints(self, seqs: Sequence[int]) -> dict[int, tuple[Saved, ...]]:
        """Return the saved checkpoints of tasks by their ``seq``, in saved order."""
        return self._saved(seqs)

    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read; it sees what is committed."""
        return self.store.query(name, **params)

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute a named statement with ``rows`` in a transaction of its own, as the owner, under no claim."""
        text = json.dumps(list(rows))
        self.writer.transact(lambda: self.store.run(statement, rows=text, now_us=self.clock.now_us()))

    # -- ending -------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """Cancel an unfinished task; False for a finished or unknown one (F14). Handlers here learn at once."""
        return bool(self.cancel_many([id]))

    def cancel_many(self, ids: Collection[str]) -> list[str]:
        """Cancel the unfinished tasks among ``ids`` in one transaction and return their ids."""

        def act() -> Rows:
            now_us = self.clock.now_us()
            found = self.store.run("live_tasks", ids=json.dumps(list(ids)))
            if found:
                rows = [{"seq": row[0], "version": row[1]} for row in found]
                self.store.run("cancel_tasks", rows=json.dumps(rows), now_us=now_us)
                ended = [_ended(row, "cancelled") for row in found if row[3] == "running"]
                if ended:
                    self.store.run("record_attempts", rows=json.dumps(ended), now_us=now_us)
            return found

        cancelled = self.writer.transact(act)
        for row in cancelled:
            self.tell_lost(row[0])
        return [row[2] for row in cancelled]

    def reap(self, queue: str | None = None, *, limit: int = 64) -> int:
        """Fail tasks whose last lease has expired, oldest first, and return how many (S4, S6, G27)."""

        def act() -> int:
            now_us = self.clock.now_us()
            found = self.store.run("exhausted_tasks", queue=queue, most=limit, now_us=now_us)
            if found:
                rows = [{"seq": row[0], "version": row[1]} for row in found]
                self.store.run("expire_tasks", rows=json.dumps(rows), now_us=now_us)
                ended = [
                    {"seq": row[0], "attempt": row[3], "worker": row[4], "started_us": row[5], "outcome": "expired",
                     "error": "worker lease expired", "cause": None}
                    for row in found
                ]
                self.store.run("record_attempts", rows=json.dumps(ended), now_us=now_us)
            return len(found)

        return int(self.writer.transact(act))

    def wake(self) -> int:
        """Make ready every suspended task whose waits are fulfilled or whose time has come; return how many."""

        def act() -> int:
            now_us = self.clock.now_us()
            found = self.store.run("wakeable_tasks", now_us=now_us)
            if found:
                rows = [{"seq": row[0], "version": row[1]} for row in found]
                self.store.run("wake_tasks", rows=json.dumps(rows), now_us=now_us)
            return len(found)

        return int(self.writer.transact(act))

    def tell_lost(self, seq: int) -> None:
        """Tell the claim of this process on task ``seq``, if there is one, that its lease is gone."""
        with self._claims_lock:
            claim = self._claims.get(seq)
        if claim is not None:
            claim.lost.set()

    def forget(self, claim: Claim) -> None:
        """Drop an ended claim from those that are told of cancels."""
        with self._claims_lock:
            if self._claims.get(claim.seq) is claim:
                del self._claims[claim.seq]

    # -- inside -------------------------------------------------------------------------------------------------

    def _known(self, ids: Sequence[str], *, within_transaction: bool = False) -> dict[str, tuple[Any, ...]]:
        read: Callable[..., Rows] = self.store.run if within_transaction else self.store.query
        return {row[0]: row for row in read("known_tasks", ids=json.dumps(list(ids)))}

    def _saved(self, seqs: Sequence[int], *, within_transaction: bool = False) -> dict[int, tuple[Saved, ...]]:
        read: Callable[..., Rows] = self.store.run if within_transaction else self.store.query
        found: dict[int, list[Saved]] = {}
        for seq, ordinal, name, kind, text in read("saved_checkpoints", seqs=json.dumps(list(seqs))):
            found.setdefault(seq, []).append(Saved(ordinal, name, kind, text))
        return {seq: tuple(saved) for seq, saved in found.items()}

    def _decode(self, text: str, id: str) -> Any:
        try:
            return self.codec.decode(text)
        except (ValueError, KeyError, TypeError) as error:
            raise RestoreError(f"a stored value cannot be read: {error}", task_id=id, operation="read") from error


def _same(row: Row, known: tuple[Any, ...] | None) -> bool:
    if known is None:
        return False
    fields = ("name", "queue", "priority", "max_failures", "input")
    differs = [field for field, found in zip(fields, known[1:], strict=True) if row[field] != found]
    if differs:
        raise SpawnConflict(row["id"], differs)
    return True


def _ended(row: tuple[Any, ...], outcome: str) -> Row:
    return {"seq": row[0], "attempt": row[4], "worker": row[5], "started_us": row[6], "outcome": outcome,
            "error": None, "cause": None}
