"""Runs after something went wrong: crashes, edits of the pipeline, files that are gone, odd exceptions."""

from __future__ import annotations

import shutil

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.opening import open_state
from tests.pipeline.conftest import Recorder, waiting_only
from tests.pipeline.test_run import COHORT, ONCE, PLAIN, READS


def test_sys_exit_in_a_function_fails_its_sample_alone(project):
    text = PLAIN.replace('raise SampleSkipped("too little")', 'import sys; sys.exit("too few reads")')
    project.write(text, "sample,text\nA,skip\nB,x\n")
    report = project.run()
    assert project.states(report) == {"A": "failed", "B": "done"}
    assert "too few reads" in next(row["error"] for row in report.samples if row["sample"] == "A")


@waiting_only
def test_a_result_that_was_deleted_by_hand_is_named_and_can_be_put_back(project):
    project.write(COHORT, "sample\nA\nB\n")
    project.run()
    (project.results / "A" / "out.txt").unlink()
    project.run()
    (note,) = [note for note in project.observer.notes if "is gone" in note]
    assert "A/out.txt" in note
    assert "retry A --from publish" in note
    assert project.retry("A", from_step="publish").exit_status == 0
    assert (project.results / "A" / "out.txt").read_text() == "x\n"
    assert project.counted().count("write A") == 1
    assert len([line for line in project.counted() if line.startswith("together")]) == 2  # its member was made anew


@waiting_only
def test_retry_of_a_done_sample_wants_a_step_and_one_that_is_there(project):
    project.write(PLAIN, "sample\nA\n")
    project.run()
    with pytest.raises(InputError, match="A is done; --from STEP"):
        project.retry("A")
    with pytest.raises(InputError, match="'wriet'"):
        project.retry("A", from_step="wriet")
    assert project.counted() == ["start A", "write A"]


@waiting_only
def test_a_changed_pipeline_file_is_named_and_not_acted_on(project):
    project.write(PLAIN, "sample\nA\n")
    project.run()
    project.pipeline.write_text(project.pipeline.read_text() + "\n# another line\n")
    assert project.run().exit_status == 0
    assert any("pipeline file has changed" in note for note in project.observer.notes)
    assert project.counted() == ["start A", "write A"]


def test_an_input_that_changed_after_a_crash_is_never_answered_by_the_old_command(project):
    """A command that ended, but whose row a crash has lost, is replayed for the same input only."""
    project.write(
        READS.replace(
            'wc -l", sample.row.fastq_1', 'cat > out.txt; test -e $1", sample.row.fastq_1, HERE / "go"'
        ).replace('ctx.step("count", lambda: ', 'out = ctx.step("count", lambda: ')
        + '    ctx.publish({"out.txt": out / "out.txt"})\n',
        "sample,fastq_1\nA,a.fastq\n",
    )
    reads = project.folder / "a.fastq"
    reads.write_text("@old\nA\n+\nI\n")
    assert project.run().exit_status == 1  # the command fails: its folder holds what it made of the old reads
    reads.write_text("@new!\nC\n+\nI\n")
    (project.folder / "go").touch()
    assert project.run().exit_status == 0
    assert (project.results / "A" / "out.txt").read_text().startswith("@new!")


def test_retry_from_a_step_runs_the_commands_of_later_unsaved_steps_anew(project):
    """Else their first command would meet another digest, and fail for ever."""
    project.write(
        """
        class Row(SampleRow):
            sample: str

        pipeline = Pipeline("two", rows=Row, key="sample")

        def second(out, ctx):
            copy = ctx.process(["cp", out / "x", "y"], outputs=["y"])
            ctx.process(["test", "-e", HERE / "go"])
            return copy / "y"

        @pipeline.sample
        def one(sample, ctx):
            out = ctx.step("first", lambda: ctx.process(["sh", "-c", "echo 1 > x"], outputs=["x"]))
            ctx.publish({"y": ctx.step("second", second, out, ctx)})
        """,
        "sample\nA\n",
    )
    assert project.run().exit_status == 1
    (project.folder / "go").touch()
    assert project.retry("A", from_step="first").exit_status == 0


