"""status: rows, steps, counts; readable with very many samples."""

from __future__ import annotations

import json

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import open_view
from canard_pipe.report.commands import quoted
from canard_pipe.report.rows import read_status
from canard_pipe.report.status import counts_line, foot_lines, head_lines, remark
from tests.report.made import PIPELINE, make


@pytest.fixture
def made(tmp_path):
    state = make(tmp_path)
    yield state
    state.database.close()


def status_of(made, **options):
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        return read_status(view, **options)


def test_each_state_is_told_with_its_steps(made):
    made.plan("reference", kind="once", name="reference")
    made.claim("reference").complete(None)
    made.plan("A")
    claim = made.claim()
    claim.step("align", lambda: 1)
    claim.step("call", lambda: 2)
    claim.complete("done")
    made.command(made.failed("B", "it broke"), "call")
    made.plan("C")
    made.plan("cohort", kind="cohort", name="cohort", task=False, after=["call"])
    status = status_of(made)
    rows = {row.sample: row for row in status.rows}
    assert {name: row.state for name, row in rows.items()} == {
        "reference": "done", "A": "done", "B": "failed", "C": "waiting", "cohort": "blocked",
    }  # fmt: skip
    assert rows["A"].steps == ("align", "call")
    assert (rows["B"].now, rows["B"].now_state) == ("call", "failed")
    assert rows["cohort"].blocked_by == "B"
    assert counts_line(status.counts) == "3 samples: 1 failed, 1 waiting, 1 done; once: 1 done; cohort: 1 blocked"


def test_a_step_that_was_interrupted_is_not_told_as_failed(made):
    made.plan("A")
    claim = made.claim()
    made.command(claim, "call", state="interrupted", cause="stop", exit_code=None)
    claim.release()
    (row,) = status_of(made).rows
    assert (row.state, row.now, row.now_state) == ("waiting", "call", "interrupted")


def test_what_to_type_next_finds_a_state_elsewhere(made):
    made.failed("B", "it broke")
    assert foot_lines(status_of(made), 40, " --state ../x")[-1] == "why: canard-pipe why --state ../x B"


def test_rows_are_in_the_order_of_the_sheet_until_a_limit_cuts_them_then_the_needy_come_first(made):
    for key in ("Z", "M", "A"):
        made.plan(key)
    made.failed("last", "no")
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        assert [row.sample for row in read_status(view).rows] == ["Z", "M", "A", "last"]
        cut = read_status(view, limit=2)
    assert [row.sample for row in cut.rows] == ["last", "Z"]
    assert "2 more are not shown" in foot_lines(cut, 2)[0]
    assert foot_lines(cut, 2)[1] == "why: canard-pipe why last"


def test_a_task_that_somebody_deleted_is_named_as_a_gap(made):
    """BUGS 3: the plan and the tasks are held against each other."""
    id = made.plan("A")
    made.sql(f"DELETE FROM canard_absurd.tasks WHERE id = '{id}'")
    (row,) = status_of(made).rows
    assert row.lost
    assert "gone from the database" in remark(row)


def test_another_pipeline_of_the_same_state_is_asked_for_by_name(made):
    made.plan("A")
    made.run_row(pipeline="other", run_id="run-2")
    made.sql("UPDATE canard_absurd.runs SET started_at = started_at + INTERVAL 1 HOUR WHERE run_id = 'run-2'")
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        assert read_status(view).pipeline == "other"
        assert [row.sample for row in read_status(view, pipeline=PIPELINE).rows] == ["A"]
        with pytest.raises(InputError, match="nobody"):
            read_status(view, pipeline="nobody")


def test_ten_thousand_samples_are_counted_and_a_few_are_shown(made):
    made.sql(
        "INSERT INTO canard_absurd.planned SELECT 'germline', 'sample', 'call', 'S' || i, 'S' || i, i, i, 1, "
        "'germline/sample/S' || i || '/1', 'd', NULL, [], false, false, false, 'run-1' FROM range(10000) r(i)"
    )
    made.database.spawn_many("call", [None] * 10_000, ids=[f"germline/sample/S{number}/1" for number in range(10_000)])
    status = status_of(made, limit=40)
    assert status.counts == {"sample": {"waiting": 10_000}}
    assert len(status.rows) == 40


def test_without_sql_the_status_comes_from_the_snapshot_with_its_age(made):
    made.plan("A")
    made.database.close()
    (made.folder / "state.duckdb").unlink()
    snapshot = {
        "written_at": "2026-01-01T00:00:00+00:00", "host": "node7", "pid": 7, "pipeline": "germline",
        "samples": [{"kind": "sample", "sample": "A", "state": "running", "step": "align", "error": None},
                    {"kind": "sample", "sample": "B", "state": "failed", "step": None, "error": "exit code 1"}],
        "running": [],
    }  # fmt: skip
    (made.folder / "status.json").write_text(json.dumps(snapshot))
    (made.folder / "owner.json").write_text("{}")
    with open_view(made.folder, made.launch) as view:
        status = read_status(view)
        lines = head_lines(status, view, 1_767_225_610_000_000)
    assert [(row.sample, row.state, row.now) for row in status.rows] == [
        ("A", "running", "align"),
        ("B", "failed", None),
    ]
    assert [row.sample for row in read_status(view, limit=1).rows] == ["B"]  # who needs somebody comes first
    assert "10 s old" in lines[1]
    assert "node7" in lines[1]


@pytest.mark.parametrize(("name", "typed"), [("A", "A"), ("a b", "'a b'"), ("-x", "-- -x"), ("it's", "'it'\"'\"'s'")])
def test_names_are_told_as_they_have_to_be_typed(name, typed):
    assert quoted(name) == typed
