"""The served state: owner and client are processes of their own (F2, F3, G8, L17)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from canard_pipe.engine import quack
from canard_pipe.engine.database import Database
from canard_pipe.engine.owner_record import Identity, OwnerRecord, process_start
from canard_pipe.errors import ConflictError, ConnectionClosed, ExtensionError, InputError, StorageError

ROOT = Path(__file__).resolve().parents[2]
OPEN = """
import json, sys, threading
import duckdb
from canard_pipe.engine import quack
connection = duckdb.connect(sys.argv[1], config={"threads": 2, "autoinstall_known_extensions": False,
                                                 "autoload_known_extensions": False})
"""
# Serves, and executes a line of SQL at a time from its standard input; "loop" makes it count without end.
OWNER = OPEN + """
quack.load_extensions(connection)
connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)")
connection.execute("INSERT INTO t SELECT i, 0 FROM range(10) r(i)")
token = quack.new_token()
server = quack.serve(connection, token)
print(json.dumps([server.uri, token]), flush=True)

def count():
    cursor = connection.cursor()
    while True:
        cursor.execute("UPDATE t SET b = b + 1 WHERE a = 9")

for line in sys.stdin:
    if line == "loop\\n":
        threading.Thread(target=count, daemon=True).start()
        print("looping", flush=True)
    else:
        print(json.dumps(connection.execute(line).fetchall()), flush=True)
"""
CLIENT = """
import json, os, sys
from canard_pipe.engine import quack
uri, token = json.loads(sys.stdin.readline())
with quack.RemoteConnection(uri, token) as remote:
    print(json.dumps([remote.query("SELECT 1")[1], remote.proxies, dict(os.environ)]))
"""
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}


class Owner:
    def __init__(self, folder: Path) -> None:
        self.process: Any = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder / "state.duckdb")], text=True, env=HERE,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        self.uri, self.token = json.loads(self._line())

    def tell(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        return str(self.process.stdout.readline())

    def record(self) -> OwnerRecord:
        pid = self.process.pid
        return OwnerRecord(
            replace(Identity.here(), pid=pid, started=process_start(pid) or ""), counter=1,
            since="2026-01-02T03:04:05+00:00", uri=self.uri, token=self.token,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def owner(tmp_path):
    owner = Owner(tmp_path)
    yield owner
    owner.kill()


@pytest.fixture
def remote(owner):
    with quack.RemoteConnection(owner.uri, owner.token) as remote:
        yield remote


class Listener:
    """A port of this test that should not be spoken to, or answers in its own way."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.received: list[bytes] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.received.append(b"")
                if self._answer is not None:
                    self.received.append(connection.recv(10_000))
                    connection.sendall(self._answer)

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join(10)


def test_a_client_sees_at_once_what_the_owner_has_committed(owner, remote):
    for value in range(20):
        owner.tell(f"UPDATE t SET b = {value} WHERE a = 1")
        assert remote.query("SELECT b FROM t WHERE a = 1") == (["b"], [(value,)])


def test_a_client_changes_rows_and_is_told_how_many(owner, remote):
    assert remote.query("UPDATE t SET b = 7 WHERE a < 3") == (["Count"], [(3,)])
    assert remote.query("UPDATE t SET b = 7 WHERE a > 300") == (["Count"], [(0,)])
    assert json.loads(owner.tell("SELECT count(*) FROM t WHERE b = 7")) == [[3]]


def test_queries_are_answered_while_the_owner_writes(owner, remote):
    owner.tell("loop")
    seen = [remote.query("SELECT b FROM t WHERE a = 9")[1][0][0] for _ in range(30)]
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_a_wrong_token_is_refused_and_not_repeated_in_the_error(owner):
    """F3."""
    with pytest.raises(StorageError, match="refuses the token") as caught:
        quack.RemoteConnection(owner.uri, "a-wrong-token")
    assert "a-wrong-token" not in str(caught.value)
    assert "a-wrong-token" not in str(caught.value.__cause__)


def test_the_token_is_in_no_representation_error_or_view(owner, remote):
    with pytest.raises(StorageError) as caught:
        remote.query("SELECT * FROM absent")
    views = remote.query("SELECT * FROM quack_active_connections()"), remote.query("FROM quack_server_list()")
    shown = [repr(remote), str(caught.value), str(caught.value.__cause__), repr(owner.record()), repr(views)]
    assert not [text for text in shown if owner.token in text]


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "Http_Proxy"])
def test_no_byte_goes_to_a_proxy(owner, variable):
    """With a proxy the request and the token would go there (docs/design.md, shared database)."""
    proxy = Listener()
    try:
        client = subprocess.run(
            [sys.executable, "-c", CLIENT], input=json.dumps([owner.uri, owner.token]), text=True,
            env={**HERE, variable: f"http://{proxy.address}", "NO_PROXY": "nowhere.example"},
            capture_output=True, timeout=60, check=True,
        )
    finally:
        proxy.close()
    rows, proxies, environment = json.loads(client.stdout)
    assert rows == [[1]]
    assert proxies[variable] == f"http://{proxy.address}"
    assert proxies["NO_PROXY"] == "nowhere.example"
    assert variable not in environment
    assert proxy.received == []


