"""Runs of small pipelines of shell commands: end states, exit status, resume, change, retry, cohorts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from canard_pipe.errors import InputError, PipelineFileError, SheetError
from tests.pipeline.conftest import waiting_only

PLAIN = """
class Row(SampleRow):
    sample: str
    text: str = "x"

pipeline = Pipeline("plain", rows=Row, key="sample")

def write(sample, ctx):
    count(f"write {sample.key}")
    return ctx.process(["sh", "-c", f"echo {sample.row.text} > out.txt"], outputs=["out.txt"]) / "out.txt"

@pipeline.sample
def one(sample, ctx):
    count(f"start {sample.key}")
    out = ctx.step("write", write, sample, ctx)
    if sample.row.text == "bad":
        ctx.step("break", lambda: ctx.process(["sh", "-c", "echo oh no >&2; exit 3"]))
    if sample.row.text == "skip":
        raise SampleSkipped("too little")
    ctx.publish({"out.txt": out})
    return sample.row.text
"""
COHORT = (
    PLAIN
    + """
@pipeline.cohort(after=one)
def together(results, ctx):
    count("together " + " ".join(results) + " skipped " + " ".join(results.skipped))
    out = ctx.step("join", lambda: ctx.process(["sh", "-c", "echo all > all.txt"]) / "all.txt")
    ctx.publish({"all.txt": out})
