"""Situations of a run, the states that its rows end in, and the exit status that follows (DESIGN: end states).

One project per situation; each is a pipeline of plain functions told by its sheet what to do.
"""

from __future__ import annotations

import os

import pytest

from canard_pipe.errors import SheetError
from canard_pipe.pipeline.sheet import SheetOptions

PIPELINE = """
import os, signal

class Row(SampleRow):
    sample: str
    does: str = "work"
    depth: int = 1

pipeline = Pipeline("ends", rows=Row, key="sample", params={"once": (str, "work"), "joint": (str, "work")})

def do(what):
    if what == "fail":
        raise ValueError("it does not work")
    if what == "exit":
        raise SystemExit(3)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
    return what

@pipeline.once(max_failures=1)
def ground(params, ctx):
    if params.once == "stop":
        do("stop")
        ctx.process(["sleep", "60"])
    return do(params.once)

@pipeline.sample(max_failures=1)
def one(sample, ctx):
    if sample.row.does == "skip":
        raise SampleSkipped("too few reads")
    if sample.row.does == "stop":
        ctx.step("stop", do, "stop")
        ctx.process(["sleep", "60"])
    return do(sample.row.does)

@pipeline.cohort(after=one, max_failures=1)
def joint(results, ctx):
    if ctx.params.joint == "stop":
        do("stop")
        ctx.process(["sleep", "60"])
    return do(ctx.params.joint)

@pipeline.cohort(after=joint, max_failures=1)
def last(results, ctx):
    return 1

@pipeline.cohort(after=one, allow_missing=True, max_failures=1)
def anyway(results, ctx):
    return sorted(results.missing)
"""
DONE = {"ground": "done", "joint": "done", "last": "done", "anyway": "done"}
HELD = {"ground": "done", "joint": "blocked", "last": "blocked", "anyway": "done"}


def run(project, rows, **options):
    project.write(PIPELINE, "sample,does\n" + "".join(f"{key},{does}\n" for key, does in rows.items()))
    report = project.run(**options)
    return project.states(report), report.exit_status


@pytest.mark.parametrize(
    ("rows", "params", "states", "status"),
    [
        pytest.param({"A": "work", "B": "work"}, (), DONE | {"A": "done", "B": "done"}, 0, id="all is well"),
        pytest.param({"A": "work", "B": "skip"}, (), DONE | {"A": "done", "B": "skipped"}, 0, id="one skipped"),
        pytest.param({"A": "skip"}, (), DONE | {"A": "skipped"}, 0, id="all skipped"),
        pytest.param({"A": "work", "B": "fail"}, (), HELD | {"A": "done", "B": "failed"}, 1, id="one failed"),
        pytest.param({"A": "work", "B": "exit"}, (), HELD | {"A": "done", "B": "failed"}, 1, id="one ends the program"),
        pytest.param(
            {"A": "work"}, ("joint=fail",), DONE | {"A": "done", "joint": "failed", "last": "blocked"}, 1,
            id="cohort failed",
        ),
        pytest.param(
            {"A": "work"}, ("once=fail",),
            {"ground": "failed", "A": "blocked", "joint": "blocked", "last": "blocked", "anyway": "blocked"}, 1,
            id="once failed",
        ),
    ],
)  # fmt: skip
def test_a_first_run_ends_each_row_in_a_named_state(project, rows, params, states, status):
    assert run(project, rows, params=params) == (states, status)


@pytest.mark.parametrize(
    ("before", "after", "options", "states", "status"),
    [
        pytest.param({"A": "work"}, {"A": "work"}, {}, DONE | {"A": "done"}, 0, id="the same line again"),
        pytest.param({"A": "fail"}, {"A": "fail"}, {}, HELD | {"A": "failed"}, 1, id="an unchanged failure stays"),
        pytest.param({"A": "fail"}, {"A": "work"}, {}, DONE | {"A": "done"}, 0, id="a mended row runs"),
        pytest.param({"A": "work"}, {"A": "other"}, {}, HELD | {"A": "changed"}, 1, id="a changed row is kept"),
        pytest.param(
            {"A": "work"}, {"A": "other", "B": "work"}, {}, HELD | {"A": "changed", "B": "done"}, 1,
            id="a changed row stops no other",
        ),
        pytest.param(
            {"A": "work"}, {"A": "fail"}, {"rerun_changed": True}, HELD | {"A": "failed"}, 1, id="re-run and failed"
        ),
        pytest.param({"A": "work"}, {"A": "x"}, {"rerun_changed": True}, DONE | {"A": "done"}, 0, id="re-run"),
        pytest.param({"A": "work"}, {"A": "x"}, {"accept_changed": True}, DONE | {"A": "done"}, 0, id="accepted"),
        pytest.param(
            {"A": "work", "B": "work"}, {"A": "work"}, {}, DONE | {"A": "done", "B": "retired"}, 0, id="a row is gone"
        ),
        pytest.param(
            {"A": "work", "B": "fail"}, {"A": "work"}, {}, DONE | {"A": "done", "B": "retired"}, 0,
            id="a failed row is gone",
        ),
        pytest.param(
            {"A": "skip", "B": "work"}, {"A": "work", "B": "work"}, {}, HELD | {"A": "changed", "B": "done"}, 1,
            id="a skipped row has changed",
        ),
    ],
)  # fmt: skip
def test_a_second_run_ends_each_row_in_a_named_state(project, before, after, options, states, status):
    run(project, before)
    assert run(project, after, **options) == (states, status)


