"""A database whose file another process owns: what only the owner can do is asked of it over Quack (F3, L17)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from canard_pipe.engine import claiming, looking, waiting, wire
from canard_pipe.engine.claim import Claim, Grant, Saved
from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.quack.asking import Asking, Tls
from canard_pipe.engine.registered import Adapted
from canard_pipe.engine.retention import check as check_retention
from canard_pipe.engine.runtime import Runtime
from canard_pipe.engine.schema import check_readable
from canard_pipe.engine.store import Rows
from canard_pipe.engine.tasks import Tasks
from canard_pipe.engine.writer import Row, Write, retold
from canard_pipe.errors import InputError, OwnerUnreachable, SchemaError, StorageError

log = logging.getLogger(__name__)


class OwnersClock:
    """The owner's wall time as its answers tell it, going on with this machine's monotonic time between them.

    Never earlier than it is: an answer's time is taken as that of the moment when the question was sent. So a lease
    ends here no later than for the owner, however the clocks of the two machines differ (S12).
    """

    def __init__(self, local: Clock) -> None:
        self._local = local
        self._told_us, self._sent = 0, float("-inf")

    def heard(self, now_us: int, sent: float) -> None:
        """Note an answer's time, and when (monotonic) its question was sent."""
        if sent >= self._sent:
            self._told_us, self._sent = now_us, sent

    def now_us(self) -> int:
        return self._told_us + round((self._local.monotonic() - self._sent) * 1e6)

    def monotonic(self) -> float:
        return self._local.monotonic()

    def sleep(self, seconds: float) -> None:
        self._local.sleep(seconds)


