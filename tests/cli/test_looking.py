"""status, why, logs, sql on a state at rest: what is printed, for people and for machines."""

from __future__ import annotations

import csv
import io
import json

import pytest

from canard_pipe.cli.main import invoke
from tests.report.made import make


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Make a state with three samples, and call the command line in its folder: exit status, stdout, stderr."""
    made = make(tmp_path)
    failing = made.failed("B", "the command ended with exit code 3", {"kind": "exit", "exit_code": 3})
    made.command(failing, "call", exit_code=3, stderr="broken reads\n")
    made.plan("A")
    claim = made.claim()
    claim.step("align", lambda: 1)
    claim.complete(None)
    made.plan("007 x", task=False)
    made.database.close()
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = invoke(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_status_shows_counts_samples_and_steps(call):
    status, out, _ = call("status")
    assert status == 0
    assert "germline: 3 samples: 1 failed, 1 waiting, 1 done" in out
    assert "no run is going on; the last one ended" in out
    assert any(
        line.split()[:2] == ["B", "failed"] and line.endswith("ended with exit code 3") for line in out.splitlines()
    )
    assert "why: canard-pipe why B" in out


def test_without_a_terminal_there_is_no_colour_and_no_line_is_cut(call):
    _, out, _ = call("status")
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_status_in_json_has_one_object_per_sample_with_its_id_as_typed(call):
    status, out, _ = call("status", "--json")
    rows = json.loads(out)
    assert status == 0
    assert [(row["sample"], row["state"]) for row in rows] == [("B", "failed"), ("A", "done"), ("007 x", "waiting")]
    assert len(out.splitlines()) == len(rows) + 2


def test_status_can_be_filtered_and_cut(call):
    assert [row["sample"] for row in json.loads(call("status", "--json", "--only", "done")[1])] == ["A"]
    out = call("status", "--limit", "1")[1]
    assert "2 more are not shown" in out
    assert "\nA " not in out


def test_status_counts_for_machines_and_pages_for_people(call):
    found = json.loads(call("status", "--counts", "--json")[1])
    assert found["counts"] == {"sample": {"failed": 1, "waiting": 1, "done": 1}}
    assert (found["steps"], found["run"]["exit_status"]) == ({"align": 2}, 1)
    assert "007" not in call("status", "--counts")[1]
    out = call("status", "--sort", "sample", "--offset", "1", "--limit", "1")[1]
    assert "rows 2 to 2 of 3" in out
    assert "1 more are not shown" in out
    status, _, err = call("status", "--sample", "07 x")
    assert (status, "did you mean '007 x'" in err) == (2, True)


def test_why_tells_people_and_machines_the_same(call):
    status, out, _ = call("why", "B")
    assert (status, "broken reads" in out, "exit code 3" in out) == (0, True, True)
    found = json.loads(call("why", "B", "--json")[1])
    assert (found["sample"], found["state"], found["exit_code"], found["stderr"]) == (
        "B",
        "failed",
        3,
        ["broken reads"],
    )


def test_logs_are_told_with_the_file_they_come_from(call):
    status, out, _ = call("logs", "B")
    assert status == 0
    assert out == "==> work/germline/B/call/attempt-1/stderr.log <==\nbroken reads\n"
    assert call("logs", "B", "sort")[0] == 2
    assert call("logs", "A") == (0, "", "no command of A has begun\n")


def test_following_the_logs_of_what_has_ended_ends(call):
    assert call("logs", "-f", "B", "call")[1].endswith("broken reads\n")


def test_sql_answers_as_table_json_and_csv(call):
    question = "select sample, state from canard_absurd.samples where kind = 'sample' order by sample"
    status, out, _ = call("sql", question)
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["sample", "state"], ["007", "x", "waiting"], ["A", "done"], ["B", "failed"],
    ]  # fmt: skip
    assert json.loads(call("sql", "--json", question)[1])[1] == {"sample": "A", "state": "done"}
    assert list(csv.reader(io.StringIO(call("sql", "--csv", question)[1])))[1] == ["007 x", "waiting"]


def test_sql_values_that_json_has_not_are_text(call):
    question = (
        "select date '2026-01-02' as d, 1.50::decimal(4,2) as n, {'a': [1, null]} as s, '\\xC3a'::blob as b, null as z"
    )
    (row,) = json.loads(call("sql", "--json", question)[1])
    assert row == {"d": "2026-01-02", "n": "1.50", "s": {"a": [1, None]}, "b": "c361", "z": None}


def test_sql_that_writes_needs_its_option(call):
    assert call("sql", "delete from canard_absurd.tasks")[0] == 2
    assert call("sql", "--json", "select count(*) as n from canard_absurd.tasks")[1] == '[\n{"n": 2}\n]\n'
    assert call("sql", "--write", "update canard_absurd.tasks set priority = 9")[0] == 0
    assert json.loads(call("sql", "--json", "select distinct priority from canard_absurd.tasks")[1]) == [
        {"priority": 9}
    ]


def test_a_mistake_in_sql_is_told_in_duckdbs_words(call):
    status, out, err = call("sql", "selec 1")
    assert (status, out) == (2, "")
    assert "syntax error" in err
    assert call("sql", "select * from nowhere")[0] == 2


def test_a_cancel_without_a_run_is_done_at_once(call):
    call("sql", "--write", "update canard_absurd.planned set task_id = 'germline/sample/007/1' where key = '007 x'")
    call(
        "sql",
        "--write",
        "insert into canard_absurd.tasks select 'germline/sample/007/1', 99, name, queue, 'ready', priority, 0, 0, 3, "
        "created_at, created_at, created_at, null, null, null, null, null, 0, input, null "
        "from canard_absurd.tasks limit 1",
    )
    assert call("cancel", "007 x")[:2] == (0, "cancelled: 007 x\n")
    assert call("cancel", "007 x", "--json")[1].startswith('{"ok": true, "message": "nothing to cancel')
    assert call("cancel", "nobody")[0] == 2
    assert json.loads(call("status", "--json", "--only", "cancelled")[1])[0]["sample"] == "007 x"


def test_a_state_elsewhere_is_named_by_its_option(call, tmp_path, monkeypatch):
    """Paths are told from its launch folder, not from where one stands."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert call("status")[0] == 2
    assert call("logs", "B", "--state", "../.canard")[1].startswith("==> work/germline/B")
    assert list(other.iterdir()) == []


def test_a_state_of_a_newer_release_is_refused_with_3(call):
    call("sql", "--write", "update canard_absurd.schema_version set version = 99")
    status, _, err = call("status")
    assert status == 3
    assert "update canard-pipe" in err


def test_logs_for_machines_name_the_files(call):
    (found,) = json.loads(call("logs", "B", "--json")[1])
    assert found["folder"].endswith("attempt-1")
    assert (found["stderr"]["bytes"], found["stdout"]["bytes"]) == (13, 0)
