"""status: rows, steps, counts; readable with very many samples."""

from __future__ import annotations

import json

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import open_view
from canard_pipe.report.commands import quoted
from canard_pipe.report.rows import read_status
from canard_pipe.report.selection import Selection
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
    assert foot_lines(status_of(made), " --state ../x")[-1] == "why: canard-pipe why --state ../x B"


def test_rows_are_in_the_order_of_the_sheet_until_a_limit_cuts_them_then_the_needy_come_first(made):
    for key in ("Z", "M", "A"):
        made.plan(key)
    made.failed("last", "no")
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        assert [row.sample for row in read_status(view).rows] == ["Z", "M", "A", "last"]
        cut = read_status(view, Selection(limit=2))
    assert [row.sample for row in cut.rows] == ["last", "Z"]
    assert "2 more are not shown" in foot_lines(cut)[0]
    assert foot_lines(cut)[1] == "why: canard-pipe why last"


@pytest.fixture
def many(made):
    """Rows S0 to S11: S3 has failed in its command, S7 at its third try; S1 is done, S5 is between tries."""
    made.failed("S3", "it broke")
    made.command(made.failed("S7", "no reads"), "call")
    claim = (made.plan("S1", priority=9), made.claim())[1]
    claim.step("align", lambda: 1)
    claim.complete(None)
    claim = (made.plan("S5", priority=9), made.claim())[1]
    claim.fail("not yet")
    for number in (0, 2, 4, 6, 8, 9, 10, 11):
        made.plan(f"S{number}", task=False)
    made.database.close()
    with open_view(made.folder, made.launch) as view:
        yield lambda **chosen: read_status(view, Selection(**chosen))


def names(status):
    return [row.sample for row in status.rows]


def test_with_more_rows_than_the_limit_only_those_that_need_somebody_are_shown(many):
    status = many(needy=True, limit=6)
    assert names(status) == ["S3", "S7", "S5"]
    assert foot_lines(status)[0].startswith("9 more are not shown; those that need somebody come first (--limit 0 all")
    assert len(names(many(needy=True, limit=12))) == 12


def test_pages_follow_each_other_without_gap_or_overlap(many):
    pages = [many(sort="sample", limit=5, offset=offset) for offset in (0, 5, 10)]
    assert [name for page in pages for name in names(page)] == sorted(f"S{number}" for number in range(12))
    assert "7 more are not shown (--offset 5 shows the next ones" in foot_lines(pages[0])[0]
    assert foot_lines(pages[2])[0] == "rows 11 to 12 of 12"


def test_a_page_past_the_last_row_says_how_many_there_are(many):
    assert foot_lines(many(sort="sample", limit=5, offset=100)) == ["there are 12 such rows: none from number 101 on"]


def test_rows_are_chosen_by_state_name_pattern_and_step(many):
    assert names(many(states=("failed", "done"))) == ["S3", "S7", "S1"]
    assert names(many(samples=("S1*",))) == ["S1", "S10", "S11"]
    assert names(many(samples=("S1",))) == ["S1"]
    assert names(many(step="call")) == ["S7"]
    status = many(states=("cancelled",))
    assert (names(status), foot_lines(status)) == ([], ["no row is like that"])
    with pytest.raises(InputError, match="did you mean 'S11'"):
        many(samples=("S111",))
    with pytest.raises(InputError, match="no sample is in a step named 'alig'; did you mean 'align'"):
        many(step="alig")


def test_rows_are_sorted_as_asked_for(many):
    assert names(many(sort="state"))[:2] == ["S3", "S7"]
    assert names(many(sort="sample", reverse=True))[0] == "S9"
    assert set(names(many(sort="failures"))[:3]) == {"S3", "S7", "S5"}
    assert names(many(sort="recent"))[0] == "S5"


def test_steps_are_counted_where_not_all_rows_are_shown(many):
    assert many(limit=3).steps == {"align": 3}
    assert many().steps == {}


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
    status = status_of(made, selection=Selection(limit=40))
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
    assert [row.sample for row in read_status(view, Selection(limit=1)).rows] == ["B"]  # who needs somebody comes first
    assert "10 s old" in lines[1]
    assert "node7" in lines[1]


@pytest.mark.parametrize(("name", "typed"), [("A", "A"), ("a b", "'a b'"), ("-x", "-- -x"), ("it's", "'it'\"'\"'s'")])
def test_names_are_told_as_they_have_to_be_typed(name, typed):
    assert quoted(name) == typed