def test_a_database_opened_before_the_proxy_was_set_aside_does_not_use_it(tmp_path, monkeypatch):
    """DuckDB reads HTTP_PROXY when a database is opened, before extensions are loaded."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with duckdb.connect() as connection:
        assert quack.load_extensions(connection)["HTTP_PROXY"] == "http://127.0.0.1:1"
        assert connection.execute("SELECT current_setting('http_proxy')").fetchall() == [("",)]


def test_a_killed_owner_gives_a_clear_error_at_once(owner):
    with quack.RemoteConnection(owner.uri, owner.token) as remote:
        owner.kill()
        started = time.monotonic()
        with pytest.raises(StorageError, match="no owner listens"):
            remote.query("SELECT 1")
        with pytest.raises(StorageError, match="no owner listens"):
            quack.RemoteConnection(owner.uri, owner.token)
        assert time.monotonic() - started < 5


def test_a_frozen_owner_gives_a_clear_error_within_the_time(owner):
    """It still accepts connections, and DuckDB's client would wait for ever."""
    with quack.RemoteConnection(owner.uri, owner.token, timeout_seconds=0.5) as remote:
        owner.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(StorageError, match="not known"):  # G8
            remote.query("UPDATE t SET b = 1")
        with pytest.raises(ConnectionClosed):
            remote.query("SELECT 1")
        with pytest.raises(StorageError, match="does not answer"):
            quack.RemoteConnection(owner.uri, owner.token, timeout_seconds=0.5)
        assert time.monotonic() - started < 10


def test_a_message_that_gets_no_answer_is_sent_once():
    """G8: an ambiguous transport error is shown, never retried."""
    silent = Listener(answer=b"")
    try:
        with duckdb.connect() as connection:
            quack.load_extensions(connection)
            with pytest.raises(duckdb.IOException):
                connection.execute("FROM quack_query(?, 'SELECT 1', token := 'none')", [f"quack:{silent.address}"])
    finally:
        silent.close()
    assert len([text for text in silent.received if text]) == 1


def test_another_server_at_the_address_is_not_given_the_token():
    other = Listener(answer=b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    try:
        with pytest.raises(StorageError, match="not the state's owner"):
            quack.RemoteConnection(f"quack:{other.address}", "secret-token")
    finally:
        other.close()
    assert other.received
    assert b"secret-token" not in b"".join(other.received)


def test_only_the_living_process_of_the_record_is_connected_to(owner):
    """docs/design.md: host, boot, process and start time have to match."""
    record = owner.record()
    with quack.connect_to_owner(record) as remote:
        assert remote.query("SELECT 1")[1] == [(1,)]
    listener = Listener()
    try:
        identity = record.identity
        for other in (
            replace(identity, started="1"), replace(identity, boot_id="before"), replace(identity, host="elsewhere"),
        ):
            with pytest.raises(StorageError, match="is gone"):
                quack.connect_to_owner(replace(record, identity=other, uri=f"quack:{listener.address}"))
        with pytest.raises(StorageError, match="is gone"):
            quack.connect_to_owner(replace(record, released=True, uri=f"quack:{listener.address}"))
        with pytest.raises(StorageError, match="does not listen"):
            quack.connect_to_owner(replace(record, uri=None, token=None))
    finally:
        listener.close()
    assert listener.received == []


def test_a_transaction_in_one_message_is_whole_or_not_at_all(remote):
    assert remote.execute(
        ["BEGIN", "UPDATE t SET b = 5 WHERE a = 1 -- why", "UPDATE t SET b = 6 WHERE a = 2", "COMMIT",
         "SELECT sum(b) FROM t"]
    ) == [(11,)]
    with pytest.raises(StorageError, match="Duplicate key"):
        remote.execute(["BEGIN", "UPDATE t SET b = 99 WHERE a = 1", "INSERT INTO t VALUES (1, 1)", "COMMIT"])
    assert remote.query("SELECT sum(b) FROM t")[1] == [(11,)]


def test_a_begin_is_not_kept_for_the_next_message(remote):
    remote.query("BEGIN")
    remote.query("UPDATE t SET b = 1 WHERE a = 1")
    remote.query("SELECT 1")
    assert remote.query("SELECT b FROM t WHERE a = 1")[1] == [(1,)]


def test_a_read_cannot_write(remote):
    assert remote.read("FROM t WHERE a = 1 -- why") == (["a", "b"], [(1, 0)])
    assert remote.read("SHOW TABLES")[1] == [("t",)]
    for sql in ("INSERT INTO t VALUES (20, 0)", "SELECT 1; DELETE FROM t", "COMMIT; DELETE FROM t", "CHECKPOINT", ""):
        with pytest.raises(InputError):
            remote.read(sql)
    with pytest.raises(StorageError, match="read-only"):
        remote.read("EXPLAIN ANALYZE DELETE FROM t")
    assert remote.query("SELECT count(*) FROM t")[1] == [(10,)]


def test_values_come_as_python_values_and_instants_in_utc(remote):
    """Fetching an instant from DuckDB needs pytz, which is not installed."""
    columns, rows = remote.query(
        """SELECT TIMESTAMPTZ '2026-01-02 03:04:05.000006+01' AS at, NULL::TIMESTAMPTZ, 'infinity'::TIMESTAMPTZ,
                  '-infinity'::TIMESTAMPTZ, [TIMESTAMPTZ '2026-01-02 03:04:05+00'] AS "x ""y", [1, 2], {'a': 1},
                  'it''s', 1 AS at"""
    )
    assert columns[0] == "at"
    assert columns[4] == 'x "y'
    assert rows == [
        (
            datetime(2026, 1, 2, 2, 4, 5, 6, UTC), None, datetime.max.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=UTC), "['2026-01-02 03:04:05+00']", [1, 2], {"a": 1}, "it's", 1,
        )
    ]


