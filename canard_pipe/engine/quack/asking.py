"""Asking the owner from many threads at once: one message, one text, one answer."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from canard_pipe.engine.literals import literal
from canard_pipe.engine.quack.extensions import CLIENT, load_extensions
from canard_pipe.engine.quack.remote import explained
from canard_pipe.engine.quack.serving import FUNCTION, LOOPBACK, address, probe
from canard_pipe.errors import ConnectionClosed, InputError, OwnerUnreachable

Tls = bool | str | Path | None
_ASK = "FROM quack_query(?, ?, token := ?, disable_ssl := ?)"


@dataclass(slots=True)
class _Question:
    message: str
    operation: str
    answered: threading.Event = field(default_factory=threading.Event)
    answer: str | None = None
    error: BaseException | None = None


class _Asker:
    """A thread that asks one question at a time, by a connection of its own."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, parameters: tuple[str, str, bool]) -> None:
        self._cursor, (self._uri, self._token, self._plain) = cursor, parameters
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="quack", daemon=True)
        self._thread.start()

    def put(self, question: _Question) -> None:
        """Let it ask; it tells by ``answered``."""
        self._questions.put(question)

    def end(self) -> None:
        """End the thread, which must be idle. Not left to the end of the process: that would be inside DuckDB then."""
        self._questions.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            try:
                ((question.answer,),) = self._cursor.execute(
                    _ASK, [self._uri, question.message, self._token, self._plain]
                ).fetchall()
            except duckdb.Error as error:
                question.error = explained(error, self._uri, question.operation)
                question.error.__cause__ = error
            except BaseException as error:  # raised in the thread that asks
                question.error = error
            question.answered.set()
        self._cursor.close()


class Asking:
    """What lets this process ask an owner. ``timeout_seconds`` bounds each question.

    Each question has a connection of its own while it waits, in a thread of its own: DuckDB's client keeps to no
    timeout and is not interrupted while it waits (1.5.5). One that never gets its answer is left behind.
    """

    def __init__(self, uri: str, token: str, *, timeout_seconds: float = 30.0, tls: Tls = None) -> None:
        """``tls``: whether to speak HTTPS, as to a proxy before the owner; by default to other machines only.

        A path says that it is spoken, and is a file of the certificates to be trusted, instead of the system's.
        Raises InputError, StorageError and ExtensionError. Sets the proxy variables of this process
        aside (proxies.py): with one set, the token would go to the proxy.
        """
        host, _ = address(uri)
        if not token:
            raise InputError(f"the owner at {uri} wants a token, and none was given")
        self.uri, self._token, self._timeout_seconds = uri, token, timeout_seconds
        trusted = Path(tls).absolute() if isinstance(tls, str | Path) else None
        if trusted is not None and not trusted.is_file():
            raise InputError(f"the file of certificates {trusted} is not there")
        self._plain = host in LOOPBACK if tls is None else not tls
        if self._plain:
            probe(uri, min(5.0, timeout_seconds))
        self._connection = duckdb.connect(config=CLIENT)
        self._mutex = threading.Lock()
        self._idle: list[_Asker] = []
        self._closed = False
        self._lost = 0  # questions without an answer: their threads are inside DuckDB for good
        try:
            self.proxies = load_extensions(self._connection)
            if trusted is not None:
                self._connection.execute(f"SET GLOBAL ca_cert_file = {literal(str(trusted))}")
        except BaseException:
            self._connection.close()
            raise

    def ask(self, text: str, operation: str) -> str:
        """Ask the owner and return its answer. Raises OwnerUnreachable, StorageError, ConnectionClosed."""
        question = _Question(f"SELECT {FUNCTION}({literal(text)})", operation)
        asker = self._asker()
        asker.put(question)
        if not question.answered.wait(self._timeout_seconds):
            with self._mutex:
                self._lost += 1
            raise OwnerUnreachable(
                f"{operation}: the owner has not answered within {self._timeout_seconds:g} s; whether it was carried "
                "out is not known",
                operation=operation,
            )
        with self._mutex:
            closed = self._closed
            if not closed:
                self._idle.append(asker)
        if closed:
            asker.end()
        if question.error is not None:
            raise question.error
        assert question.answer is not None  # noqa: S101 - or there is an error
        return question.answer

    def close(self) -> None:
        """Ask no more; a second call does nothing."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        for asker in idle:
            asker.end()
        if not self._lost:  # closing would wait for them
            self._connection.close()

    def _asker(self) -> _Asker:
        with self._mutex:
            if self._closed:
                raise ConnectionClosed(f"the connection to {self.uri} is closed")
            if self._idle:
                return self._idle.pop()
            return _Asker(self._connection.cursor(), (self.uri, self._token, self._plain))
