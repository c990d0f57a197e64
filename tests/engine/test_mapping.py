"""Maps in the engine: items are child tasks, made at once, awaited together (L9; docs/engine.md, "Items")."""

from __future__ import annotations

from typing import Any

import pytest

from canard_pipe.engine import mapping, recovery, worker
from canard_pipe.errors import InputError, MapFailed, ReplayError, SpawnConflict, StorageError, TaskSuspended
from tests.engine.conftest import attempts, claimed, row, start, steps


def square(number, ctx):
    return ctx.step("square", lambda: number**2)


def work(db, handlers, **options):
    return worker.work(db, handlers, idle_timeout=0, poll_seconds=0.001, **options)


def of(numbers, **options):
    return lambda _given, ctx: ctx.map("squares", "square", numbers, **options)


def ids(db):
    return {task.id: task.state for task in db.tasks(limit=10_000)}


def test_results_come_in_the_order_of_the_items_and_the_parent_holds_no_slot(db):
    db.spawn("parent", id="p")
    work(db, {"parent": of([3, 1, 2]), "square": square}, slots=1)
    assert db.result("p") == [9, 1, 4]
    assert attempts(db, "p") == [(1, "suspended"), (2, "completed")]
    assert set(ids(db)) == {"p", "p//squares/0", "p//squares/1", "p//squares/2"}


def test_items_are_made_in_the_transaction_that_suspends_the_parent(db, faults):
    claim = start(db, "p")
    faults.names.clear()
    with pytest.raises(TaskSuspended):
        claim.map("squares", "square", range(1000))
    assert faults.names.count("commit") == 1
    assert faults.names.count("spawn_items") == 2  # the statements of its file, for all items together
    assert len(ids(db)) == 1001


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_acknowledgement_that_is_lost_makes_no_item_twice(db, faults, moment):
    """S25: whether the suspension was written is not known; the next attempt finds out."""
    claim = start(db, "p")
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        claim.map("squares", "square", [1, 2])
    assert len(ids(db)) == (1 if moment == "before" else 3)
    with pytest.raises((TaskSuspended, ReplayError)):
        claim.map("squares", "square", [1, 2])
    assert len(ids(db)) == 3
    assert row(db, "p")["state"] == "suspended"


def test_a_thousand_items_end_in_the_results_of_the_parent(db):
    db.spawn("parent", id="p")
    work(db, {"parent": of(list(range(1000))), "square": square}, slots=8)
    assert db.result("p") == [number**2 for number in range(1000)]


def test_a_saved_map_returns_its_results_and_does_not_look_at_its_items_again(db, faults):
    def parent(_given, ctx):
        ctx.map("squares", "square", [1, 2])
        return ctx.step("then", lambda: 1 / (ctx.attempt - 2))

    db.spawn("parent", id="p")
    work(db, {"parent": parent, "square": square})
    assert attempts(db, "p") == [(1, "suspended"), (2, "failed"), (3, "completed")]
    assert faults.names.count("map_items") == 2  # when it began and when all had ended


def test_without_items_there_is_nothing_to_wait_for(db):
    db.spawn("parent", id="p")
    work(db, {"parent": of([])})
    assert db.result("p") == []
    assert attempts(db, "p") == [(1, "completed")]


def test_keys_are_short_texts_themselves_or_the_index_or_what_key_says(db):
    db.spawn("parent", id="a")
    db.spawn("parent", id="b")
    work(db, {"parent": lambda _given, ctx: ctx.map("m", "echo", ["chr1", "x" * 65, None]), "echo": lambda x, _: x})
    assert {id for id in ids(db) if id.startswith("a//")} == {"a//m/chr1", "a//m/1", "a//m/2"}
    assert db.result("a") == ["chr1", "x" * 65, None]


def test_no_two_items_have_one_id():
    made = {
        mapping.item_id(parent, name, key)
        for parent, name, key in [("p", "a/b", "c"), ("p", "a", "b/c"), ("p", "a%2Fb", "c"), ("p//a/b", "c", "d"),
                                  ("p", "a", "b//c/d")]
    }
    assert len(made) == 5
    assert {mapping.root_of(id) for id in made} == {"p"}