def test_a_message_is_carried_out_once(remote):
    """DuckDB could well execute a statement both to learn its columns and to fetch its rows."""
    remote.query("CREATE TABLE log (k INTEGER)")
    assert remote.query("INSERT INTO log VALUES (1)")[1] == [(1,)]
    assert remote.query("INSERT INTO log VALUES (2) RETURNING k") == (["k"], [(2,)])
    assert remote.query("SELECT count(*) FROM log")[1] == [(2,)]


def test_an_error_of_the_owner_comes_without_the_drivers_own_statement(remote):
    with pytest.raises(StorageError) as caught:
        remote.query("SELECT * FROM absent")
    assert str(caught.value).startswith("Table with name absent does not exist!")
    assert "quack_query" not in str(caught.value)
    assert not isinstance(caught.value, ConflictError)


def test_a_stopped_server_is_gone_and_stopping_twice_does_nothing(tmp_path):
    """S40. The database goes on."""
    with duckdb.connect(str(tmp_path / "state.duckdb")) as connection:
        quack.load_extensions(connection)
        server = quack.serve(connection, quack.new_token())
        other = quack.serve(connection, quack.new_token())
        assert server.uri != other.uri
        quack.probe(server.uri, 5)
        server.stop()
        server.stop()
        with pytest.raises(StorageError, match="no owner listens"):
            quack.probe(server.uri, 5)
        quack.probe(other.uri, 5)
        other.stop()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are not kept elsewhere")
def test_a_server_without_threads_is_an_error_not_a_trap(tmp_path):
    """Where threads are limited it would accept connections and never answer; the owner goes on without it."""
    script = OPEN + """
import resource
from pathlib import Path
from canard_pipe.errors import StorageError
quack.load_extensions(connection)
connection.execute("SELECT 1::DECIMAL(9, 2)").fetchall()
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 300 * 2**20,) * 2)
try:
    quack.serve(connection, quack.new_token(), answer_seconds=1.0)
except StorageError as error:
    print(error, connection.execute("SELECT 42").fetchall())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state.duckdb")], env=HERE, capture_output=True, text=True,
        timeout=60, check=True,
    )
    assert "does not answer" in done.stdout
    assert "[(42,)]" in done.stdout


@pytest.mark.parametrize("name", quack.EXTENSIONS)
def test_a_missing_extension_is_named(monkeypatch, name):
    """E14."""
    monkeypatch.setitem(sys.modules, f"duckdb_extension_{name}", None)
    with duckdb.connect() as connection, pytest.raises(ExtensionError, match=f"duckdb-extension-{name}=="):
        quack.load_extensions(connection)


def test_an_extension_for_another_duckdb_is_named(monkeypatch):
    monkeypatch.setattr(duckdb, "__version__", "1.5.4")
    with duckdb.connect() as connection, pytest.raises(ExtensionError, match=r"does not fit duckdb 1\.5\.4"):
        quack.load_extensions(connection)


def test_an_address_has_to_be_one():
    with pytest.raises(InputError):
        quack.RemoteConnection("https://example.org", "token")


def test_only_databases_that_send_messages_load_what_is_not_signed(tmp_path):
    """They save 0.2 s of hashing so; where others' SQL is executed, DuckDB looks at the signatures."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as owner:
        token = "token-of-this-test"
        setting = "SELECT current_setting('allow_unsigned_extensions')"
        with quack.RemoteConnection(owner.serve(token=token), token) as asking:
            assert asking.query(setting)[1] == [(False,)]
