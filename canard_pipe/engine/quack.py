"""The state while it is owned: the owner listens on this machine, other processes ask it (F2, F3, L17).

The transport is DuckDB's Quack, whose token grants arbitrary SQL; it goes into SQL only as a bound value, so that it
is in no argument list, error text or log. What a message is, on DuckDB 1.5.5: any number of statements, executed in
order in a session of its own, until one fails; the result is that of the last. ``BEGIN; …; COMMIT`` in one message is
a transaction, rolled back if a statement fails; a ``BEGIN`` is not kept for the next message.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from canard_pipe.engine import conflicts
from canard_pipe.engine.owner_record import OwnerRecord
from canard_pipe.errors import ConflictError, ConnectionClosed, ExtensionError, InputError, StorageError

EXTENSIONS = ("httpfs", "quack")  # in this order: quack's client asks httpfs for its transport
_URI = re.compile(r"quack:([A-Za-z0-9.-]+):([0-9]+)")
_QUERY = "FROM quack_query(?, ?, token := ?)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GREETING = b"Quack"
_INSTANT = "TIMESTAMP WITH TIME ZONE"

Rows = list[tuple[Any, ...]]


def set_proxies_aside(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Remove the proxy variables from the environment of this process and return them, for commands to have.

    *Why*: with one set, the client sends each request **and the token** to the proxy. libcurl reads the small-letter
    ones at each request, DuckDB the capital ones when a database is opened.
    """
    names = [name for name in environment if name.lower().endswith("_proxy")]
    return {name: environment.pop(name) for name in names}


def load_extensions(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Load httpfs and quack from their wheels, without a download; repeating it does nothing.

    Proxy variables leave the environment of this process first, and are returned as :func:`set_proxies_aside` does.
    Raises ExtensionError, which says what is missing.
    """
    proxies = set_proxies_aside()
    for name in EXTENSIONS:
        path = str(_extension_file(name)).replace("'", "''")
        try:
            connection.execute(f"LOAD '{path}'")
        except duckdb.Error as error:
            raise ExtensionError(f"DuckDB cannot load its extension {name}: {_first_line(error)}") from error
    # The database may have been opened while HTTP_PROXY was still set. Nothing is sent twice on its own (G8).
    connection.execute("SET GLOBAL http_proxy = ''")
    connection.execute("SET GLOBAL http_retries = 0")
    return proxies


def new_token() -> str:
    """Return a random token for a server."""
    return secrets.token_urlsafe(32)


class Server:
    """A database listening on 127.0.0.1. Made by :func:`serve`; end it with :meth:`stop` or ``with``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, uri: str) -> None:
        self.uri = uri
        self._connection: duckdb.DuckDBPyConnection | None = connection

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Accept no more requests; a second call does nothing (S40). Raises StorageError.

        A request that is being executed goes on to its end and keeps the database open until then, also after the
        owner has closed its own connections.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.execute("CALL quack_stop(?)", [self.uri]).fetchall()
        except duckdb.Error as error:
            raise StorageError(
                f"cannot stop listening on {self.uri}: {_first_line(error)}", operation="serve"
            ) from error
        finally:
            connection.close()


def serve(connection: duckdb.DuckDBPyConnection, token: str, *, answer_seconds: float = 5.0) -> Server:
    """Let the database of ``connection`` listen on 127.0.0.1, on a free port, for whoever has ``token``.

    Extensions must be loaded. Other threads of the process go on using the database. Raises StorageError if it does
    not answer within ``answer_seconds``: the server needs about 130 threads, and where a limit denies them it would
    accept connections and never answer.
    """
    own = connection.cursor()
    try:
        # 1.5.5 takes no port 0. Holding the free port until the server has it keeps it from everybody else; both set
        # SO_REUSEPORT, and a socket that does not listen gets no connections.
        with socket.socket() as placeholder:
            if hasattr(socket, "SO_REUSEPORT"):
                placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            placeholder.bind(("127.0.0.1", 0))
            uri = f"quack:127.0.0.1:{placeholder.getsockname()[1]}"
            own.execute("SELECT listen_uri FROM quack_serve(?, token := ?)", [uri, token]).fetchall()
    except (duckdb.Error, OSError) as error:
        own.close()
        raise StorageError(f"the state cannot be served: {_first_line(error)}", operation="serve") from error
    server = Server(own, uri)
    try:
        probe(uri, answer_seconds)
    except StorageError as error:
        with suppress(StorageError):
            server.stop()
        raise StorageError(
            "the state cannot be served: the server does not answer; are threads or memory of this process limited?",
            operation="serve",
        ) from error
    return server