@pytest.mark.parametrize(
    ("items", "key", "message"),
    [
        (["x", "x"], None, "items 1 and 2 of 'squares' have the same key 'x'"),
        ([1, 2], lambda _: 7, "the same key '7'"),
        ([1], lambda _: None, "key= must return text or a whole number; for item 1 of 'squares': None"),
        ([1], lambda _: "", "the key of item 1 of 'squares' must have 1 to 256"),
        ([1], lambda _: "k" * 250, "the key of item 1 of 'squares' is too long: 'kkk"),
        ("text", None, "the items of 'squares' must be a list"),
        ([object()], None, "cannot be stored"),
    ],
)
def test_items_that_cannot_be_are_refused_before_anything_is_made(db, items, key, message):
    claim = start(db, "p")
    with pytest.raises(InputError, match=message):
        claim.map("squares", "square", items, key=key)
    assert ids(db) == {"p": "running"}


def test_a_function_is_not_the_name_of_a_handler(db):
    with pytest.raises(InputError, match="takes the name of a handler"):
        start(db, "p").map("squares", square, [1])


def test_a_foreign_task_in_the_place_of_an_item_is_a_conflict(db):
    claim = start(db, "p")
    db.spawn("square", 1, id="p//squares/0")
    with pytest.raises(SpawnConflict, match="p//squares/0"):
        claim.map("squares", "square", [1])


def test_maps_nest_once(db):
    def outer(_given, ctx):
        return ctx.map("outer", "inner", [1, 2])

    def inner(number, ctx):
        return sum(ctx.map("inner", "square", [number, number + 1]))

    db.spawn("outer", id="p")
    work(db, {"outer": outer, "inner": inner, "square": square}, slots=1)
    assert db.result("p") == [5, 13]
    assert "p//outer/0//inner/1" in ids(db)


def test_a_map_in_an_item_of_an_item_is_refused(db):
    db.spawn("deep", 0, id="p", max_failures=1)
    work(db, {"deep": lambda depth, ctx: ctx.map("m", "deep", [depth + 1])}, on_result=lambda _: None)
    assert "maps can be nested once" in (row(db, "p//m/0//m/0")["error"] or "")
    assert {row(db, id)["state"] for id in ids(db)} == {"failed"}


def test_an_item_that_failed_for_good_fails_the_map_when_the_others_have_ended(db):
    caught = []

    def parent(_given, ctx):
        try:
            ctx.map("m", "odd", [1, 2, 3, 4])
        except MapFailed as failed:
            caught.append(failed)
            raise

    def odd(number, _ctx):
        if number % 2 == 0:
            raise ValueError(f"{number} is even")
        return number

    db.spawn("parent", id="p", max_failures=2)
    work(db, {"parent": parent, "odd": odd}, on_result=lambda _: None)
    (failed,) = caught
    assert [(each.key, each.state, each.error) for each in failed.failures] == [
        ("1", "failed", "2 is even"), ("3", "failed", "4 is even"),
    ]
    assert failed.failures[0].cause["type"] == "ValueError"
    assert failed.results == {"0": 1, "2": 3}
    assert str(failed).splitlines() == ["2 of 4 items of 'm' failed: 1, 3", "  1: 2 is even", "  3: 4 is even"]
    assert attempts(db, "p//m/1") == [(1, "failed"), (2, "failed")]  # its own failures count for it
    assert (row(db, "p")["state"], row(db, "p")["failures"]) == ("failed", 1)  # a repeat does not help


def test_a_map_that_began_wants_the_same_items_again(db):
    given = [[1, 2], [1, 3]]
    db.spawn("parent", id="p", max_failures=1)
    handlers = {
        "parent": lambda _given, ctx: ctx.map("m", "echo", given[ctx.attempt - 1], key=str), "echo": lambda x, _: x,
    }
    outcomes: list[Any] = []
    work(db, handlers, on_result=outcomes.append)
    (error,) = [each.error for each in outcomes if each.status == "failed"]
    assert isinstance(error, ReplayError)
    assert "the items 1, 2, but is asked for as 1, 3" in str(error)


def test_a_map_and_a_step_share_their_names(db):
    claim = start(db, "p")
    claim.step("m", lambda: 1)
    with pytest.raises(ReplayError):
        claim.map("m", "square", [1])