"""
)


def test_every_row_is_done_and_published_and_the_exit_status_is_0(project):
    project.write(COHORT, "sample\nA\nB\n")
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "done", "together": "done"}
    assert report.exit_status == 0
    assert sorted(str(path.relative_to(project.results)) for path in project.results.rglob("*.txt")) == [
        "A/out.txt", "B/out.txt", "cohort/all.txt",
    ]  # fmt: skip


def test_the_same_line_again_does_nothing_and_says_so(project):
    project.write(COHORT, "sample\nA\nB\n")
    project.run()
    before = project.counted()
    report = project.run()
    assert report.exit_status == 0
    assert project.counted() == before
    assert any("nothing to do" in note for note in project.observer.notes)


def test_one_failing_sample_fails_alone_with_its_cause_and_blocks_the_cohort(project):
    """BUGS 18, 26: the others go on, the exit status is not 0, the cohort names who is missing."""
    project.write(COHORT, "sample,text\nA,x\nB,bad\nC,x\n")
    report = project.run()
    assert report.exit_status == 1
    assert project.states(report) == {"A": "done", "B": "failed", "C": "done", "together": "blocked"}
    (failed,) = [row for row in report.samples if row["sample"] == "B"]
    assert failed["failures"] == 3
    assert "3" in failed["error"]
    assert "oh no" in failed["error"]
    (blocked,) = [row for row in report.samples if row["sample"] == "together"]
    assert blocked["blocked_by"] == "B"
    assert not (project.results / "B").exists()


@waiting_only
def test_a_failed_sample_is_tried_max_failures_times_with_its_saved_steps_kept(project):
    """BUGS 38: no nested retries. G11: the saved step runs once."""
    project.write(PLAIN, "sample,text\nB,bad\n")
    project.run()
    assert project.counted() == ["start B", "write B", "start B", "start B"]


def test_a_sample_can_leave_itself_out_and_the_cohort_is_told(project):
    project.write(COHORT, "sample,text\nA,x\nB,skip\n")
    report = project.run()
    assert report.exit_status == 0
    assert project.states(report) == {"A": "done", "B": "skipped", "together": "done"}
    assert "together A skipped B" in project.counted()
    (row,) = [row for row in report.samples if row["sample"] == "B"]
    assert row["skipped_because"] == "too little"


def test_allow_missing_lets_the_cohort_go_on_without_failed_samples(project):
    text = COHORT.replace("after=one)", "after=one, allow_missing=True)").replace(
        '"together "', '"missing " + " ".join(results.missing) + " together "'
    )
    project.write(text, "sample,text\nA,x\nB,bad\n")
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "failed", "together": "done"}
    assert report.exit_status == 1
    assert any(line.startswith("missing B together A") for line in project.counted())


@waiting_only
def test_a_cohort_is_not_made_again_for_a_sample_that_fails_once_more(project):
    """What it was made from is the same; only that sample is tried."""
    project.write(COHORT.replace("after=one)", "after=one, allow_missing=True)"), "sample,text\nA,x\nB,bad\n")
    project.run()
    report = project.retry("B")
    assert project.states(report) == {"A": "done", "B": "failed", "together": "done"}
    assert len([line for line in project.counted() if line.startswith("together")]) == 1
    assert project.counted().count("start B") == 6


@waiting_only
def test_retry_of_one_sample_makes_it_and_what_depends_on_it(project):
    mendable = COHORT.replace('sample.row.text == "bad"', 'sample.row.text == "bad" and not (HERE / "mended").exists()')
    project.write(mendable, "sample,text\nA,x\nB,bad\n")
    assert project.run().exit_status == 1
    (project.folder / "mended").touch()
    report = project.retry("B")
    assert report.exit_status == 0
    assert project.states(report) == {"A": "done", "B": "done", "together": "done"}
    assert project.counted().count("write B") == 1
    assert project.counted().count("start A") == 1


@waiting_only
def test_retry_from_a_step_runs_that_step_and_those_after_it_again(project):
    project.write(PLAIN, "sample,text\nB,bad\n")
    project.run()
    project.retry("B", from_step="write")
    assert project.counted().count("write B") == 2


def test_retry_refuses_names_that_are_not_there(project):
    project.write(PLAIN, "sample\nA\n")
    project.run()
    with pytest.raises(InputError, match="'Z'"):
        project.retry("Z")


@waiting_only
def test_a_new_row_runs_alone_and_the_cohort_is_made_anew(project):
    project.write(COHORT, "sample\nA\n")
    project.run()
    project.write_sheet("sample\nA\nB\n")
    report = project.run()
    assert report.exit_status == 0
    assert project.counted().count("start A") == 1
    assert [line for line in project.counted() if line.startswith("together")] == [
        "together A skipped ", "together A B skipped ",
    ]  # fmt: skip


def test_a_changed_row_of_a_done_sample_is_kept_marked_and_gives_exit_status_1(project):
    project.write(COHORT, "sample,text\nA,x\nB,x\n")
    project.run()
    project.write_sheet("sample,text\nA,y\nB,x\n")
    report = project.run()
    assert report.exit_status == 1
    assert project.states(report) == {"A": "changed", "B": "done", "together": "blocked"}
    assert "A is changed: column text" in project.why("A")
    assert (project.results / "A" / "out.txt").read_text() == "x\n"


@waiting_only
def test_rerun_changed_makes_the_next_generation(project):
    project.write(COHORT, "sample,text\nA,x\nB,x\n")
    project.run()
    project.write_sheet("sample,text\nA,y\nB,x\n")
    report = project.run(rerun_changed=True)
    assert report.exit_status == 0
    assert (project.results / "A" / "out.txt").read_text() == "y\n"
    assert project.counted().count("start B") == 1
    assert len([line for line in project.counted() if line.startswith("together")]) == 2


@waiting_only
def test_accept_changed_keeps_what_is_there(project):
    project.write(PLAIN, "sample,text\nA,x\n")
    project.run()
    project.write_sheet("sample,text\nA,y\n")
    assert project.run(accept_changed=True).exit_status == 0
    assert project.run().exit_status == 0
    assert project.counted().count("start A") == 1


@waiting_only
def test_a_row_that_is_gone_is_retired_and_comes_back_as_it_was(project):
    project.write(PLAIN, "sample\nA\nB\n")
    project.run()
    project.write_sheet("sample\nA\n")
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "retired"}
    assert report.exit_status == 0
    project.write_sheet("sample\nA\nB\n")
    assert project.states(project.run()) == {"A": "done", "B": "done"}
    assert project.counted().count("start B") == 1


@waiting_only
def test_a_failed_sample_takes_its_changed_row_with_all_its_steps(project):
    project.write(COHORT, "sample,text\nA,x\nB,bad\n")
    project.run()
    project.write_sheet("sample,text\nA,x\nB,good\n")
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "done", "together": "done"}
    assert project.counted().count("write B") == 2


def test_an_unchanged_failed_sample_waits_for_retry(project):
    """G14: nothing but retry leaves a final state."""
    project.write(PLAIN, "sample,text\nB,bad\n")
    project.run()
    before = project.counted()
    assert project.run().exit_status == 1
    assert project.counted() == before


ONCE = """
class Row(SampleRow):
    sample: str

pipeline = Pipeline("shared", rows=Row, key="sample", params={"reference": InputFile})

@pipeline.once
def index(params, ctx):
    count("index")
    return ctx.step("index", lambda: ctx.process(["cp", params.reference, "ref"], outputs=["ref"]) / "ref")

@pipeline.sample
def one(sample, ctx):
    return ctx.result_of(index).read_text()
"""


@waiting_only
def test_a_once_function_runs_once_before_all_samples(project):
    project.write(ONCE, "sample\nA\nB\nC\n")
    (project.folder / "ref.fa").write_text(">r\nACGT\n")
    report = project.run(params=(f"reference={project.folder / 'ref.fa'}",))
    assert report.exit_status == 0
    assert project.counted() == ["index"]


@waiting_only
def test_a_changed_reference_makes_the_once_task_anew_and_the_samples_changed(project):
    project.write(ONCE, "sample\nA\n")
    reference = project.folder / "ref.fa"
    reference.write_text(">r\nACGT\n")
    project.run(params=(f"reference={reference}",))
    reference.write_text(">r\nACGTACGT\n")
    report = project.run(params=(f"reference={reference}",))
    assert project.states(report) == {"index": "done", "A": "changed"}
    assert project.counted() == ["index", "index"]
    assert project.run(params=(f"reference={reference}",), rerun_changed=True).exit_status == 0


def test_a_failing_once_function_blocks_every_sample(project):
    text = ONCE.replace('count("index")', 'raise RuntimeError("no index")')
    project.write(text, "sample\nA\nB\n")
    (project.folder / "ref.fa").write_text(">r\nACGT\n")
    report = project.run(params=(f"reference={project.folder / 'ref.fa'}",))
    assert project.states(report) == {"index": "failed", "A": "blocked", "B": "blocked"}
    assert report.exit_status == 1


READS = """
class Row(SampleRow):
    sample: str
    fastq_1: InputFile

