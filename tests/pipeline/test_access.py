"""How another process looks at a state: over Quack while its owner lives, else in the file, else status.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from canard_pipe.errors import InputError, StateHeld, StorageError
from canard_pipe.pipeline.access import ask, living_owner, open_view
from canard_pipe.pipeline.opening import open_state
from tests.conftest import wait_until

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import sys, time, json
from pathlib import Path
from canard_pipe.pipeline.opening import open_state
state = Path(sys.argv[1])
with open_state(state, state.parent) as database:
    database.spawn("call", None, id="it's one")
    if "serve" in sys.argv:
        database.serve()
    (state / "ready").touch()
    while not (state / "stop").exists():
        if "answer" in sys.argv:
            _, rows = database.store.sql(
                "SELECT request_id, arguments FROM canard_absurd.requests WHERE answered_at IS NULL")
            for id, arguments in rows:
                answer = json.dumps({"ok": True, "message": "heard " + arguments})
                database.write("answer_requests", [{"request_id": id, "answer": answer}])
        time.sleep(0.02)
"""


class Owner:
    """A process that owns a state."""

    def __init__(self, state: Path, *how: str) -> None:
        state.mkdir()
        self.state = state
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([sys.executable, "-c", OWNER, str(state), *how], env=environ)
        wait_until(lambda: (state / "ready").exists() or self.process.poll() is not None, 20)
        assert self.process.poll() is None

    def end(self) -> None:
        (self.state / "stop").touch()
        assert self.process.wait(20) == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


@pytest.fixture
def start(tmp_path):
    owners: list[Owner] = []

    def begin(*how: str) -> Owner:
        owners.append(Owner(tmp_path / ".canard", *how))
        return owners[-1]

    yield begin
    for owner in owners:
        if owner.process.poll() is None:
            owner.kill()


def view_of(state):
    return open_view(state, state.parent)


def ids(view):
    return [row[0] for row in view.query("list_tasks", id=None, queue=None, states=None, most=10)]


def test_a_living_owner_is_asked(start):
    owner = start("serve")
    with view_of(owner.state) as view:
        assert view.source == "live"
        assert ids(view) == ["it's one"]
        assert view.sql("SELECT count(*) AS n FROM canard_absurd.tasks") == (["n"], [(1,)])


def test_a_named_statement_gets_its_values_also_over_quack(start):
    owner = start("serve")
    with view_of(owner.state) as view:
        assert len(view.query("list_tasks", id="it's one", queue=None, states='["ready"]', most=10)) == 1
        assert view.query("list_tasks", id="it''s one", queue=None, states=None, most=10) == []


@pytest.mark.parametrize(
    "text",
    ["DELETE FROM canard_absurd.tasks", "SELECT nextval('canard_absurd.task_seq')",
     "EXPLAIN ANALYZE DELETE FROM canard_absurd.tasks",
     "SELECT 1; DELETE FROM canard_absurd.tasks", "COPY canard_absurd.tasks TO 'x.csv'", "CREATE TABLE x (a INT)"],
)  # fmt: skip
def test_without_write_nothing_is_changed_whoever_is_asked(start, text):
    owner = start("serve")
    for _ in range(2):
        with view_of(owner.state) as view:
            with pytest.raises((InputError, StorageError)):
                view.sql(text)
            assert ids(view) == ["it's one"]
        if owner.process.poll() is None:
            owner.end()
    assert view.source == "file"


def test_with_write_the_living_owner_changes_it(start):
    owner = start("serve")
    with view_of(owner.state) as view:
        view.sql("UPDATE canard_absurd.tasks SET priority = 7", write=True)
        assert view.sql("SELECT priority FROM canard_absurd.tasks")[1] == [(7,)]


def test_an_instant_with_a_zone_can_be_asked_for_either_way(start):
    """Fetching TIMESTAMPTZ needs pytz, which is not installed."""
    owner = start("serve")
    for _ in range(2):
        with view_of(owner.state) as view:
            ((moment, number),) = view.sql("SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at, 1 AS n;")[1]
            assert str(moment).startswith("2026-01-01 00:00:00+00")
            assert number == 1
        if owner.process.poll() is None:
            owner.end()


def test_when_the_owner_has_ended_the_file_is_read_and_let_go(start):
    owner = start()
    owner.end()
    assert living_owner(owner.state) is None
    with view_of(owner.state) as view:
        assert view.source == "file"
        assert ids(view) == ["it's one"]
    open_state(owner.state, owner.state.parent, wait_seconds=0).close()


def test_after_the_owner_was_killed_the_file_is_read_with_all_that_was_committed(start):
    owner = start("serve")
    owner.kill()
    with view_of(owner.state) as view:
        assert (view.source, ids(view)) == ("file", ["it's one"])


def test_an_owner_that_does_not_listen_leaves_only_its_snapshot(start):
    owner = start()
    (owner.state / "status.json").write_text('{"pipeline": "p"}')
    with view_of(owner.state) as view:
        assert view.source == "snapshot"
        assert view.snapshot == {"pipeline": "p"}
        assert "does not listen" in view.reason
        with pytest.raises(StateHeld, match=str(owner.process.pid)):
            view.sql("SELECT 1")


def test_without_a_snapshot_the_holder_is_named(start):
    owner = start()
    with pytest.raises(StateHeld, match=f"process {owner.process.pid} on"):
        view_of(owner.state)


def test_an_owner_on_another_host_is_never_connected_to(tmp_path):
    state = tmp_path / ".canard"
    open_state(state, tmp_path).close()
    record = json.loads((state / "owner.json").read_text())
    record |= {"host": "elsewhere", "released": False, "uri": "quack:127.0.0.1:1", "token": "t"}
    (state / "owner.json").write_text(json.dumps(record))
    (state / "status.json").write_text("{}")
    with view_of(state) as view:
        assert view.source == "snapshot"
        assert "elsewhere" in view.reason


def test_where_nothing_was_run_nothing_is_made(tmp_path):
    with pytest.raises(InputError, match="--state"):
        view_of(tmp_path / ".canard")
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_answered_by_the_living_owner(start):
    owner = start("serve", "answer")
    with view_of(owner.state) as view:
        answer = ask(view, "cancel", {"keys": ["it's one"]}, now_us=1)
    assert answer.ok
    assert answer.message == """heard {"keys": ["it's one"]}"""


def test_a_request_that_nobody_answers_ends(start):
    owner = start("serve")
    with view_of(owner.state) as view, pytest.raises(StorageError, match="has not answered"):
        ask(view, "cancel", {"keys": []}, now_us=1, seconds=0.3)