def test_retry_of_a_once_function_runs_what_depends_on_it(project):
    project.write(ONCE.replace('count("index")', 'assert (HERE / "go").exists()'), "sample\nA\nB\n")
    (project.folder / "ref.fa").write_text(">r\nACGT\n")
    assert project.run(params=(f"reference={project.folder / 'ref.fa'}",)).exit_status == 1
    (project.folder / "go").touch()
    report = project.retry("index")
    assert project.states(report) == {"index": "done", "A": "done", "B": "done"}


@waiting_only
def test_a_renamed_function_takes_over_what_is_not_done(project):
    project.write(COHORT, "sample,text\nA,x\nB,bad\n")
    project.run()
    text = project.pipeline.read_text().replace("def one(", "def uno(").replace("after=one", "after=uno")
    project.pipeline.write_text(text.replace('sample.row.text == "bad"', "False"))
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "done", "together": "done"}
    assert project.counted().count("start A") == 1


def test_a_cohort_function_that_was_removed_is_retired(project):
    project.write(COHORT, "sample,text\nA,x\nB,bad\n")
    project.run()
    project.pipeline.write_text(
        project.pipeline.read_text().split("@pipeline.cohort")[0].replace('== "bad"', '== "worse"')
    )
    project.write_sheet("sample,text\nA,x\nB,good\n")
    report = project.run()
    assert project.states(report) == {"A": "done", "B": "done", "together": "retired"}
    assert report.exit_status == 0


@waiting_only
def test_a_once_result_that_is_gone_is_made_anew_for_new_samples(project):
    project.write(ONCE, "sample\nA\n")
    (project.folder / "ref.fa").write_text(">r\nACGT\n")
    params = (f"reference={project.folder / 'ref.fa'}",)
    project.run(params=params)
    shutil.rmtree(project.folder / "work")
    project.write_sheet("sample\nA\nB\n")
    report = project.run(params=params)
    assert project.states(report) == {"index": "done", "A": "done", "B": "done"}
    assert project.counted() == ["index", "index"]


def test_an_observer_that_breaks_changes_nothing_for_the_samples(project, monkeypatch):
    """A closed terminal, `| head`, a full disk under the log."""
    project.write(COHORT, "sample\nA\nB\n")

    def broken(*_arguments):
        raise BrokenPipeError

    for name in ("planned", "step", "ended", "note"):
        monkeypatch.setattr(Recorder, name, broken)
    assert project.run().exit_status == 0


def test_an_exception_that_cannot_say_its_message_fails_its_sample_alone(project):
    odd = """
class Odd(Exception):
    def __str__(self):
        raise ValueError("no")

"""
    text = PLAIN.replace('raise SampleSkipped("too little")', "raise Odd()").replace("class Row", odd + "class Row")
    project.write(text, "sample,text\nA,skip\nB,x\n")
    assert project.states(project.run()) == {"A": "failed", "B": "done"}


def test_a_damaged_task_input_stops_its_sample_alone(project):
    """G18, S31."""
    project.write(PLAIN, "sample,text\nA,bad\nB,bad\n")
    project.run()
    with open_state(project.folder / ".canard", project.folder) as database:
        database.store.sql("UPDATE canard_absurd.tasks SET input = '[1,' WHERE id = 'plain/sample/A/1'")
    project.pipeline.write_text(project.pipeline.read_text().replace('== "bad"', '== "worse"'))
    assert project.states(project.retry("A", "B")) == {"A": "failed", "B": "done"}


def test_a_request_that_a_dead_run_left_is_not_carried_out(project):
    project.write(PLAIN, "sample,text\nA,bad\n")
    project.run()
    with open_state(project.folder / ".canard", project.folder) as database:
        database.store.sql(
            "INSERT INTO canard_absurd.requests (request_id, kind, arguments, asked_at) "
            "VALUES ('old', 'cancel', '{\"all\": true}', TIMESTAMP '2026-01-01')"
        )
    project.pipeline.write_text(project.pipeline.read_text().replace('== "bad"', '== "worse"'))
    assert project.states(project.retry("A")) == {"A": "done"}