pipeline = Pipeline("reads", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    count(f"start {sample.key}")
    ctx.step("count", lambda: ctx.process(["sh", "-c", "zcat -f \\"$0\\" | wc -l", sample.row.fastq_1]))
"""


@waiting_only
def test_a_truncated_reads_file_fails_its_sample_alone_before_the_first_tool_and_is_named(
    project, write_gzip: Callable[[Path, str], None]
):
    """BUGS 25: many tools take half a file and exit 0."""
    project.write(READS, "sample,fastq_1\nA,a.fastq.gz\nB,b.fastq.gz\n")
    rng = random.Random(1)
    reads = "".join(f"@r{i}\n{''.join(rng.choices('ACGT', k=50))}\n+\n{'I' * 50}\n" for i in range(2000))
    for name in "ab":
        write_gzip(project.folder / f"{name}.fastq.gz", reads)
    whole = (project.folder / "b.fastq.gz").read_bytes()
    (project.folder / "b.fastq.gz").write_bytes(whole[: len(whole) * 6 // 10])
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "failed"}
    assert project.counted() == ["start A"]
    (row,) = [row for row in report.samples if row["sample"] == "B"]
    assert "b.fastq.gz" in row["error"]
    assert row["failures"] == 1  # a repeat cannot help
    (project.folder / "b.fastq.gz").write_bytes(whole)
    assert project.retry("B").exit_status == 0


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_touched(project):
    project.write(READS, "sample,fastq_1\nA,gone.fastq.gz\nB,also.fastq.gz\n")
    with pytest.raises(SheetError) as caught:
        project.run()
    assert [problem.line for problem in caught.value.problems] == [2, 3]
    assert not (project.folder / ".canard").exists()


def test_a_missing_tool_is_named_before_the_first_sample_starts(project):
    project.write(PLAIN.replace('key="sample")', 'key="sample", tools=["no-such-aligner"])'), "sample\nA\n")
    with pytest.raises(PipelineFileError, match="no-such-aligner"):
        project.run()
    assert not (project.folder / ".canard").exists()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("def broken(:\n    pass\n", 13, "not valid Python"),
        ("raise ValueError('no')\n", 13, "ValueError: no"),
        ("x = 1\n", None, "defines no Pipeline"),
    ],
)
def test_a_wrong_pipeline_file_is_told_with_its_line(project, text, line, message):
    project.write("", "sample\nA\n")
    lines = project.pipeline.read_text().rstrip("\n").count("\n") + 1
    project.pipeline.write_text(project.pipeline.read_text().rstrip("\n") + "\n" + text)
    with pytest.raises(PipelineFileError, match=message) as caught:
        project.run()
    assert caught.value.problems[0].line == (lines + 1 if line else None)


def test_a_dry_run_says_what_would_run_and_leaves_no_trace(project):
    project.write(PLAIN, "sample\nA\nB\n")
    project.run(dry_run=True)
    assert project.observer.plans == [["2 new: A, B", "A: new, every step", "B: new, every step"]]
    assert not (project.folder / ".canard").exists()
    assert project.counted() == []


def test_a_project_can_be_moved(project, tmp_path):
    project.write(COHORT, "sample\nA\n")
    project.run()
    before = project.counted()
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    project.folder.rename(moved)
    project.folder = moved
    assert project.run().exit_status == 0
    assert project.counted() == before


def dry_lines(project, **options):
    project.run(dry_run=True, **options)
    return project.observer.plans[0]


def test_only_the_named_samples_run_and_what_depends_on_them_if_the_others_are_done(project):
    project.write(COHORT, "sample\nA\nB\nB2\n")
    assert not any("A: new" in line for line in dry_lines(project, only=("B*",)))
    report = project.run(only=("B*",))
    assert project.states(report) == {"A": "waiting", "B": "done", "B2": "done", "together": "waiting"}
    assert report.exit_status == 1
    assert any("only 2 of 3 samples" in note for note in project.observer.notes)
    report = project.run(only=("A",))
    assert set(project.states(report).values()) == {"done"}
    assert report.exit_status == 0


def test_only_a_sample_that_is_not_in_the_sheet_is_refused_before_anything_is_made(project):
    project.write(PLAIN, "sample\nlung\n")
    with pytest.raises(InputError, match="did you mean 'lung'"):
        project.run(only=("lungs",))
    assert not (project.folder / ".canard").exists()
