"""Which rows a retry or cancel is about."""

from __future__ import annotations

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.cohorts import SampleState
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
