"""why: state, what happens next, cause, command, exit code or signal, stderr, folder, history, hint."""

from __future__ import annotations

import time

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import open_view
from canard_pipe.report.why import explain, why_json, why_lines
from tests.report.made import make


@pytest.fixture
def made(tmp_path):
    state = make(tmp_path)
    yield state
    state.database.close()


def why(made, name):
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        found = explain(view, name)
    now_us = time.time_ns() // 1000
    return "\n".join(why_lines(found, now_us)), why_json(found, now_us)


def test_a_failed_command_is_told_with_everything_one_needs(made):
    made.plan("A", priority=1)
    claim = made.claim()
    claim.step("align", lambda: 1)
    folder = made.command(
        claim, "call", exit_code=3, stderr="".join(f"line {n}\n" for n in range(40)) + "[E] no such contig\n"
    )
    claim.fail(
        "the command bwa ended with exit code 3",
        fatal=True,
        cause={"kind": "exit", "folder": str(folder), "exit_code": 3},
    )
    text, found = why(made, "A")
    assert text.splitlines()[0] == "A is failed after 1 failure"
    assert "canard-pipe retry A" in text
    assert "saved steps: align" in text
    assert "step: call" in text
    assert "command: bwa mem ref.fa A.fq" in text
    assert "ended: exit code 3" in text
    assert f"folder: {folder}" in text
    assert "  | [E] no such contig" in text
    assert "line 3\n" not in text
    assert "1. " in text
    assert (found["sample"], found["state"], found["exit_code"], found["signal"]) == ("A", "failed", 3, None)
    assert (found["command"], found["folder"]) == ("bwa mem ref.fa A.fq", str(folder))
    assert found["stderr"][-1] == "[E] no such contig"
    assert len(found["attempts"]) == 1


def test_a_signal_is_told_by_name_with_advice(made):
    made.plan("A")
    claim = made.claim()
    folder = made.command(claim, "align", exit_code=None, signal="SIGKILL", cause="signal")
    claim.fail("killed", fatal=True, cause={"kind": "signal", "folder": str(folder), "signal": "SIGKILL"})
    text, found = why(made, "A")
    assert "ended by SIGKILL" in text
    assert "hint: it was killed from outside, mostly for lack of memory" in text
    assert found["signal"] == "SIGKILL"


def test_the_row_of_the_command_may_be_lost_in_a_crash(made):
    """Rows of jobs only inform; the cause of the failure then still names the folder."""
    made.failed("A", "the command ended with exit code 9", {"kind": "exit", "exit_code": 9, "folder": "work/x"})
    text, found = why(made, "A")
    assert "cause: the command ended with exit code 9" in text
    assert "folder: work/x" in text
    assert found["exit_code"] == 9


def test_a_python_exception_is_told_with_its_place_and_whole_message(made):
    made.failed(
        "A", "ValueError: no reads\nin any lane", {"kind": "exception", "type": "ValueError", "where": "p.py:7 in call"}
    )
    text, _ = why(made, "A")
    assert "cause: ValueError: no reads" in text
    assert "in any lane" in text
    assert "raised: ValueError at p.py:7 in call" in text


def test_an_older_failed_command_is_not_blamed_for_a_later_exception(made):
    made.plan("A")
    claim = made.claim()
    made.command(claim, "align", stderr="old trouble\n")
    claim.fail("first", cause={"kind": "exit"})
    again = made.claim()
    again.fail("second", fatal=True, cause={"kind": "exception", "type": "KeyError", "where": "p.py:1 in f"})
    text, _ = why(made, "A")
    assert "cause: second" in text
    assert "old trouble" not in text
    assert text.count("failed after") == 3  # the head line and both attempts


def test_a_waiting_row_says_what_it_waits_for(made):
    made.plan("reference", kind="once", name="reference")
    made.plan("A", after=["reference"])
    text, _ = why(made, "A")
    assert "A is waiting" in text
    assert "needs reference: reference: waiting" in text


def test_a_row_that_is_tried_again_says_when(made):
    made.plan("A")
    made.claim().fail("broke", 3600.0)
    text, found = why(made, "A")
    assert "1 failure of 3 so far" in text
    assert "is tried again in 59 min" in text or "is tried again in 1 h" in text
    assert "cause: broke" in text
    assert found["state"] == "waiting"