def test_a_cancelled_sample_holds_the_cohort_back_and_gives_1(project):
    from canard_pipe.pipeline import retrying
    from canard_pipe.pipeline.opening import open_state

    run(project, {"A": "work", "B": "stop"})
    with open_state(project.folder / ".canard", project.folder) as database:
        retrying.cancel(database, "ends", ["B"])
    assert run(project, {"A": "work", "B": "stop"}) == (HELD | {"A": "done", "B": "cancelled"}, 1)


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("ground", dict.fromkeys(("A", "joint", "last", "anyway"), "blocked") | {"ground": "cancelled"}),
        ("joint", DONE | {"A": "done", "joint": "cancelled", "last": "blocked"}),
    ],
)
def test_a_cancelled_once_or_cohort_function_holds_back_what_needs_it(project, name, states):
    from canard_pipe.pipeline import retrying
    from canard_pipe.pipeline.opening import open_state

    params = (f"{'once' if name == 'ground' else 'joint'}=stop",)
    assert run(project, {"A": "work"}, params=params)[1] == 130
    with open_state(project.folder / ".canard", project.folder) as database:
        retrying.cancel(database, "ends", [name])
    assert run(project, {"A": "work"}, params=params) == (states, 1)


def test_bad_rows_refuse_the_sheet_or_fail_by_option(project):
    project.write(PIPELINE, "sample,depth\nA,1\nB,many\n")
    with pytest.raises(SheetError):  # exit status 2
        project.run()
    report = project.run(sheet=SheetOptions(skip_bad_rows=True))
    assert (project.states(report), report.exit_status) == (HELD | {"A": "done", "B": "failed"}, 1)


def test_samples_left_out_by_only_wait_and_give_1(project):
    states, status = run(project, {"A": "work", "B": "work"}, only=("A",))
    assert (states["A"], states["B"], states["joint"], status) == ("done", "waiting", "waiting", 1)


def test_a_changed_parameter_marks_what_was_made_with_the_other(project):
    run(project, {"A": "work"})
    states, status = run(project, {"A": "work"}, params=("joint=other",))
    assert (states["A"], status) == ("changed", 1)
    assert run(project, {"A": "work"}, params=("joint=other",), rerun_changed=True) == (DONE | {"A": "done"}, 0)


def test_a_retry_that_succeeds_gives_0_and_one_that_fails_again_1(project):
    run(project, {"A": "work", "B": "fail"})
    report = project.retry("B")
    assert (project.states(report)["B"], report.exit_status) == ("failed", 1)
    project.write_sheet("sample,does\nA,work\nB,work\n")
    report = project.retry("B")
    assert (project.states(report), report.exit_status) == (DONE | {"A": "done", "B": "done"}, 0)


def test_a_dry_run_gives_0_whatever_it_finds(project):
    run(project, {"A": "fail"})
    assert run(project, {"A": "fail", "B": "work"}, dry_run=True)[1] == 0


def test_an_interrupted_run_gives_130_and_leaves_its_rows_waiting(project):
    states, status = run(project, {"A": "stop"})
    assert status == 130
    assert states["A"] == "waiting"


COPIED = """
class Row(SampleRow):
    sample: str
    fastq: InputFile

pipeline = Pipeline("copied", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    return sample.row.fastq.read_text()
"""


def test_a_touched_file_marks_its_sample_changed_unless_contents_are_compared(project):
    reads = project.folder / "A.txt"
    reads.write_text("ACGT")
    project.write(COPIED, "sample,fastq\nA,A.txt\n")
    by_content = SheetOptions(compare_content=True)
    assert project.states(project.run(sheet=by_content)) == {"A": "done"}
    os.utime(reads, (1, 1))
    assert project.states(project.run(sheet=by_content)) == {"A": "done"}
    assert project.states(project.run()) == {"A": "changed"}
    reads.write_text("ACGA")
    report = project.run(sheet=by_content)
    assert (project.states(report), report.exit_status) == ({"A": "changed"}, 1)
