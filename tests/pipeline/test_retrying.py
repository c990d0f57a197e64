"""Which rows a retry or cancel is about."""

from __future__ import annotations

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError
from canard_pipe.pipeline.cohorts import SampleState
from canard_pipe.pipeline.overrides import Override, Overrides, keep, parse_override
from canard_pipe.pipeline.retrying import RETRYABLE, choose


def state(key: str, state: str, *, kind: str = "sample", task: bool = True) -> SampleState:
    return SampleState(
        kind, "one", key, state, f"p/{kind}/{key}/1" if task else None, 1, 1, 0, 3, None, None, None, key, 1, 1, 2
    )


STATES = [state("A", "done"), state("B", "failed"), state("C", "cancelled"), state("join", "blocked", task=False)]


def test_named_rows_are_taken_in_the_order_named_and_the_others_refused_with_their_state():
    chosen = choose(STATES, ["C", "A", "B", "join", "C"], every=False, possible=RETRYABLE, verb="retry")
    assert [row.key for row in chosen.rows] == ["C", "B"]
    assert chosen.refused == ("A is done", "join is blocked")


def test_of_every_row_those_that_cannot_be_taken_are_passed_over():
    chosen = choose(STATES, [], every=True, possible=("failed",), verb="retry")
    assert [row.key for row in chosen.rows] == ["B"]
    assert chosen.refused == ()


@pytest.mark.parametrize("keys", [[], ["B", "Z"]])
def test_nothing_and_unknown_names_are_refused(keys):
    with pytest.raises(InputError):
        choose(STATES, keys, every=False, possible=RETRYABLE, verb="retry")


def test_rows_are_not_compared_with_each_other(monkeypatch):
    """10,000 names would take 16 s."""
    monkeypatch.setattr(SampleState, "__eq__", lambda *_: pytest.fail("a row was compared"))
    rows = [state(str(number), "failed") for number in range(10)]
    assert len(choose(rows, [row.key for row in rows], every=False, possible=RETRYABLE, verb="retry").rows) == 10


HUNGRY = """
from canard_pipe import Escalate

class Row(SampleRow):
    sample: str

pipeline = Pipeline("hungry", rows=Row, key="sample")

@pipeline.sample(max_failures=1)
def one(sample, ctx):
    ctx.step("first", lambda: ctx.process(["sh", "-c", "true"], memory="1M"))
    if not (HERE / "mended").exists():
        raise ValueError("not yet")
    ctx.step("small", lambda: ctx.process(["sh", "-c", "true"], memory="1M", time="5m"))
    ctx.step("grows", lambda: ctx.process(["sh", "-c", "true"], memory=Escalate("1M", max="2M")))
    ctx.step("large", lambda: ctx.process(["sh", "-c", "true"], memory="30M", time=Escalate("4h", max="8h")))
"""
ASKED = (
    "SELECT step, memory_bytes // (1024 * 1024), time_seconds FROM canard_absurd.jobs j "
    "JOIN canard_absurd.tasks t ON t.seq = j.task_seq WHERE t.id LIKE '%/A/%' ORDER BY j.ended_at"
)


def test_a_retry_with_more_lets_the_commands_of_that_sample_ask_for_at_least_that(project):
    project.write(HUNGRY, "sample\nA\nB\n")
    project.run()
    (project.folder / "mended").touch()
    assert project.retry("A", memory="20M", time="1h").exit_status == 1  # B is still failed
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        _, rows = database.store.sql(ASKED)
        assert [tuple(row) for row in rows] == [
            ("first", 1, None), ("small", 20, 3600.0), ("grows", 20, None), ("large", 30, 4 * 3600.0),
        ]  # fmt: skip
        assert len(database.query("overrides", seq=None)) == 1
    project.retry("B")
    assert project.retry("A", from_step="small", time="2h").exit_status == 0  # the memory of the first retry stays
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        ((count, memory, seconds),) = database.store.sql(
            "SELECT count(*), max(memory_bytes), max(time_seconds) FROM canard_absurd.overrides"
        )[1]
        assert (count, memory, seconds) == (1, 20 * 1024**2, 7200.0)


@pytest.mark.parametrize(("memory", "time"), [("much", None), (None, "long"), (True, None), (None, ["1h"]), (-5, None)])
def test_what_is_no_size_or_time_is_refused(memory, time):
    with pytest.raises(InputError):
        parse_override(memory, time)


def test_a_living_run_takes_the_override_of_a_request(project):
    with Database(None, root=project.folder) as database:
        overrides = Overrides(database)
        assert not overrides.of(7, 1)
        database.writer.transact(lambda: keep(database, [7], parse_override("1G", None)))
        assert overrides.of(7, 2) == Override(1024**3, None)  # claimed before the reload
        overrides.reload()
        assert overrides.of(7, 1) == Override(1024**3, None)