def test_a_blocked_row_names_what_blocks_it(made):
    made.failed("B", "no")
    made.plan("cohort", kind="cohort", name="cohort", task=False, after=["call"])
    text, _ = why(made, "cohort")
    assert text.splitlines()[0] == "cohort is blocked by B"
    assert "needs call: B: failed" in text


def test_a_done_row_tells_what_it_published(made):
    made.plan("A")
    claim = made.claim()
    made.sql(
        "INSERT INTO canard_absurd.outputs VALUES ('a/a.bam', 'A/A.bam', 'file', 's', 'st', 'x', 1234567, 'c', "
        f"{claim.seq}, 1, 'published', now()::TIMESTAMP, now()::TIMESTAMP)"
    )
    claim.complete(None)
    text, _ = why(made, "A")
    assert "A is done" in text
    assert "A/A.bam  1.2 MB" in text


@pytest.mark.parametrize(
    ("row", "words"),
    [({"changed": True}, "--rerun-changed"), ({"retired": True}, "no longer in the sheet")],
)
def test_changed_and_retired_rows_say_what_one_can_do(made, row, words):
    made.plan("A", **row)
    made.claim().complete(None)
    text, _ = why(made, "A")
    assert words in text


def test_a_skipped_and_a_cancelled_row_say_so(made):
    made.plan("A")
    claim = made.claim()
    made.plan("B")
    claim.complete({"x": 1})
    made.sql(f"""UPDATE canard_absurd.tasks SET result = '{{"$skipped":"412 reads mapped"}}' WHERE seq = {claim.seq}""")
    made.database.cancel("germline/sample/B/1")
    made.database.close()
    assert why(made, "A")[0].startswith("A is skipped: 412 reads mapped")
    assert "canard-pipe retry B" in why(made, "B")[0]


def test_an_unknown_name_is_refused_with_the_close_ones(made):
    made.plan("sample-101")
    made.database.close()
    with open_view(made.folder, made.launch) as view, pytest.raises(InputError, match="did you mean 'sample-101'"):
        explain(view, "sample-110")


@pytest.mark.parametrize(
    "key", ["007", "1e5", "TRUE", "a b", "Ünïcode", "it's", 'say "hi"', "-x", "a/b", "x;DROP TABLE", "$key", "日本"]
)
def test_a_nasty_id_is_found_and_told_as_typed(made, key):
    made.plan(key)
    text, found = why(made, key)
    assert found["sample"] == key
    assert text.splitlines()[0] == f"{key} is waiting"


def test_control_characters_of_a_tool_do_not_reach_the_terminal(made):
    made.plan("A")
    claim = made.claim()
    folder = made.command(claim, "align", stderr="\x1b[31mred\x1b[0m \x07bell\n")
    claim.fail("broke \x1b[2J", fatal=True, cause={"kind": "exit", "folder": str(folder)})
    text, _ = why(made, "A")
    assert "\x1b" not in text
    assert "red" in text


def test_of_a_sample_that_succeeded_at_last_the_earlier_failure_is_told(made):
    made.plan("A")
    claim = made.claim()
    folder = made.command(claim, "call", stderr="trying\nno luck this time\n")
    claim.fail("exit code 1", cause={"kind": "exit", "folder": str(folder)})
    made.claim().complete(None)
    text, _ = why(made, "A")
    assert text.startswith("A is done after 1 failure\n")
    assert f"     folder: {folder}\n     | no luck this time\n" in text
    assert "cause:" not in text


def test_a_sample_that_was_made_and_changed_later_is_not_told_an_old_failure_as_its_cause(made):
    made.plan("A", changed=True)
    first = made.claim()
    first.fail("it broke on Monday", 0.0, cause={"kind": "exit", "exit_code": 3})
    made.claim().complete(None)
    text, _ = why(made, "A")
    assert text.startswith("A is changed")
    assert "cause:" not in text
    assert "failed after" in text  # the history still has it


def test_a_lack_of_memory_is_told_with_what_shows_it(made):
    made.plan("A")
    claim = made.claim()
    folder = made.command(claim, "align", exit_code=None, cause="oom")
    cause = {"kind": "oom", "folder": str(folder), "oom": True, "evidence": "it used 9 bytes and had asked for 4"}
    claim.fail("its memory ran out", fatal=True, cause=cause)
    text, _ = why(made, "A")
    assert "kind: oom: it used 9 bytes and had asked for 4" in text
    assert "ended: ended since it used more than its memory" in text
    assert "hint: it needs more memory" in text
