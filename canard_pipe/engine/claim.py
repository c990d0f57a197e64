"""One attempt at one task: the claim, what its holder may do, and what the handler gets as ``ctx``."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from canard_pipe.engine import arguments, waiting
from canard_pipe.engine.grants import Ending, Grant, Saved
from canard_pipe.engine.step_order import StepOrder
from canard_pipe.engine.writer import Row, Write
from canard_pipe.errors import (
    ConflictError,
    InputError,
    LeaseLost,
    ReplayError,
    RestoreError,
    StorageError,
    TaskReleased,
    TaskSuspended,
)

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

T = TypeVar("T")
log = logging.getLogger(__name__)

__all__ = ["Claim", "Ending", "Grant", "Saved"]


class Claim:
    """An attempt's lease. Every write needs the current token, state running and an unexpired deadline (G4).

    ``lost`` is set as soon as this process knows that the lease is gone. A claim belongs to one handler thread;
    only ``renewed`` and ``lost`` are touched by others.
    """

    def __init__(self, database: Database, grant: Grant) -> None:
        self.database = database
        self.grant = grant
        self.id, self.seq, self.name = grant.id, grant.seq, grant.name
        self.attempt, self.failures, self.token = grant.attempt, grant.failures, grant.token
        self.worker, self.lease_seconds = grant.worker, grant.lease_seconds
        self.lost = threading.Event()
        self.stopping: Callable[[], bool] = lambda: False
        self.step_name: str | None = None
        self.after_save: list[Callable[[], None]] = []
        self.ending: Ending | None = None
        self._end_in_doubt = False
        self._deadline_us = grant.deadline_us
        self._saved = {saved.name: saved for saved in grant.saved}
        self._next_ordinal = max((saved.ordinal for saved in grant.saved), default=0) + 1
        self._used: set[str] = set()
        self._order = StepOrder(self.id, self._saved)
        self._doubtful: set[str] = set()

    @property
    def ended(self) -> bool:
        """Whether this holder has ended the attempt."""
        return self.ending is not None

    @property
    def input(self) -> Any:
        """The value that the task was spawned with. Raises RestoreError if it cannot be read back."""
        return self._restore(self.grant.input, "reading its input")

    # -- steps --------------------------------------------------------------------------------------------------

    def step(self, name: str, fn: Callable[..., T], *args: Any) -> T:
        """Return what ``fn(*args)`` returned, saved under ``name``: a saved step is never called again (F15, G11).

        The value is the stored one on the first run too (S19). ``fn`` may run again if its value could not be
        saved (G1, S18). Raises ReplayError if ``name`` was used before in this attempt or belongs to a sleep
        (S15), LeaseLost, RestoreError, and whatever ``fn`` raises.
        """
        if not callable(fn):
            raise InputError(f"step {name!r} takes a function and its arguments, not what it returned: {fn!r}")
        place = self._enter(name)
        saved = self._saved.get(name)
        if saved is not None:
            value = self._replayed(saved, "step")
            if self._files_are_there(saved):
                self._used.add(name)
                return cast("T", value)
        self._used.add(name)
        with self._inside(name):
            value = fn(*args)
        text = self.database.codec.encode(value, with_files=True)
        self._save(name, "step", text, place, code=self.code_of(fn))
        return cast("T", self._restore(text, "step"))

    def code_of(self, fn: Callable[..., Any]) -> str | None:  # noqa: ARG002 - for subclasses
        """Return what is saved beside a step's value to know the code that made it; for subclasses that know."""
        return None

    def step_saved(self, name: str) -> None:
        """Called after a checkpoint is durable; for subclasses that tell of it."""

    def steps_archived(self) -> None:
        """Called after saved steps were archived; for subclasses that keep what belongs to them."""

    def has_saved(self, name: str) -> bool:
        """Tell whether a checkpoint named ``name`` is saved."""
        return name in self._saved

    def sleep(self, name: str, seconds: float) -> None:
        """Give up the claim and come back in ``seconds``; on replay pass at once (F16, S13, S14)."""
        arguments.seconds("seconds", seconds, zero=True)
        place = self._enter(name)
        saved = self._saved.get(name)
        if saved is not None:
            self._replayed(saved, "sleep")
            self._used.add(name)
            return
        row = self._owner_row() | {
            "delay_us": round(seconds * 1e6), "ordinal": self._next_ordinal, "name": name, "place": place,
        }
        self._end("sleep_tasks", row, Ending("suspended", "ready"))
        raise TaskSuspended(self.id, self.attempt)

    def wait(
        self, name: str, *, events: Collection[str] = (), tasks: Collection[str] = (),
        timeout_seconds: float | None = None,
    ) -> waiting.Waited:
        """Give up the claim until all events are emitted and all tasks ended; return what they brought (L1, L9).

        Saved under ``name`` like a step: a replay returns the same. ``timeout_seconds`` counts from the first call;
        then what is there is saved, and the record's ``missing`` names the rest. Raises TaskSuspended, and what
        :meth:`step` raises.
        """
        asked = waiting.Asked.of(events, tasks)
        if timeout_seconds is not None:
            arguments.seconds("timeout_seconds", timeout_seconds, zero=True)
        place = self._enter(name)
        saved = self._saved.get(name)
        if saved is not None and saved.kind != waiting.MARKER:
            value = self._replayed(saved, waiting.KIND)
        else:
            value = self._wait(name, asked, saved, timeout_seconds, place)
        self._used.add(name)
        return waiting.waited(value)

    def suspend(
        self, waits: Iterable[tuple[str, str]], *, until_us: int | None = None,
        extra: Sequence[tuple[str, Sequence[Row]]] = (),
    ) -> NoReturn:
        """Give up the claim until every wait is fulfilled: pairs of kind (task, event, job) and key. Never returns.

        The handler starts anew when the task wakes, at ``until_us`` (wall time, microseconds) at the latest.
        ``extra`` are statements with rows that are written with it or not at all. Raises TaskSuspended.
        """
        rows = [{"seq": self.seq, "kind": kind, "key": key} for kind, key in waits]
        self._suspend([("record_waits", rows), *extra], until_us)

    # -- the lease ----------------------------------------------------------------------------------------------

    def heartbeat(self, seconds: float | None = None) -> None:
        """Renew the lease to at least ``seconds`` from now, the claim's own by default (F11, S10). Raises LeaseLost."""
        if seconds is not None:
            arguments.seconds("seconds", seconds)
        self.renewed(seconds, at_us=self._write("renew_leases", self._owner_row(seconds), "heartbeat"))

    def check(self) -> None:
        """Raise LeaseLost if the lease is known to be gone, TaskReleased if the worker stops. No SQL (S17)."""
        if self.lost.is_set() or self.ended or self.seconds_left() <= 0:
            raise LeaseLost(self.id, self.attempt, operation="the next step")
        if self.stopping():
            raise TaskReleased(self.id)

    def seconds_left(self) -> float:
        """Return how long the lease still runs if nobody renews it; negative when it has expired."""
        self.database.mind_the_clock()
        return (self._deadline_us - self.database.clock.now_us()) / 1e6

    def renewed(self, seconds: float | None = None, *, at_us: int) -> None:
        """Note that the lease was renewed at ``at_us``; for those who renew many claims at once."""
        lease = self.lease_seconds if seconds is None else seconds
        self._deadline_us = max(self._deadline_us, at_us + round(lease * 1e6))

    def shift_deadline(self, shift_us: int) -> None:
        """Note that all leases have been moved; see clock_guard.py."""
        self._deadline_us += shift_us

    # -- the end of the attempt ---------------------------------------------------------------------------------

    def complete(self, result: Any = None) -> None:
        """Store ``result`` and end the task (F12). Raises ValueEncodeError before any SQL, LeaseLost.

        As all that ends an attempt, it may be repeated when its acknowledgement was lost: what is written stands.
        """
        row = self._owner_row() | {"result": self.database.codec.encode(result)}
        self._end("complete_tasks", row, Ending("completed", "completed"))

    def fail(
        self, message: str, delay_seconds: float = 0.0, *, fatal: bool = False, counted: bool = True,
        cause: dict[str, Any] | None = None,
    ) -> None:
        """Count one failure; the task is ready again after the delay, or failed when its budget is used (F13).

        ``fatal`` ends the task at once; not ``counted`` uses no budget. ``cause`` is kept as data with the attempt.
        """
        if not isinstance(message, str):
            raise arguments.InputError("message must be text")
        delay_us = round(arguments.seconds("delay_seconds", delay_seconds, zero=True) * 1e6)
        text, counted = message.encode(errors="replace").decode(), fatal or counted
        row = self._owner_row() | {"error": text, "delay_us": delay_us, "fatal": fatal, "counted": counted}
        state = "failed" if fatal or (counted and self.failures + 1 >= self.grant.max_failures) else "ready"
        self._end("fail_tasks", row, Ending("failed", state), error=text, cause=cause)

    def quarantine(self, reason: str) -> None:
        """Fail the task without counting a failure, since what is stored for it cannot be read (G18, S31).

        A retry by hand is the way out, once the reason is mended.
        """
        text = f"cannot be read: {reason}"
        self._end("quarantine_tasks", self._owner_row() | {"error": text}, Ending("failed", "failed"), error=text,
                  cause={"kind": "unreadable"})

    def release(self) -> None:
        """Hand the claim back: ready at once, nothing counted. For a graceful stop."""
        self._end("release_tasks", self._owner_row(), Ending("released", "ready"))

    # -- writing under the lease --------------------------------------------------------------------------------

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute ``statement`` with ``rows`` in one transaction with the fence, which renews the lease.

        Durable on return. Raises LeaseLost if the claim is not current; then nothing of it was written.
        """
        self.renewed(at_us=self._write("renew_leases", self._owner_row(), statement, extra=[(statement, rows)]))

    def ride(self, statement: str, row: Row) -> None:
        """Let ``row`` join the next transaction of this process. It only informs: a crash before that loses it."""
        self.database.writer.ride(statement, row)

    # -- inside -------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> int:
        arguments.text("name", name, 256)
        if name in self._doubtful:
            self._look_up(name)
        if name in self._used:
            raise ReplayError(
                self.id, name, expected="one step", actual="a second step of that name",
                way_out="give each its own name; ctx.publish takes name=",
            )
        self.check()
        if self.seconds_left() < self.lease_seconds / 2:
            self.heartbeat()  # so that no step begins with a lease that is about to end (S17)
        return self._order.enter(name, nested=self.step_name is not None)

    def _look_up(self, name: str) -> None:
        # The save of this step was not acknowledged. If it had committed, its value stands (S26).
        self._doubtful.discard(name)
        for saved in self.database.saved_checkpoints([self.seq]).get(self.seq, ()):
            if saved.name == name:
                self._saved[name] = saved

    def _files_are_there(self, saved: Saved) -> bool:
        gone = [file.path for file in self.database.codec.files(saved.text) if not file.unchanged()]
        if not gone:
            return True
        # The one exception to "a saved step never runs again" (docs/design.md, "Gone files").
        later = [other for other in self._saved.values() if other.ordinal >= saved.ordinal]
        rows = [{"task_seq": self.seq, "ordinal": other.ordinal, "step": other.name} for other in later]
        self.write("archive_checkpoints", rows)
        for other in later:
            del self._saved[other.name]
        self.steps_archived()
        log.warning(
            "task %s: step %r and those after it run again: %s is gone or has changed", self.id, saved.name, gone[0]
        )
        return False

    def _wait(
        self, name: str, asked: waiting.Asked, marker: Saved | None, timeout_seconds: float | None, place: int
    ) -> Any:
        now_us = self.database.clock.now_us()
        if marker is not None:
            until_us = json.loads(marker.text)["until_us"]
        else:
            until_us = None if timeout_seconds is None else now_us + round(timeout_seconds * 1e6)
        found = waiting.look(self.database.store, asked)
        if not found.is_whole and (until_us is None or now_us < until_us):
            text = json.dumps({"until_us": until_us, "tasks": asked.tasks})
            row = self._checkpoint_row(Saved(self._next_ordinal, name, waiting.MARKER, text, place))
            begun = [row] if marker is None else []
            self._suspend([("record_waits", asked.rows(self.seq)), ("record_checkpoints", begun)], until_us)
        replaced = [] if marker is None else [{"task_seq": self.seq, "ordinal": marker.ordinal}]
        self._save(name, waiting.KIND, found.text, place, extra=[("archive_markers", replaced)])
        return self._restore(found.text, waiting.KIND)

    def _suspend(self, extra: Sequence[tuple[str, Sequence[Row]]], until_us: int | None) -> NoReturn:
        row = self._owner_row() | {"until_us": until_us}
        self._end("suspend_tasks", row, Ending("suspended", "suspended"), extra=extra)
        raise TaskSuspended(self.id, self.attempt)

    def _replayed(self, saved: Saved, kind: str) -> Any:
        # Its name counts as used only when this has succeeded: a failed entry may be tried again (S16).
        if saved.kind != kind:
            raise ReplayError(self.id, saved.name, expected=saved.kind, actual=kind)
        return self._restore(saved.text, kind)

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        outer, self.step_name = self.step_name, name
        try:
            yield
        finally:
            self.step_name = outer

    def _checkpoint_row(self, saved: Saved) -> Row:
        return self._owner_row() | {
            "ordinal": saved.ordinal, "name": saved.name, "kind": saved.kind, "value": saved.text,
            "attempt": self.attempt, "place": saved.place,
        }

    def _save(
        self, name: str, kind: str, text: str, place: int, extra: Sequence[tuple[str, Sequence[Row]]] = (), *,
        code: str | None = None,
    ) -> None:
        saved = Saved(self._next_ordinal, name, kind, text, place)
        self._next_ordinal += 1  # also if this is not acknowledged: the row may be there all the same
        try:
            row = self._checkpoint_row(saved) | {"code": code}
            at_us = self._write("save_checkpoints", row, f"saving step {name!r}", extra)
        except StorageError:
            self._used.discard(name)
            self._doubtful.add(name)
            raise
        self._saved[name] = saved
        self.renewed(at_us=at_us)
        hooks, self.after_save = self.after_save, []
        for hook in hooks:
            hook()
        self.step_saved(name)

    def _end(
        self, transition: str, row: Row, ending: Ending, *, error: str | None = None,
        cause: dict[str, Any] | None = None, extra: Sequence[tuple[str, Sequence[Row]]] = (),
    ) -> None:
        attempt = {
            "seq": self.seq, "attempt": self.attempt, "worker": self.worker, "started_us": self.grant.started_us,
            "outcome": ending.outcome, "error": error, "cause": None if cause is None else json.dumps(cause),
        }
        if not self._has_ended_so(ending):
            try:
                self._write(transition, row | {"attempt": self.attempt}, transition.split("_")[0],
                            extra=[*extra, ("record_attempts", [attempt])])
            except (LeaseLost, ConflictError):
                raise
            except StorageError:
                self._end_in_doubt = True
                raise
        self.ending = ending
        self.database.forget(self)

    def _has_ended_so(self, ending: Ending) -> bool:
        # An end that was not acknowledged may stand in the history, which is written with it.
        if not self._end_in_doubt:
            return False
        found = self.database.query("ended_attempt", task_seq=self.seq, attempt=self.attempt)
        self._end_in_doubt = False
        return found == [(ending.outcome,)]

    def _write(
        self, transition: str, row: Row, operation: str, extra: Sequence[tuple[str, Sequence[Row]]] = ()
    ) -> int:
        if self.ended:
            raise LeaseLost(self.id, self.attempt, operation=operation)
        write = Write(transition, row, self.id, self.attempt, extra=tuple(extra), operation=operation)
        try:
            self.database.writer.write(write)
        except LeaseLost:
            self.lost.set()
            raise
        assert write.at_us is not None  # noqa: S101 - or it would have an error
        return write.at_us

    def renewal(self) -> Write:
        """Return the write that renews this lease, for those who renew many at once."""
        return Write("renew_leases", self._owner_row(), self.id, self.attempt, operation="heartbeat")

    def _owner_row(self, seconds: float | None = None) -> Row:
        lease = self.lease_seconds if seconds is None else seconds
        return {"seq": self.seq, "token": self.token, "lease_us": round(lease * 1e6)}

    def _restore(self, text: str, operation: str) -> Any:
        try:
            return self.database.codec.decode(text)
        except ValueError as error:
            raise RestoreError(
                f"a stored value cannot be read: {error}", task_id=self.id, operation=operation
            ) from error