def test_cancelling_a_task_cancels_its_unfinished_items_and_tells_their_handlers(db):
    db.spawn("parent", id="p")
    work(db, {"parent": of([1, 2, 3])})
    item = claimed(db, names=["square"])
    item.complete(1)
    item = claimed(db, names=["square"])
    assert db.cancel("p")
    assert item.lost.is_set()
    assert sorted(ids(db).values()) == ["cancelled", "cancelled", "cancelled", "completed"]


def test_an_item_that_is_cancelled_alone_fails_the_map(db):
    db.spawn("parent", id="p")
    work(db, {"parent": of([1, 2])})
    db.cancel("p//squares/0")
    outcomes: list[Any] = []
    work(db, {"parent": of([1, 2]), "square": square}, on_result=outcomes.append)
    assert "1 of 2 items of 'squares' cancelled: 0" in str(outcomes[-1].error)


def test_a_crash_between_is_made_good_by_the_next_owner(reopen):
    db = reopen()
    db.spawn("parent", id="p")
    work(db, {"parent": of([1, 2])})
    claimed(db, names=["square"])  # nobody ends it
    db = reopen()
    work(db, {"parent": of([1, 2]), "square": square})
    assert db.result("p") == [1, 4]


def test_what_has_begun_comes_before_what_was_made_with_it(db):
    begun = []

    def parent(given, ctx):
        begun.append(ctx.id)
        return ctx.map("m", "note", [1])

    def note(_given, ctx):
        begun.append(ctx.id)

    db.spawn_many("parent", [None, None], ids=["a", "b"])
    work(db, {"parent": parent, "note": note}, slots=1)
    assert begun.index("a//m/0") < begun.index("b")


def test_gone_files_of_a_saved_map_run_the_items_that_they_are_of_again(db, tmp_path):
    made = []

    def write(name, ctx):
        def act():
            made.append(name)
            (tmp_path / name).write_text(name)
            return tmp_path / name

        return ctx.step("write", act)

    def parent(_given, ctx):
        files = ctx.map("m", "write", ["a", "b", "c"])
        if ctx.attempt == 2:
            (tmp_path / "b").unlink()
            raise ValueError("somebody tidies up")
        return [file.read_text() for file in files]

    db.spawn("parent", id="p")
    work(db, {"parent": parent, "write": write}, on_result=lambda _: None)
    assert db.result("p") == ["a", "b", "c"]
    assert made == ["a", "b", "c", "b"]


def test_gone_files_of_a_step_before_a_map_make_its_items_anew(db, tmp_path):
    made = []

    def parent(_given, ctx):
        ctx.step("prepare", lambda: (tmp_path / "list").write_text("x") and tmp_path / "list")
        ctx.map("m", "note", ["a"])
        if ctx.attempt == 2:
            (tmp_path / "list").unlink()
            raise ValueError("somebody tidies up")

    def note(name, ctx):
        ctx.step("note", lambda: made.append(name))

    db.spawn("parent", id="p")
    work(db, {"parent": parent, "note": note}, on_result=lambda _: None)
    assert row(db, "p")["state"] == "completed"
    assert made == ["a", "a"]
    assert [name for name, _ in steps(db, "p//m/a")] == ["note"]


def test_retention_never_removes_an_item_of_an_unfinished_task(db, clock):
    db.spawn("parent", id="p")
    work(db, {"parent": of([1, 2])})
    claimed(db, names=["square"]).complete(1)
    clock.advance(1000)
    assert db.retain(older_than_seconds=0) == 0
    work(db, {"parent": of([1, 2]), "square": square})
    clock.advance(1000)
    assert db.retain(older_than_seconds=0) == 3
    assert db.store.sql("SELECT count(*) FROM canard_absurd.children")[1] == [(0,)]


def test_an_item_that_kills_every_run_is_blamed_itself(reopen):
    """A dead owner's rule holds for the item that was at work; its parent only waits."""
    db = reopen()
    db.spawn("parent", id="p")
    work(db, {"parent": of([1, 2])})
    for _ in range(recovery.RUNS_BEFORE_BLAME):
        assert claimed(db, names=["square"]).id == "p//squares/0"
        db = reopen()
    assert row(db, "p//squares/0")["state"] == "failed"
    outcomes: list[Any] = []
    work(db, {"parent": of([1, 2]), "square": square}, on_result=outcomes.append)
    assert "0: kills the run: 10 runs in a row died while it ran" in str(outcomes[-1].error)
    assert row(db, "p//squares/1")["state"] == "completed"
