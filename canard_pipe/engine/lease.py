"""An attempt's lease: renewing it, writing under it, ending the attempt."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import arguments
from canard_pipe.engine.grants import Ending, Grant
from canard_pipe.engine.writer import Row, Write
from canard_pipe.errors import ConflictError, LeaseLost, RestoreError, StorageError, TaskReleased

if TYPE_CHECKING:
    from canard_pipe.engine.claiming import Request
    from canard_pipe.engine.tasks import Tasks

Extra = Sequence[tuple[str, Sequence[Row]]]  # statements with their rows, for the transaction of a transition


class Lease:
    """Every write needs the current token, state running and an unexpired deadline (G4).

    ``lost`` is set as soon as this process knows that the lease is gone. A lease belongs to one handler thread;
    only ``renewed`` and ``lost`` are touched by others.
    """

    def __init__(self, database: Tasks, grant: Grant) -> None:
        self.database = database
        self.grant = grant
        self.id, self.seq, self.name = grant.id, grant.seq, grant.name
        self.attempt, self.failures, self.token = grant.attempt, grant.failures, grant.token
        self.worker, self.lease_seconds = grant.worker, grant.lease_seconds
        self.lost = threading.Event()
        self.stopping: Callable[[], bool] = lambda: False
        self.wish: Callable[[], Request | None] = lambda: None
        self.successor: Any = None  # the claim that was granted together with the end of this one
        self.ending: Ending | None = None
        self.abandoned = False  # its handler has come to its end without having ended the attempt
        self._end_in_doubt = False
        self._deadline_us = grant.deadline_us

    @property
    def ended(self) -> bool:
        """Whether this holder has ended the attempt."""
        return self.ending is not None

    @property
    def input(self) -> Any:
        """The value that the task was spawned with. Raises RestoreError if it cannot be read back."""
        return self._restore(self.grant.input, "reading its input")

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

    def _end(
        self, transition: str, row: Row, ending: Ending, *, error: str | None = None,
        cause: dict[str, Any] | None = None, extra: Extra = (),
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

    def _write(self, transition: str, row: Row, operation: str, extra: Extra = ()) -> int:
        if self.ended:
            raise LeaseLost(self.id, self.attempt, operation=operation)
        wish = self.wish() if transition == "complete_tasks" else None
        write = Write(transition, row, self.id, self.attempt, extra=tuple(extra), operation=operation, wish=wish)
        try:
            self.database.writer.write(write)
        except LeaseLost:
            self.lost.set()
            raise
        assert write.at_us is not None  # noqa: S101 - or it would have an error
        self.successor = write.granted
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
