"""The other side: a connection to a served state."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import duckdb

from canard_pipe.engine import conflicts
from canard_pipe.engine.owner_record import OwnerRecord
from canard_pipe.engine.quack.extensions import CLIENT, load_extensions
from canard_pipe.engine.quack.serving import probe
from canard_pipe.errors import ConflictError, ConnectionClosed, InputError, OwnerUnreachable, StorageError

_QUERY = "FROM quack_query(?, ?, token := ?)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = "TIMESTAMP WITH TIME ZONE"

Rows = list[tuple[Any, ...]]


class RemoteConnection:
    """A connection to a served state. Use as a context manager.

    It holds no handle on the database file (F3). Each message is a session of its own; what it has committed is seen
    by all others at once. One message at a time: threads wait for each other.
    """

    def __init__(self, uri: str, token: str, *, timeout_seconds: float | None = 30.0) -> None:
        """Connect. ``timeout_seconds`` bounds each message, None does not.

        Raises StorageError (nobody listens, no answer, wrong token) and ExtensionError. Sets the proxy variables
        of this process aside (proxies.py); ``proxies`` has them.
        """
        self.uri = uri
        self._token, self._timeout_seconds = token, timeout_seconds
        self._mutex = threading.Lock()
        self._closed = self._stuck = False
        probe(uri, 5.0 if timeout_seconds is None else timeout_seconds)
        self._connection = duckdb.connect(
            config=CLIENT | {"storage_compatibility_version": "v1.5.0"}  # answers may hold VARIANT columns
        )
        try:
            self.proxies = load_extensions(self._connection)
            self._send("SELECT 1", "connect")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RemoteConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._closed = True
        if not self._stuck:  # a message that has no answer yet cannot be ended, and closing would wait for it
            self._connection.close()

    def query(self, sql: str) -> tuple[list[str], Rows]:
        """Send SQL as it is and return the columns and rows of its last statement; a change returns its Count.

        Instants come as ``datetime`` in UTC; a column name that stands twice gets a number.

        Raises ConflictError (another transaction won; the message has changed nothing if it was one transaction),
        StorageError (refused, or no answer: whether it was carried out is then not known, and it is never sent again,
        G8) and ConnectionClosed (also after a message that had no answer).
        """
        return self._send(sql, "query")

    def execute(self, statements: Sequence[str], *, operation: str = "execute") -> Rows:
        """Send statements as one message and return the rows of the last. The first that fails ends it.

        They are one transaction only if they begin and commit one. ``operation`` names the message in errors.
        Raises as :meth:`query`.
        """
        return self._send("\n;\n".join(statements), operation)[1]

    def read(self, sql: str) -> tuple[list[str], Rows]:
        """As :meth:`query` for one statement that only reads; anything else raises InputError and is not sent."""
        require_read(self._connection, sql)
        return self._send(f"BEGIN TRANSACTION READ ONLY;\n{sql}", "read")

    def _send(self, message: str, operation: str) -> tuple[list[str], Rows]:
        with self._mutex:
            if self._closed or self._stuck:
                raise ConnectionClosed(f"the connection to {self.uri} is closed")
            return self._in_time(lambda: self._exchange(message, operation), operation)

    def _exchange(self, message: str, operation: str) -> tuple[list[str], Rows]:
        try:
            # Through a table, since the message must be sent exactly once and its columns are known only afterwards.
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE answer AS {_QUERY}", [self.uri, message, self._token]
            )
        except duckdb.Error as error:
            raise explained(error, self.uri, operation) from error
        columns = self._connection.execute("DESCRIBE answer").fetchall()
        names = [str(column[0]) for column in columns]
        kinds = [str(column[1]) for column in columns]
        chosen = ", ".join(map(_selected, names, kinds))
        rows = self._connection.execute(f"SELECT {chosen} FROM answer").fetchall()  # noqa: S608 - quoted names
        instants = [place for place, kind in enumerate(kinds) if kind == _INSTANT]
        return names, [_with_instants(row, instants) for row in rows] if instants else rows

    def _in_time(
        self, exchange: Callable[[], tuple[list[str], Rows]], operation: str
    ) -> tuple[list[str], Rows]:
        # In a thread, since DuckDB's client keeps to no timeout and is not interrupted while it waits (1.5.5).
        answers: list[tuple[list[str], Rows]] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                answers.append(exchange())
            except BaseException as error:  # raised below, in the caller's thread
                errors.append(error)

        thread = threading.Thread(target=work, name="quack", daemon=True)
        thread.start()
        try:
            thread.join(self._timeout_seconds)
        finally:  # also after an interrupt by the user
            self._stuck = thread.is_alive()
        if errors:
            raise errors[0]
        if not answers:
            raise StorageError(
                f"{operation}: the owner has not answered within {self._timeout_seconds:g} s; whether it was carried "
                "out is not known",
                operation=operation,
            )
        return answers[0]


def connect_to_owner(record: OwnerRecord, *, timeout_seconds: float | None = 30.0) -> RemoteConnection:
    """Connect to the owner that ``record`` names, only if that very process lives on this machine.

    Anything else might listen at its address by now. Raises as :class:`RemoteConnection`.
    """
    if not record.alive_here():
        raise StorageError(
            f"process {record.pid} on {record.host}, which owned the state since {record.since}, is gone",
            operation="connect",
        )
    if record.uri is None or record.token is None:
        raise StorageError(f"process {record.pid} owns the state but does not listen", operation="connect")
    return RemoteConnection(record.uri, record.token, timeout_seconds=timeout_seconds)


def require_read(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise InputError unless ``sql`` is one statement that only reads: SELECT, FROM, SHOW, DESCRIBE, EXPLAIN.

    Nothing is executed. EXPLAIN ANALYZE executes what it explains: run it in a read-only transaction.
    """
    try:
        found = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InputError(str(error)) from error
    kinds = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(found) != 1 or found[0].type not in kinds:
        raise InputError("only one statement that reads (SELECT, SHOW, DESCRIBE, EXPLAIN) is allowed here")


