"""A database that is served while it is written."""

from __future__ import annotations

import json
import random
import threading
from contextlib import closing
from typing import Any

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.engine.quack.asking import Asking
from canard_pipe.engine.remote import RemoteDatabase
from canard_pipe.errors import OwnerUnreachable

TOKEN = "token-of-the-servers-tests"


class Counted(RemoteDatabase):
    """A connection that notes what it asks."""

    def __init__(self, uri: str, token: str) -> None:
        self.asked: list[str] = []
        super().__init__(uri, token)

    def ask(self, question: str, /, **given: Any) -> Any:
        self.asked.append(question)
        return super().ask(question, **given)

    def told(self) -> list[str]:
        """Return what was asked since the last call."""
        asked, self.asked = self.asked, []
        return asked


def test_serving_begins_beside_a_busy_writer_without_taking_its_results(tmp_path):
    """A DuckDB connection holds one result: what another thread executes on the writer's own would take its rows."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as database:
        ids = database.spawn_many("job", list(range(120)))
        begun = threading.Event()
        problems: list[BaseException] = []

        def write() -> None:
            try:
                for claim in database.claim_many(120, lease_seconds=60):
                    claim.step("a", lambda: 1)
                    begun.set()
                    claim.complete(2)
            except BaseException as error:
                problems.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(20)
        for _ in range(5):
            database.serve()
            database.stop_serving()
        writer.join(60)
        assert problems == []
        assert {database.result(id) for id in ids} == {2}


def test_each_thing_is_one_message(tmp_path):
    """A step, a claim of many, a renewal of many and an end are one question each; a saved step is none."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as owner, Counted(owner.serve(token=TOKEN), TOKEN) as db:
        assert db.told() == ["hello"]
        db.spawn_many("job", list(range(50)))
        assert db.told() == ["spawn"]
        claims = db.claim_many(50, lease_seconds=60)
        assert len(claims) == 50
        assert db.told() == ["claim"]
        assert [claims[0].input, claims[0].step("a", lambda: 1), claims[0].step("b", lambda: 2)] == [0, 1, 2]
        assert db.told() == ["write", "write"]
        db.renew(claims)
        claims[0].release()
        assert db.told() == ["write", "write"]
        (again,) = db.claim_many(1)
        assert db.told() == ["claim"]
        assert [again.step("a", lambda: 3), again.step("b", lambda: 3)] == [1, 2]
        assert db.told() == []
        again.complete()
        assert db.cancel(claims[1].id)
        assert db.told() == ["write", "cancel"]


def test_an_owner_that_ends_in_order_tells_idle_workers_so(tmp_path):
    """Without it a worker that knows an address only could not tell the end of a run from a dead owner."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as owner:
        uri = owner.serve(token=TOKEN, farewell=True)
        with Counted(uri, TOKEN) as db:
            assert db.claim() is None
            heard: list[OwnerUnreachable] = []

            def idle() -> None:
                while not heard:
                    try:
                        db.claim()
                    except OwnerUnreachable as error:
                        heard.append(error)

            worker = threading.Thread(target=idle)
            worker.start()
            owner.stop_serving()
            worker.join(20)
            assert (heard[0].closing, heard[0].sent) == (True, False)
            with pytest.raises(OwnerUnreachable) as gone:
                db.claim()
            assert not gone.value.closing


NONSENSE = (
    "", "null", "[]", "{", "3", '"ask"', "[" * 100_000, '{"ask": "claim"}', '{"ask": ["claim"], "with": {}}',
    '{"ask": "no such thing", "with": {}}', '{"ask": "query", "with": {"name": "../../secret"}}',
    '{"ask": "query", "with": {"name": "live_tasks", "ids": 5}}', '{"ask": "hello", "with": {"more": 1}}',
    '{"ask": "write", "with": {"writes": [["complete_tasks"]], "riders": [["", 5]]}}',
    '{"ask": "write", "with": {"writes": [], "riders": [["no_such_statement", {"a": 1}]]}}',
    '{"ask": "write", "with": {"writes": [], "riders": [["record_attempts", {"a": 1}]]}}',
    '{"ask": "\\ud800", "with": {}}',
)


def test_a_question_that_makes_no_sense_is_answered_with_an_error_and_changes_nothing(tmp_path):
    """Those of a client of another release, or of one that is broken: bits of good questions, put together anew."""
    chance = random.Random(11)
    with Database(tmp_path / "state.duckdb", root=tmp_path) as owner:
        asking = Asking(owner.serve(token=TOKEN), TOKEN)
        with closing(asking), Counted(asking.uri, TOKEN) as db:
            db.spawn_many("job", [1, 2], ids=["t", "u"])
            claim = db.claim(lease_seconds=600)
            assert claim is not None
            before = owner.store.sql("FROM canard_absurd.tasks ORDER BY seq")
            names = ("claim", "write", "spawn", "emit", "cancel", "look", "read_task", "disown", "query", "retain")
            bits: tuple[Any, ...] = (
                None, True, -1, 2**70, 0.5, "", "t'; DROP TABLE x; --", [], [[1]], {}, {"a": None}, "\udc00", ["t", 3],
            )
            keys = ("writes", "riders", "rows", "name", "text", "events", "tasks", "id", "limit", "queue", "sweep")
            mixed = [
                json.dumps({"ask": chance.choice(names), "with": {
                    key: chance.choice(bits) for key in chance.sample(keys, chance.randrange(4))
                }})
                for _ in range(150)
            ]
            for text in (*NONSENSE, *mixed):
                answer = json.loads(asking.ask(text, "nonsense"))
                assert "value" not in answer or answer["value"] in (None, 0, False, [], ["[]", True]), (text, answer)
            assert owner.store.sql("FROM canard_absurd.tasks ORDER BY seq") == before
            claim.complete(3)
            assert db.result("t") == 3
