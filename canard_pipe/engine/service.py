"""The owner's answers to other processes: each question is one message, answered by the owner's own transitions.

There is no second copy of the engine for the network. A question is the text of a call of one of the methods that
:class:`~canard_pipe.engine.tasks.Tasks` leaves to the owner; it is carried out here by the owner's database, so that
its writes join the group commits of the owner's one writer and use the owner's clock (S12). No handler runs here.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from canard_pipe.engine import claiming, transitions, waiting, wire
from canard_pipe.engine.grants import Grant
from canard_pipe.engine.schema import VERSION
from canard_pipe.errors import CanardError, StorageError

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

log = logging.getLogger(__name__)
LONGEST_ANSWER_SECONDS = 30.0
FAREWELL_SECONDS = 1.5  # a worker with nothing to do asks more often than that
# Names and ids that may be claimed from elsewhere, None for all.
Offer = Callable[[], tuple[Collection[str] | None, Collection[str] | None]]


class Service:
    """What a served database answers. Called by many threads at once."""

    def __init__(self, database: Database, *, offer: Offer | None, noticed: Callable[[], None]) -> None:
        self._database, self._offer, self._noticed = database, offer, noticed
        self._id = uuid.uuid4().hex
        self._answered = threading.Condition()
        self._at_work = 0
        self._closing = False
        self._claimed_at: dict[str, float] = {}  # when (monotonic) each worker last asked for tasks
        self._answers: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "query": database.query,
            "look": self._look,
            "read_task": self._read_task,
            "write": self._write,
            "spawn": database.spawn_rows,
            "emit": database.emit_text,
            "claim": self._claim,
            "disown": self._disown,
            "cancel": self._cancel,
            "reap": database.reap,
            "wake": database.wake,
            "retain": database.retain,
            "runtime": lambda: asdict(database.runtime()),
        }

    def answer(self, text: str) -> str:
        """Return the answer to a question, both JSON text. Never raises."""
        with self._answered:
            self._at_work += 1
        try:
            return self._answer(text)
        finally:
            with self._answered:
                self._at_work -= 1
                self._answered.notify_all()

    def say_farewell(self) -> None:
        """Refuse everything from now on, and return when the workers that asked lately have heard it: soon.

        Those that do not ask any more would not know whether this owner has ended or died.
        """
        began = self._database.clock.monotonic()
        with self._answered:
            self._closing = True
            self._claimed_at = {
                worker: at for worker, at in self._claimed_at.items() if at >= began - FAREWELL_SECONDS
            }
            self._answered.wait_for(lambda: not self._claimed_at, FAREWELL_SECONDS)

    def drain(self) -> None:
        """Wait until what is being answered has its answer."""
        with self._answered:
            self._answered.wait_for(lambda: self._at_work == 0, LONGEST_ANSWER_SECONDS)

    def _answer(self, text: str) -> str:
        try:
            asked = json.loads(text)
            name = asked["ask"]
            if self._closing:
                with self._answered:
                    self._claimed_at.pop(str(asked["with"].get("holder")), None)
                return closed_answer()
            answer: dict[str, Any] = {"value": self._answers[name](**asked["with"])}
        except CanardError as error:
            answer = {"error": wire.error_to(error)}
        except Exception as error:
            log.exception("a question could not be answered")
            told = StorageError(f"the owner cannot answer this: {type(error).__name__}: {error}", operation="ask")
            answer = {"error": wire.error_to(told)}
        answer |= {
            "owner": self._id, "now_us": self._database.clock.now_us(), "shifted_us": self._database.shifted_us,
        }
        return json.dumps(answer)

    def _hello(self) -> dict[str, Any]:
        return {
            "protocol": wire.PROTOCOL, "schema": VERSION, "root": str(self._database.root),
            "runtime": asdict(self._database.runtime()),
        }

    def _look(self, events: list[str], tasks: list[str]) -> list[Any]:
        found = self._database.look(waiting.Asked(tuple(events), tuple(tasks)))
        return [found.text, found.is_whole]

    def _read_task(self, id: str) -> list[Any] | None:
        found = self._database.read_task(id)
        return None if found is None else [found.row, [asdict(saved) for saved in found.saved]]

    def _write(self, writes: list[Any], riders: list[Any]) -> list[dict[str, Any]]:
        writer = self._database.writer
        for statement, row in riders:
            writer.ride(statement, row)
        wanted = [wire.write_from(write) for write in writes]
        writer.write_all(wanted)
        if not wanted:
            writer.flush()
        self._noticed()
        return [
            {"at_us": write.at_us} if write.error is None else {"error": wire.error_to(write.error)} for write in wanted
        ]

    def _claim(self, sweep: int, **request: Any) -> list[dict[str, Any]]:
        wanted = claiming.Request(**request)
        with self._answered:
            self._claimed_at[wanted.holder] = self._database.clock.monotonic()
        if sweep:
            self._database.sweep(wanted.queue, sweep)
        if self._offer is not None:
            wanted = wanted.within(*self._offer())
        if wanted.is_empty:
            return []
        granted: list[dict[str, Any]] = []

        def register(grants: list[Grant]) -> list[Any]:
            granted[:] = [wire.grant_to(grant) for grant in grants]  # the claims live in the process that asks
            return []

        self._database.grab(wanted, register)
        return granted

    def _disown(self, holder: str, tokens: list[str]) -> int:
        store, clock = self._database.store, self._database.clock
        released = int(
            self._database.writer.transact(lambda: transitions.disown(store, clock, holder, set(tokens)))
        )
        if released:
            self._noticed()
        return released

    def _cancel(self, ids: list[str]) -> list[tuple[int, str]]:
        cancelled = self._database.cancel_tasks(ids)
        for seq, _ in cancelled:
            self._database.tell_lost(seq)
        self._noticed()
        return cancelled


def closed_answer() -> str:
    """Return the answer of an owner that is closing: nothing was done."""
    return json.dumps({"closed": True})
