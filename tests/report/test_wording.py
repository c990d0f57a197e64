"""Words and numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canard_pipe.report.hints import hint
from canard_pipe.report.wording import (
    duration,
    exit_in_words,
    first_line,
    memory,
    parse_instant,
    size,
    states_in_words,
    visible,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.9, "9.9 s"),
        (12.2, "12 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (-3, "0.0 s"),
    ],
)
def test_durations_read_well(seconds, words):
    assert duration(seconds) == words


def test_sizes_count_by_1000_and_memory_by_1024_as_its_options_do():
    assert [size(2), size(12_345), size(3_500_000), size(None)] == ["2 B", "12 kB", "3.5 MB", "?"]
    assert [memory(4 * 1024**3), memory(11_591_680), memory(1536 * 1024**2)] == ["4 GiB", "11 MiB", "1.5 GiB"]


def test_states_that_need_somebody_come_first():
    assert states_in_words({"done": 3, "failed": 1, "waiting": 0}) == "1 failed, 3 done"
    assert states_in_words({}) == "none"


def test_signals_and_codes_are_told_with_what_they_mean():
    assert "out of memory" in exit_in_words(None, "SIGKILL")
    assert exit_in_words(127, None) == "exit code 127 (a program was not found)"
    assert exit_in_words(1, None) == "exit code 1"


@given(st.text())
def test_what_is_shown_is_one_line_without_control_characters(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown


def test_a_long_line_keeps_its_beginning_and_its_end():
    """The exit code stands after the command."""
    line = first_line("\n  the command " + "x" * 500 + " ended with exit code 3\nmore", 80)
    assert line.startswith("the command x")
    assert line.endswith("ended with exit code 3")
    assert len(line) <= 80


def test_instants_come_as_text_or_as_microseconds():
    assert parse_instant("1970-01-01T00:00:01+00:00") == 1_000_000
    assert parse_instant("1970-01-01T00:00:01") == 1_000_000
    assert parse_instant(7) == 7
    assert parse_instant("yesterday") is None
    assert parse_instant(None) is None


@pytest.mark.parametrize(
    ("cause", "code", "signal", "word"),
    [
        ({"kind": "not_found"}, None, None, "install"),
        ({"kind": "disk_full"}, 1, None, "room"),
        ({"kind": "broken_pipe"}, None, "SIGPIPE", "sigpipe_ok"),
        ({"kind": "signal"}, None, "SIGKILL", "memory"),
        ({"kind": "exit", "exit_code": 137}, None, None, "memory"),
        ({"kind": "timeout"}, None, None, "time"),
        ({"kind": "bad_input"}, None, None, "input file"),
        ({"kind": "exit", "oom": True}, 1, None, "memory"),
    ],
)
def test_a_failure_comes_with_advice_by_its_cause(cause, code, signal, word):
    assert word in (hint(cause, code, signal) or "")


def test_a_tools_own_exit_code_gets_no_advice():
    assert hint({"kind": "exit"}, 3, None) is None