class RemoteDatabase(Tasks):
    """Durable tasks in a file that another process serves. It is used as a Database is; each call is one message.

    Raises OwnerUnreachable where the owner cannot be asked or its answer does not come; nothing is repeated by itself.
    """

    writer: _RemoteWriter

    def __init__(
        self, uri: str, token: str, *, root: Path | None = None, clock: Clock | None = None,
        claim_type: Callable[[Any, Grant], Claim] = Claim, types: Iterable[type | Adapted] = (),
        timeout_seconds: float = 30.0, tls: Tls = None,
    ) -> None:
        """Connect to ``quack:HOST:PORT``. ``root`` is the launch folder here, by default the owner's.

        ``timeout_seconds`` bounds each message. ``tls``: see Asking. Raises StorageError (no owner, wrong token),
        SchemaError (another release), ExtensionError, InputError.
        """
        self._local = clock or SystemClock()
        self._owners_clock = OwnersClock(self._local)
        self._options: dict[str, Any] = {"timeout_seconds": timeout_seconds, "tls": tls}
        self._mutex = threading.Lock()
        self._owner, self._shifted_us = "", 0
        self._sweep = 0
        self._asking = Asking(uri, token, **self._options)
        try:
            greeting = self._greet()
            super().__init__(
                root=root or Path(greeting["root"]), clock=self._owners_clock, claim_type=claim_type, types=types
            )
        except BaseException:
            self._asking.close()
            raise
        self.writer = _RemoteWriter(self)

    @property
    def uri(self) -> str:
        """Where the owner listens."""
        return self._asking.uri

    def reconnect(self, uri: str, token: str) -> None:
        """Ask from now on there, as when the owner was started anew. Raises as connecting does."""
        before = self._asking
        self._asking = Asking(uri, token, **self._options)
        try:
            self._greet()
        except BaseException:
            self._asking.close()
            self._asking = before
            raise
        before.close()

    def ask(self, question: str, /, **given: Any) -> Any:
        """Ask the owner for one of the answers of service.py."""
        sent = self._local.monotonic()
        answer = json.loads(self._asking.ask(json.dumps({"ask": question, "with": given}), question))
        if "closed" in answer:
            text = f"the owner at {self.uri} is closing; nothing was done"
            raise OwnerUnreachable(text, operation=question, sent=False, closing=True)
        self._note_time(answer, sent)
        if "error" in answer:
            raise wire.error_from(answer["error"], question)
        return answer["value"]

    def disown(self) -> int:
        """See Tasks; return how many.

        A claim that never arrived, a handler that has ended since its step could not be saved: nothing is counted
        for them. Call while no claim is being asked for.
        """
        tokens = [claim.token for claim in self._claims.all() if not claim.abandoned]
        return int(self.ask("disown", holder=self.identity, tokens=tokens))

    def close(self) -> None:
        """Give rows that wait for a ride to the owner, and disconnect; a second call does nothing (F4).

        They only inform, so an owner that has gone is no error here.
        """
        try:
            self.writer.flush()
        except OwnerUnreachable as error:
            log.info("informing rows were lost: %s", error)
        finally:
            self._asking.close()

    # -- what Tasks leaves to the owner -------------------------------------------------------------------------

    def query(self, name: str, **params: Any) -> Rows:
        """See Tasks."""
        return [tuple(row) for row in self.ask("query", name=name, **params)]

    def runtime(self) -> Runtime:
        """See Tasks."""
        return Runtime(**self.ask("runtime"))

    def reap(self, queue: str | None = None, *, limit: int = 64) -> int:
        """See Tasks."""
        return int(self.ask("reap", queue=queue, limit=limit))

    def wake(self) -> int:
        """See Tasks."""
        return int(self.ask("wake"))

    def sweep(self, queue: str, limit: int) -> None:  # noqa: ARG002 - the claim names its queue
        """See Tasks. It goes along with the next claim."""
        self._sweep = limit

    def retain(
        self, *, older_than_seconds: float, keep: int = 0, queue: str | None = None, limit: int = 10_000
    ) -> int:
        """See Tasks."""
        check_retention(older_than_seconds, keep, queue, limit)
        return int(self.ask("retain", older_than_seconds=older_than_seconds, keep=keep, queue=queue, limit=limit))

    def look(self, asked: waiting.Asked) -> waiting.Found:
        """See Tasks."""
        return waiting.Found(*self.ask("look", **asdict(asked)))

    def read_task(self, id: str) -> looking.StoredTask | None:
        """See Tasks."""
        found = self.ask("read_task", id=id)
        if found is None:
            return None
        row, saved = found
        return looking.StoredTask(tuple(row), tuple(Saved(**each) for each in saved))

    def spawn_rows(self, rows: Sequence[Row]) -> None:
        """See Tasks."""
        self.ask("spawn", rows=rows)

    def emit_text(self, name: str, text: str) -> bool:
        """See Tasks."""
        return bool(self.ask("emit", name=name, text=text))

    def grab(self, request: claiming.Request, register: Callable[[list[Grant]], list[Claim]]) -> list[Claim]:
        """See Tasks."""
        sweep, self._sweep = self._sweep, 0
        wanted = asdict(request)
        for name in ("names", "ids"):
            if wanted[name] is not None:
                wanted[name] = sorted(wanted[name])
        return register([wire.grant_from(grant) for grant in self.ask("claim", sweep=sweep, **wanted)])

    def cancel_tasks(self, ids: Collection[str]) -> list[tuple[int, str]]:
        """See Tasks."""
        return [(seq, id) for seq, id in self.ask("cancel", ids=list(ids))]

    # -- what only the owner's process can do -------------------------------------------------------------------

    def serve(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError."""
        _refuse("serve")

    def backup(self, path: str | Path) -> NoReturn:  # noqa: ARG002 - as of Database
        """Raise InputError."""
        _refuse("backup")

    def write(self, statement: str, rows: Sequence[Row]) -> NoReturn:  # noqa: ARG002 - as of Database
        """Raise InputError."""
        _refuse("write")

    @property
    def coordinator(self) -> NoReturn:
        """Raise InputError."""
        _refuse("coordinator")

    # -- inside -------------------------------------------------------------------------------------------------

    def _greet(self) -> dict[str, Any]:
        greeting: dict[str, Any] = self.ask("hello")
        if greeting["protocol"] != wire.PROTOCOL:
            raise SchemaError(f"the owner at {self.uri} is of another release of canard-pipe", greeting["schema"])
        check_readable(greeting["schema"])
        return greeting

    def _note_time(self, answer: dict[str, Any], sent: float) -> None:
        owner, shifted_us = answer["owner"], answer["shifted_us"]
        with self._mutex:
            shift_us = shifted_us - self._shifted_us if owner == self._owner else 0
            self._owner, self._shifted_us = owner, shifted_us
            self._owners_clock.heard(answer["now_us"], sent)
        if shift_us:
            self._claims.shift(shift_us)


class _RemoteWriter:
    """Sends writes to the owner, whose writer gathers them with those of others."""

    def __init__(self, database: RemoteDatabase) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._riders: list[tuple[str, Row]] = []

    def write(self, write: Write) -> None:
        """See Writer."""
        self.write_all([write])
        if write.error is not None:
            raise write.error

    def write_all(self, writes: Sequence[Write]) -> None:
        """See Writer: what went wrong with each is in its ``error``."""
        if not writes:
            return
        try:
            answers = self._send(writes)
        except Exception as error:
            for write in writes:
                write.error = retold(error, write) if isinstance(error, StorageError) else error
            return
        for write, answer in zip(writes, answers, strict=True):
            write.at_us = answer.get("at_us")
            if "error" in answer:
                write.error = wire.error_from(answer["error"], write.operation)

    def ride(self, statement: str, row: Row) -> None:
        """See Writer."""
        with self._mutex:
            self._riders.append((statement, row))

    def flush(self) -> None:
        """Send the rows that wait for a ride."""
        if self._riders:
            self._send([])

    def _send(self, writes: Sequence[Write]) -> list[dict[str, Any]]:
        with self._mutex:
            riders, self._riders = self._riders, []
        answers: list[dict[str, Any]] = self._database.ask(
            "write", writes=[wire.write_to(write) for write in writes], riders=riders
        )
        return answers


def _refuse(what: str) -> NoReturn:
    raise InputError(f"{what} is for the process that has the file open; this one is connected to it")
