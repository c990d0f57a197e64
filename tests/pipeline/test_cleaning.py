"""clean: what may go and what is kept (BUGS 27); the list first, sizes, beside a run, drop as soon as done."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.pipeline import cleaning, steering

PIPELINE = """
class Row(SampleRow):
    sample: str
    text: str = "x"

pipeline = Pipeline("plain", rows=Row, key="sample")

@pipeline.once
def reference(params, ctx):
    return ctx.step("index", lambda: ctx.process(["sh", "-c", "echo i > i.txt"], outputs=["i.txt"]) / "i.txt")

@pipeline.sample(max_failures=2)
def one(sample, ctx):
    count(f"start {sample.key}")
    first = ctx.step("first", lambda: ctx.process(["sh", "-c", "echo first > a.txt"], outputs=["a.txt"]) / "a.txt")
    if sample.row.text == "bad" and not (HERE / "mended").exists():
        ctx.step("break", lambda: ctx.process(["sh", "-c", "exit 3"]))
    named = ctx.step("named", lambda: ctx.process(["sh", "-c", "echo named > b.txt"], outputs=["b.txt"]) / "b.txt")
    ctx.publish({"a.txt": first})
    return {"file": named}
"""
WITH_COHORT = PIPELINE + """
@pipeline.cohort(after=one)
def together(results, ctx):
    count("together " + " ".join(value["file"].read_text().strip() for value in results.values()))
"""


def tries(project):
    return {str(path.parent.relative_to(project.folder / "work" / "plain")) for path in
            (project.folder / "work").rglob("attempt-*/command.sh")}  # fmt: skip


def clean(project, *, older_than_us=0):
    found, freed = steering.clean_stored(project.folder / ".canard", project.folder, older_than_us=older_than_us)
    assert freed == sum(each.size for each in found)
    return {(each.why, str(each.folder.relative_to(project.folder / "work" / "plain"))) for each in found}


def test_tries_of_finished_samples_go_but_not_what_a_function_after_them_is_given(project):
    """BUGS 27: a cohort that comes to more samples later still finds what the earlier ones returned."""
    project.write(WITH_COHORT, "sample\nA\n")
    assert project.run().exit_status == 0
    assert clean(project) == {("finished", "a~559aead0/first/attempt-1")} or len(tries(project)) == 2
    left = tries(project)
    assert any(name.endswith("named/attempt-1") for name in left)  # the result of the sample names it
    assert any("index" in name for name in left)  # the result of a once function
    assert not any("first" in name for name in left)
    assert (project.results / "A" / "a.txt").read_text() == "first\n"
    project.write_sheet("sample\nA\nB\n")
    assert project.run().exit_status == 0
    assert "together named named" in project.counted()
    assert clean(project) != set()
    assert clean(project) == set()  # what is gone is not named again


def test_what_a_failed_sample_can_go_on_from_is_kept_and_its_latest_try(project):
    project.write(PIPELINE, "sample,text\nA,bad\n")
    assert project.run().exit_status == 1
    assert clean(project) == set()
    found = clean(project, older_than_us=time.time_ns() // 1000 + 10_000_000)
    assert [(why, name.split("/", 1)[1]) for why, name in found] == [("failed", "break/attempt-1")]
    (project.folder / "mended").touch()
    assert project.retry("A").exit_status == 0
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        _, rows = database.store.sql("SELECT count(*) FROM canard_absurd.jobs WHERE step = 'first'")
        assert rows[0][0] == 1  # it was not run again


def states_of(project, text):
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        database.store.sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE canard_absurd.tasks SET state = 'ready' WHERE id LIKE '%/A/1'",
        "UPDATE canard_absurd.tasks SET state = 'suspended' WHERE id LIKE '%/A/1'",
        "UPDATE canard_absurd.outputs SET state = 'accepted'",
        "UPDATE canard_absurd.jobs SET state = 'submitted'",
    ],
    ids=["resumable", "suspended", "unpublished", "running try"],
)
def test_nothing_that_is_needed_is_named(project, text):
    project.write(PIPELINE, "sample\nA\n")
    project.run()
    states_of(project, text)
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        where = cleaning.places(database, project.folder, project.folder / ".canard")
        found = cleaning.everything(database, where, older_than_us=2**62)
    assert [each for each in found if each.why != "staging"] == []


def test_tries_of_tasks_that_are_gone_go_and_those_of_another_state_stay(project):
    project.write(PIPELINE, "sample\nA\n")
    project.run()
    shutil.rmtree(project.folder / ".canard")
    shutil.rmtree(project.results)
    project.run()  # another state, in the same work folder
    assert all(why == "finished" for why, _ in clean(project))
    first = [path for path in tries(project) if path.endswith("first/attempt-1")]
    assert len(first) == 1  # the other state's
    states_of(project, "DELETE FROM canard_absurd.jobs WHERE step = 'named'")
    states_of(project, "DELETE FROM canard_absurd.tasks WHERE id LIKE '%/A/1'")
    found = clean(project)
    assert [why for why, _ in found] == ["orphan"], found


def test_a_folder_that_somebody_removed_by_hand_is_passed_over(project):
    """BUGS 27."""
    project.write(PIPELINE, "sample\nA\nB\n")
    project.run()
    (gone,) = (project.folder / "work").glob("plain/A*/first/attempt-1")
    shutil.rmtree(gone)
    assert [name.split("/", 1)[1] for _, name in clean(project)] == ["first/attempt-1"]


def test_left_overs_of_publishing_are_named_with_their_size(project):
    project.write(PIPELINE, "sample\nA\n")
    project.run()
    (project.folder / ".canard" / "staging").mkdir(exist_ok=True)
    (project.folder / ".canard" / "staging" / "99-1-abcdef00-x").write_text("12345")
    with Database(project.folder / ".canard" / "state.duckdb", root=project.folder) as database:
        where = cleaning.places(database, project.folder, project.folder / ".canard")
        (found,) = [each for each in cleaning.everything(database, where, older_than_us=0) if each.why == "staging"]
    assert found.size == 5
    steering.clean_stored(project.folder / ".canard", project.folder, older_than_us=0)
    assert not found.folder.exists()


def test_intermediates_are_dropped_as_soon_as_a_sample_is_done(project):
    project.write(WITH_COHORT, "sample,text\nA,x\nB,bad\n")
    project.run(drop_intermediates=True)
    left = tries(project)
    assert {name.rsplit("/", 2)[1] for name in left if name.startswith("A")} <= {"named"}
    assert sum("first" in name for name in left) == 1, left  # B has not come to its end
    (project.folder / "mended").touch()
    assert project.retry("B").exit_status == 0
    assert "together named named" in project.counted()
    assert not any("first" in name for name in tries(project))
    assert json.loads((project.folder / ".canard" / "status.json").read_text())["finished"] is True
