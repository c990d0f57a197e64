"""When a failed task comes again, and what ends it at once (L8)."""

from __future__ import annotations

import random

import pytest

import canard_pipe
from canard_pipe.engine.attempt import Outcome
from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.engine.worker import work
from canard_pipe.errors import InputError
from tests.engine.conftest import row


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 1.0), (6, 32.0), (7, 60.0), (999_999, 60.0)])
def test_the_back_off_doubles_up_to_its_cap_however_often_a_task_has_failed(failures, seconds):
    """L8."""
    assert RetryPolicy(0.5, 60.0, random=lambda: 1.0).delay_seconds(failures) == seconds


def test_the_jitter_takes_up_to_half_of_the_back_off_and_leaves_the_caller_s_stream_alone():
    """L8, G20."""
    assert RetryPolicy(1, 60, random=lambda: 0.0).delay_seconds(100) == 30
    random.seed(5)
    expected = random.random()
    random.seed(5)
    delays = {RetryPolicy(1, 60).delay_seconds(0) for _ in range(9)}
    assert random.random() == expected
    assert len(delays) > 1
    assert all(0.5 <= delay <= 1 for delay in delays)


def broken(given, ctx):
    raise {"fatal": FileNotFoundError, "not": ValueError}[given]("x")


def test_a_worker_waits_longer_after_each_failure_and_not_at_all_after_a_fatal_one(db, clock):
    """L8, S21: the named types, their subclasses too."""
    db.spawn_many("job", ["fatal", "not"], ids=["fatal", "not"])
    policy = RetryPolicy(10, 15, fatal=(OSError,), random=lambda: 1.0)
    seen: list[Outcome] = []
    work(db, {"job": broken}, idle_timeout=0, retry=policy, on_result=seen.append)
    assert {outcome.id: outcome.state for outcome in seen} == {"fatal": "failed", "not": "ready"}
    for delay in (10, 15):
        before = row(db, "not")
        assert (before["available_at"] - before["updated_at"]).total_seconds() == delay
        clock.advance(delay)
        work(db, {"job": broken}, idle_timeout=0, retry=policy, on_result=seen.append)
    assert [outcome.state for outcome in seen if outcome.id == "not"] == ["ready", "ready", "failed"]


def test_each_handler_can_have_a_policy_of_its_own(db):
    """L8: the others keep the worker's fixed delay."""
    for name in ("a", "b"):
        db.spawn(name, "not", id=name)
    work(db, {"a": broken, "b": broken}, idle_timeout=0, failure_delay=3, on_result=lambda _: None,
         retry={"a": RetryPolicy(fatal=(ValueError,))})
    assert row(db, "a")["state"] == "failed"
    found = row(db, "b")
    assert (found["available_at"] - found["updated_at"]).total_seconds() == 3


@pytest.mark.parametrize(
    "wrong",
    [{"first_seconds": -1}, {"longest_seconds": float("nan")}, {"factor": 0.5}, {"factor": "2"}, {"fatal": [OSError]},
     {"fatal": ("OSError",)}],
)
def test_what_is_no_policy_is_refused_at_once(wrong):
    """G16."""
    with pytest.raises(InputError):
        canard_pipe.RetryPolicy(**wrong)