def _selected(name: str, kind: str) -> str:
    column = '"' + name.replace('"', '""') + '"'
    if kind == _INSTANT:  # fetching it would need pytz; its infinities have no microseconds
        return (
            f"CASE {column} WHEN 'infinity'::TIMESTAMPTZ THEN {2**63 - 1} WHEN '-infinity'::TIMESTAMPTZ "
            f"THEN {-(2**63) + 1} ELSE epoch_us({column}) END"
        )
    return f"{column}::VARCHAR" if _INSTANT in kind else column  # inside a list or struct


def _with_instants(row: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in places:
        if values[place] is not None:
            values[place] = _instant(values[place])
    return tuple(values)


def _instant(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return (datetime.max if microseconds > 0 else datetime.min).replace(tzinfo=UTC)


def explained(error: duckdb.Error, uri: str, operation: str) -> StorageError:
    """Return what an error of a message to the owner means."""
    text = _remote_text(error)
    if conflicts.classify(error, remote=True) is not None:
        return ConflictError(text, operation=operation, message_based=True)
    if text == "Authentication failed":
        text = f"the owner at {uri} refuses the token; it may have been started anew"
    elif isinstance(error, duckdb.IOException) and "Could not connect to server" in text:
        text = f"no owner listens at {uri} any more; nothing was sent"
        return OwnerUnreachable(text, operation=operation, sent=False)
    elif isinstance(error, duckdb.IOException) and "SSL peer certificate" in text:
        text = (
            f"the certificate shown at {uri} is not trusted, or is for another name; nothing was sent. Name the file "
            "of the right one (worker --ca-file, tls= in Python)"
        )
    elif isinstance(error, duckdb.IOException) and "SSL connect error" in text:
        text = (
            f"what listens at {uri} does not speak TLS; nothing was sent. Put a proxy in front that does, or say that "
            "plain HTTP is meant (worker --plain, tls=False in Python)"
        )
        return OwnerUnreachable(text, operation=operation, sent=False)
    elif isinstance(error, duckdb.IOException) and text.startswith("Failed to send message"):
        return OwnerUnreachable(
            f"the connection to {uri} broke; whether it was carried out is not known ({text})", operation=operation
        )
    elif isinstance(error, duckdb.SerializationException):
        text = f"the server at {uri} speaks another version of Quack"
    return StorageError(text, operation=operation)


def _remote_text(error: duckdb.Error) -> str:
    # The driver adds its own statement, which says nothing to the reader.
    text = re.sub(r"\n+LINE \d+: (?:CREATE OR REPLACE TEMP TABLE answer AS )?FROM quack_query[\s\S]*\Z", "", str(error))
    return text.removeprefix("Invalid Input Error: ").removeprefix("IO Error: ").strip()
