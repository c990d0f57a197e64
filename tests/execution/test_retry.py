"""How often a command is tried, by how it failed: what is declared, and what follows (BUGS 38, 39)."""

from __future__ import annotations

import pytest

from canard_pipe.errors import InputError
from canard_pipe.execution.retry import Failed, Tries, decide, tries_of


def failed(*words: str | int) -> list[Failed]:
    """Tries that failed: a number is an exit code."""
    return [Failed("exit", word) if isinstance(word, int) else Failed(word, None) for word in words]


def again(tries: list[Failed], declared: Tries | None = None, *, grows: bool = False, over_its_own: bool = False):
    found = decide(tries, declared or Tries(), grows=grows, over_its_own=over_its_own)
    return "final" if found.final else "counted" if found.counted else "free"


@pytest.mark.parametrize(
    ("word", "follows"),
    [("exit", "counted"), ("signal", "counted"), ("broken_pipe", "counted"), ("output", "counted"),
     ("disk_full", "counted"), ("oom", "counted"), ("timeout", "counted"), ("not_found", "final"),
     ("not_executable", "final"), ("node_failure", "free"), ("preempted", "free")],
)  # fmt: skip
def test_what_follows_by_cause_where_nothing_is_declared(word, follows):
    assert again(failed(word)) == follows


def test_a_try_that_gets_more_than_the_last_uses_no_budget_of_the_task():
    assert again(failed("oom", "oom", "oom", "oom"), grows=True) == "free"
    assert again(failed("timeout"), grows=True) == "free"
    assert again(failed("oom"), over_its_own=True) == "final"


def test_declared_tries_count_by_exit_code_then_by_cause_then_for_any():
    retry = Tries({75: 3, "exit": 1, "timeout": 2, "any": 4})
    assert [again(failed(*[75] * count), retry) for count in (1, 2, 3)] == ["free", "free", "final"]
    assert again(failed(1), retry) == "final"
    assert [again(failed(*["timeout"] * count), retry) for count in (1, 2)] == ["free", "final"]
    assert again(failed("signal", 75, 1), retry) == "final", "a code of its own is no exit of another code"
    assert [again(failed("signal", "signal", *["oom"] * count), retry) for count in (1, 2)] == ["free", "final"]


def test_declared_tries_also_bound_a_request_that_grows():
    assert again(failed("oom", "oom"), Tries({"oom": 2}), grows=True) == "final"


def test_a_command_is_asked_before_its_pipeline():
    both = Tries({"exit": 1}, first="5s").before(Tries({"exit": 9, "timeout": 2}, first="1s", longest="10s"))
    assert both.allowed == {"exit": 1, "timeout": 2}
    assert (both.first_seconds, both.longest_seconds) == (5, 10)


def test_a_number_is_for_whatever_happens():
    assert tries_of(1).allowed == {"any": 1}
    assert tries_of(None).allowed == {}
    assert again(failed(1), tries_of(1)) == "final"


@pytest.mark.parametrize("wrong", [0, {"exit": 0}, {"oops": 2}, {0: 2}, {256: 1}, {True: 1}, {"exit": True}])
def test_what_is_no_number_of_tries_is_refused(wrong):
    with pytest.raises(InputError):
        tries_of(wrong)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 1.0), (6, 32.0), (7, 60.0), (999_999, 60.0)])
def test_the_rest_doubles_up_to_its_cap_however_often_a_command_has_failed(failures, seconds):
    assert Tries().rest_seconds(failures, lambda: 1.0) == seconds


def test_the_jitter_takes_up_to_half_of_the_rest_and_first_and_longest_can_be_set():
    retry = Tries({75: 5}, first="1m", longest="10m")
    assert retry.rest_seconds(0, lambda: 0.0) == 30
    assert retry.rest_seconds(100, lambda: 1.0) == 600
    assert Tries(first="5m").rest_seconds(3, lambda: 1.0) == 300, "a first rest beyond the cap is meant"
