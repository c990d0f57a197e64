"""The DuckDB file: one connection that writes, one for each that reads at once, every statement by name.

``intercept`` is the seam for tests: it is called with the name of each statement, and of ``begin`` and ``commit``,
and with a function that executes it, so that a failure can be put before or after any of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from canard_pipe.engine import conflicts, statements
from canard_pipe.engine.literals import render
from canard_pipe.errors import ConflictError, ConnectionClosed, StorageError

_DAMAGED = re.compile("not a valid DuckDB database file|Corrupt database file|Could not read enough bytes|checksum")
Rows = list[tuple[Any, ...]]
Intercept = Callable[[str, Callable[[], Rows]], Rows]


def straight(_name: str, execute: Callable[[], Rows]) -> Rows:
    return execute()


class Store:
    """An open database. ``path`` None is a database in memory. ``before_write`` may refuse a transaction by raising.

    ``beside`` is an open store whose database this one uses too, by a connection of its own.

    DuckDB's own defaults (all cores, 80 % of the memory) do not suit a login node: 512 MB, and one thread, the caller's
    own. A second one is woken by each statement and makes each of our small ones a fifth slower.
    """

    def __init__(
        self, path: Path | None, *, read_only: bool = False, intercept: Intercept = straight,
        before_write: Callable[[], None] | None = None, beside: Store | None = None,
    ) -> None:
        self.path = path
        self._intercept = intercept
        self._local = threading.local()  # .reader: the connection of this thread's snapshot
        self._readers: list[_Connection] = []
        self._closed = False
        self._before_write = before_write or (lambda: None)
        config: dict[str, Any] = {
            "threads": 1,
            "memory_limit": "512MB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # Its filters can lose rows where two threads work (duckdb issue 22075), as below the views' groupings.
            "disabled_optimizers": "join_filter_pushdown",
        }
        if not read_only:
            config["storage_compatibility_version"] = "v1.5.0"  # VARIANT columns and casts need it
        self.connection: duckdb.DuckDBPyConnection
        try:
            if beside is not None:
                self.connection = beside.connection.cursor()
            else:
                self.connection = duckdb.connect(
                    ":memory:" if path is None else str(path), read_only=read_only, config=config
                )
        except duckdb.Error as error:
            raise StorageError(f"cannot open {path}: {error}{_way_out(error)}", operation="open") from error
        self._writing = _Connection(self.connection)
        self.write_lock = threading.RLock()

    def close(self) -> None:
        """Close the database after the transaction that is going on; a second call does nothing."""
        with self.write_lock:
            if not self._closed:
                self._closed = True
                self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the write connection for one transaction; commit at the end, roll back if anything is raised."""
        with self.write_lock:
            self._guard()
            self._before_write()
            try:
                self._attempt("begin", lambda: _fetched(self.connection.execute("BEGIN")))
                yield
                self._attempt("commit", lambda: _fetched(self.connection.execute("COMMIT")))
            except BaseException:
                self._roll_back()
                raise

    def run(self, name: str, **params: Any) -> Rows:
        """Execute a named statement on the write connection and return the rows of its last part.

        A file of several statements is executed in order. Call within :meth:`transaction`.
        """
        rows: Rows = []
        for statement in statements.load(name):
            rows = self._execute(self._writing, name, statement, params)
        return rows

    def changed(self, name: str, **params: Any) -> int:
        """As :meth:`run`; return how many rows the file's first statement changed."""
        first, *rest = statements.load(name)
        rows = self._execute(self._writing, name, first, params)
        for statement in rest:
            self._execute(self._writing, name, statement, params)
        return int(rows[0][0]) if rows else 0

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries of this thread within the block see the same state of the database."""
        self._guard()
        with self._reader() as reader:
            reader.begin()
            self._local.reader = reader
            try:
                yield
            finally:
                self._local.reader = None
                reader.end()

    def query(self, name: str, **params: Any) -> Rows:
        """Execute a named read on a connection that nobody else uses meanwhile; it sees what is committed."""
        self._guard()
        rows: Rows = []
        with self._reader() as reader:
            for statement in statements.load(name):
                rows = self._execute(reader, name, statement, params)
        return rows

    def sql(self, text: str) -> tuple[list[str], Rows]:
        """Execute SQL as a person typed it; return the names of the columns and the rows."""
        self._guard()
        cursor = self.connection.cursor()
        try:
            cursor.execute(text)
            columns = [column[0] for column in cursor.description or ()]
            return columns, cursor.fetchall() if columns else []
        except duckdb.Error as error:
            raise StorageError(str(error), operation="sql") from error
        finally:
            cursor.close()

    def script(self, sql: str, **params: Any) -> Rows:
        """Execute SQL text of this package that is not a transition, such as a migration's."""
        return self._attempt("script", lambda: _fetched(self.connection.execute(sql, params or None)))

    @contextmanager
    def _reader(self) -> Iterator[_Connection]:
        """Lend a connection: that of this thread's snapshot, else a free one. Threads of the server come and go."""
        held: _Connection | None = getattr(self._local, "reader", None)
        if held is not None:
            yield held
            return
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = _Connection(self.connection.cursor())
        try:
            yield reader
        finally:
            self._readers.append(reader)

    def _execute(self, on: _Connection, name: str, statement: statements.Statement, params: dict[str, Any]) -> Rows:
        return self._attempt(name, lambda: on.execute(statement, params))

    def _attempt(self, name: str, execute: Callable[[], Rows]) -> Rows:
        try:
            return self._intercept(name, execute)
        except duckdb.Error as error:
            found = conflicts.classify(error)
            if found is not None:
                raise ConflictError(
                    str(error), operation=name, message_based=found.message_based
                ) from error
            raise StorageError(f"{name}: {error}", operation=name) from error

    def _roll_back(self) -> None:
        try:
            self.connection.execute("ROLLBACK")
        except duckdb.Error:
            return  # DuckDB has already ended the transaction, as after a failed commit

    def _guard(self) -> None:
        if self._closed:
            raise ConnectionClosed("the database is closed")


class _Connection:
    """A connection that executes statements with their values as literals.

    Not as bound parameters: DuckDB looks for pandas at each binding, which costs as much as the statement. Not
    prepared: DuckDB 1.5.5 plans a PREPAREd statement once, with the table's statistics of that moment, and keeps a
    filter that was always false or always true then (tests/engine/test_store.py shows it).
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def begin(self) -> None:
        self._connection.execute("BEGIN TRANSACTION READ ONLY")

    def end(self) -> None:
        self._connection.execute("ROLLBACK")

    def execute(self, statement: statements.Statement, params: dict[str, Any]) -> Rows:
        return _fetched(self._connection.execute(render(statement, params)))


def _fetched(cursor: duckdb.DuckDBPyConnection) -> Rows:
    return cursor.fetchall() if cursor.description else []


def _way_out(error: duckdb.Error) -> str:
    if not _DAMAGED.search(str(error)):
        return ""
    return "\nThe file is damaged. Put back a backup, or move it and what lies beside it away and begin anew."
