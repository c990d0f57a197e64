"""One attempt at one task: the claim, what its holder may do, and what the handler gets as ``ctx``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from canard_pipe.engine import arguments, mapping, waiting
from canard_pipe.engine.grants import Ending, Grant, Saved
from canard_pipe.engine.lease import Extra, Lease
from canard_pipe.engine.step_order import StepOrder
from canard_pipe.engine.writer import Row
from canard_pipe.errors import (
    InputError,
    ReplayError,
    StorageError,
    TaskSuspended,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canard_pipe.engine.tasks import Tasks

T = TypeVar("T")
log = logging.getLogger(__name__)

__all__ = ["Claim", "Ending", "Grant", "Saved"]


class Claim(Lease):
    """One attempt at one task: its lease, and its durable steps. What a handler gets as ``ctx``."""

    def __init__(self, database: Tasks, grant: Grant) -> None:
        super().__init__(database, grant)
        self.step_name: str | None = None
        self.after_save: list[Callable[[], None]] = []
        self._saved = {saved.name: saved for saved in grant.saved}
        self._next_ordinal = max((saved.ordinal for saved in grant.saved), default=0) + 1
        self._used: set[str] = set()
        self._order = StepOrder(self.id, self._saved)
        self._doubtful: set[str] = set()

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
        value = waiting.run(self, name, asked, timeout_seconds, self._saved.get(name), place)
        self._used.add(name)
        return waiting.waited(value)

    def map(
        self, name: str, fn: Any, items: Iterable[Any], *, key: Callable[[Any], str | int] | None = None
    ) -> list[Any]:
        """Run ``fn`` for each item as a task of its own and return their results, in the order of the items.

        Gives up the claim until all have ended, and is saved under ``name`` like a step. ``fn`` names a handler.
        ``key(item)`` names the item in the map: by default an item that is a short text itself, else its index.
        Raises MapFailed with every item that failed or was cancelled, once all have ended; InputError for items
        without keys of their own and for a map in an item of an item; and what :meth:`step` raises.
        """
        place = self._enter(name)
        results = mapping.run(self, name, fn, items, key, self._saved.get(name), place)
        self._used.add(name)
        return results

    def item_task(self, fn: Any, name: str) -> str:
        """Return the name of the tasks that run ``fn`` for the items of map ``name``; for layers above."""
        if not isinstance(fn, str):
            raise InputError(f"the map {name!r} takes the name of a handler, as text, not {fn!r}")
        return arguments.text("the handler's name", fn, 256)

    def item_input(self, fn: Any, name: str, key: str, item: Any) -> Any:  # noqa: ARG002 - for layers above
        """Return the input of an item's task."""
        return item

    def suspend(
        self, waits: Iterable[tuple[str, str]], *, until_us: int | None = None, extra: Extra = ()
    ) -> NoReturn:
        """Give up the claim until every wait is fulfilled: pairs of kind (task, event, job) and key. Never returns.

        The handler starts anew when the task wakes, at ``until_us`` (wall time, microseconds) at the latest.
        ``extra`` are statements with rows that are written with it or not at all. Raises TaskSuspended.
        """
        rows = [{"seq": self.seq, "kind": kind, "key": key} for kind, key in waits]
        self._suspend([("record_waits", rows), *extra], until_us)

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
        self.renewed(at_us=self._write(
            "renew_leases", self._owner_row(), "archive_checkpoints", self._archived_from(saved, gone[0])
        ))
        return False

    def _archived_from(self, saved: Saved, gone: object) -> Extra:
        """Drop a checkpoint and those after it, and return what makes them history.

        The one exception to "a saved step never runs again" (docs/design.md, "Gone files").
        """
        later = [other for other in self._saved.values() if other.ordinal >= saved.ordinal]
        rows = [{"task_seq": self.seq, "ordinal": other.ordinal, "step": other.name} for other in later]
        for other in later:
            del self._saved[other.name]
        self.steps_archived()
        log.warning(
            "task %s: step %r and those after it run again: %s is gone or has changed", self.id, saved.name, gone
        )
        maps = [
            (self.seq, other.name) for other in later
            if other is not saved and other.kind in (mapping.KIND, mapping.MARKER)
        ]
        return [("archive_checkpoints", rows), *mapping.archived(self.database.query, maps)]

    def _suspend(self, extra: Extra, until_us: int | None) -> NoReturn:
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

    def _next_checkpoint(self, name: str, kind: str, text: str, place: int) -> Row:
        return self._owner_row() | {
            "ordinal": self._next_ordinal, "name": name, "kind": kind, "value": text, "attempt": self.attempt,
            "place": place, "code": None,
        }

    def _save(
        self, name: str, kind: str, text: str, place: int, extra: Extra = (), *, code: str | None = None
    ) -> None:
        saved = Saved(self._next_ordinal, name, kind, text, place)
        row = self._next_checkpoint(name, kind, text, place) | {"code": code}
        self._next_ordinal += 1  # also if this is not acknowledged: the row may be there all the same
        try:
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
