"""The owner's side: a database that listens, and answers what is asked of its owner."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

import duckdb

from canard_pipe.engine.quack.extensions import first_line
from canard_pipe.errors import ExtensionError, InputError, StorageError

FUNCTION = "canard_ask"  # the SQL function by which the owner is asked
LOOPBACK = ("127.0.0.1", "localhost")
_URI = re.compile(r"quack:([A-Za-z0-9.-]+):([0-9]+)")
_GREETING = b"Quack"


def new_token() -> str:
    """Return a random token for a server."""
    return secrets.token_urlsafe(32)


class Server:
    """A database that listens. Made by :func:`serve`; end it with :meth:`stop` or ``with``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, uri: str, token: str) -> None:
        self.uri, self.token = uri, token
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
                f"cannot stop listening on {self.uri}: {first_line(error)}", operation="serve"
            ) from error
        finally:
            connection.close()


def serve(
    connection: duckdb.DuckDBPyConnection, token: str, *, uri: str | None = None, answer_seconds: float = 5.0
) -> Server:
    """Let the database of ``connection`` listen for whoever has ``token``: at ``uri``, else at a free port here.

    Extensions must be loaded. Other threads of the process go on using the database. Raises StorageError if it does
    not answer within ``answer_seconds``: the server needs about 130 threads, and where a limit denies them it would
    accept connections and never answer.
    """
    own = connection.cursor()
    try:
        # 1.5.5 takes no port 0. Holding the free port until the server has it keeps it from everybody else; both set
        # SO_REUSEPORT, and a socket that does not listen gets no connections.
        host, port = (LOOPBACK[0], 0) if uri is None else address(uri)
        with socket.socket() as placeholder:
            if port == 0:
                if hasattr(socket, "SO_REUSEPORT"):
                    placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                placeholder.bind((host, 0))
                port = placeholder.getsockname()[1]
            else:
                _require_free(host, port)
            uri = f"quack:{host}:{port}"
            own.execute(
                "SELECT listen_uri FROM quack_serve(?, token := ?, allow_other_hostname := ?)",
                [uri, token, host not in LOOPBACK],
            ).fetchall()
    except (duckdb.Error, OSError) as error:
        own.close()
        raise StorageError(f"the state cannot be served: {first_line(error)}", operation="serve") from error
    except BaseException:
        own.close()
        raise
    server = Server(own, uri, token)
    try:
        probe(uri, answer_seconds)
    except StorageError as error:
        with contextlib.suppress(StorageError):
            server.stop()
        raise StorageError(
            "the state cannot be served: the server does not answer; are threads or memory of this process limited?",
            operation="serve",
        ) from error
    return server


def _require_free(host: str, port: int) -> None:
    # The server sets SO_REUSEPORT: two of them at one port would share what comes. Binding for a trial would also find
    # what a server that was killed has left there, which hinders nobody.
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        raise StorageError(f"something listens at {host}:{port} already", operation="serve")


def let_ask(connection: duckdb.DuckDBPyConnection, answer: Callable[[str], str]) -> None:
    """Let ``answer`` be the SQL function ``canard_ask(text)``, for all connections to the database; once only.

    It is called in this process, in threads of the server's, for as long as ``connection`` lives: keep it, since
    DuckDB calls freed memory afterwards. Raises ExtensionError where DuckDB cannot call Python.
    """
    try:
        with _without_blas_threads():
            connection.create_function(
                FUNCTION, answer, ["VARCHAR"], "VARCHAR",  # type: ignore[call-overload]
                type="native", side_effects=True,
            )
    except duckdb.InvalidInputException as error:
        raise ExtensionError(f"DuckDB cannot call functions of Python: {first_line(error)}") from error


@contextlib.contextmanager
def _without_blas_threads() -> Iterator[None]:
    """DuckDB loads numpy here, which would start a thread for each core, to compute what nobody asks for."""
    name = "OPENBLAS_NUM_THREADS"
    if "numpy" in sys.modules or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def probe(uri: str, seconds: float) -> None:
    """Ask the server for its greeting, without a token. Raises StorageError if no Quack server answers in time.

    A frozen owner still accepts connections, and DuckDB's client would wait for its answer for ever.
    """
    host, port = address(uri)
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


def address(uri: str) -> tuple[str, int]:
    """Return host and port of ``quack:HOST:PORT``. Raises InputError."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise InputError(f"{uri!r} is not an address like quack:127.0.0.1:9494")
    return found[1], int(found[2])