def probe(uri: str, seconds: float) -> None:
    """Ask the server for its greeting, without a token. Raises StorageError if no Quack server answers in time.

    A frozen owner still accepts connections, and DuckDB's client would wait for its answer for ever.
    """
    host, port = _address(uri)
    greeting = b""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            while _GREETING not in greeting and len(greeting) < 4096 and (piece := connection.recv(1024)):
                greeting += piece
    except TimeoutError as error:
        raise StorageError(
            f"the owner at {uri} does not answer within {seconds:g} s; it may be stopped", operation="connect"
        ) from error
    except OSError as error:
        raise StorageError(f"no owner listens at {uri}: {error.strerror}", operation="connect") from error
    if _GREETING not in greeting:
        raise StorageError(f"what listens at {uri} is not the state's owner", operation="connect")


class RemoteConnection:
    """A connection to a served state. Use as a context manager.

    It holds no handle on the database file (F3). Each message is a session of its own; what it has committed is seen
    by all others at once. One message at a time: threads wait for each other.
    """

    def __init__(self, uri: str, token: str, *, timeout_seconds: float | None = 30.0) -> None:
        """Connect. ``timeout_seconds`` bounds each message, None does not.

        Raises StorageError (nobody listens, no answer, wrong token) and ExtensionError. Removes the proxy variables
        from the environment of this process; ``proxies`` has them.
        """
        self.uri = uri
        self._token, self._timeout_seconds = token, timeout_seconds
        self._mutex = threading.Lock()
        self._closed = self._stuck = False
        probe(uri, 5.0 if timeout_seconds is None else timeout_seconds)
        self._connection = duckdb.connect(
            config={
                "threads": 1,
                "memory_limit": "512MB",
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "storage_compatibility_version": "v1.5.0",  # answers may hold VARIANT columns
            }
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
            raise self._explained(error, operation) from error
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

    def _explained(self, error: duckdb.Error, operation: str) -> StorageError:
        text = _remote_text(error)
        if conflicts.classify(error, remote=True) is not None:
            return ConflictError(text, operation=operation, message_based=True)
        if text == "Authentication failed":
            text = f"the owner at {self.uri} refuses the token; it may have been started anew"
        elif isinstance(error, duckdb.IOException) and "Could not connect to server" in text:
            text = f"no owner listens at {self.uri} any more; nothing was sent"
        elif isinstance(error, duckdb.IOException) and text.startswith("Failed to send message"):
            text = f"the connection to {self.uri} broke; whether it was carried out is not known ({text})"
        elif isinstance(error, duckdb.SerializationException):
            text = f"the server at {self.uri} speaks another version of Quack"
        return StorageError(text, operation=operation)


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


def _extension_file(name: str) -> Path:
    package = f"duckdb_extension_{name}"
    try:
        folder = Path(str(resources.files(package))) / "extensions"
    except ImportError as error:
        raise ExtensionError(f"the package duckdb-extension-{name}=={duckdb.__version__} is not installed") from error
    path = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise ExtensionError(
            f"the installed package duckdb-extension-{name} does not fit duckdb {duckdb.__version__}; "
            f"install duckdb-extension-{name}=={duckdb.__version__}"
        )
    return path


def _address(uri: str) -> tuple[str, int]:
    found = _URI.fullmatch(uri)
    if found is None:
        raise InputError(f"{uri!r} is not an address like quack:127.0.0.1:9494")
    return found[1], int(found[2])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _remote_text(error: duckdb.Error) -> str:
    # The driver adds its own statement, which says nothing to the reader.
    text = re.sub(r"\n+LINE \d+: CREATE OR REPLACE TEMP TABLE answer AS [\s\S]*\Z", "", str(error))
    return text.removeprefix("Invalid Input Error: ").removeprefix("IO Error: ").strip()
