"""Results that are made again: other names, other generations, deleted by hand, without the work folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

NAMED = """
class Row(SampleRow):
    sample: str
    names: str

pipeline = Pipeline("named", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    names = sample.row.names.split("+")
    text = "for name in " + " ".join(names) + "; do mkdir -p $name.d; echo {text} | tee $name > $name.d/inner; done"
    made = ctx.step("make", lambda: ctx.shell(text, text=sample.row.names))
    ctx.publish({name: made / name for name in names} | {names[-1] + ".d": made / (names[-1] + ".d")})
"""


def results(project) -> dict[str, str]:
    files = sorted(path for path in project.results.rglob("*") if path.is_file())
    return {str(path.relative_to(project.results)): path.read_text().strip() for path in files}


@pytest.fixture
def first(project):
    project.write(NAMED, "sample,names\nA,x+y\nB,x\n")
    report = project.run()
    assert report.exit_status == 0, report.samples
    assert results(project) == {"A/x": "x+y", "A/y": "x+y", "A/y.d/inner": "x+y", "B/x": "x", "B/x.d/inner": "x"}
    return project


def test_results_that_the_next_generation_does_not_make_go_with_a_line(first):
    first.write_sheet("sample,names\nA,z\nB,x\n")
    assert first.run(rerun_changed=True).exit_status == 0
    assert results(first) == {"A/z": "z", "A/z.d/inner": "z", "B/x": "x", "B/x.d/inner": "x"}
    said = [note for note in first.observer.notes if "no longer" in note]
    assert [note.split(" is a result")[0] for note in said] == [
        str(first.results / "A" / name) for name in ("x", "y", "y.d")
    ]
    first.run()
    assert not [note for note in first.observer.notes if "no longer" in note or "gone" in note]


def test_what_was_put_or_changed_by_hand_stays(first):
    (first.results / "A" / "x").chmod(0o644)
    (first.results / "A" / "x").write_text("edited")
    (first.results / "A" / "notes.txt").write_text("mine")
    first.write_sheet("sample,names\nA,z\nB,x\n")
    assert first.run(rerun_changed=True).exit_status == 0
    found = results(first)
    assert (found["A/x"], found["A/notes.txt"], found["A/z"]) == ("edited", "mine", "z")
    assert "A/y" not in found
    assert any("changed by hand" in note for note in first.observer.notes)


def test_results_of_a_changed_sample_stay_until_the_new_ones_are_complete(first):
    first.write_sheet("sample,names\nA,z\nB,x\n")
    first.run()
    assert "A/x" in results(first), "changed, and not made anew"
    first.pipeline.write_text(first.pipeline.read_text().replace("made = ctx.step", "1 / 0; made = ctx.step"))
    assert first.run(rerun_changed=True).exit_status == 1
    assert "A/x" in results(first), "the new ones have failed"


def test_a_step_that_runs_again_takes_away_what_it_had_published_under_other_names(first):
    first.pipeline.write_text(first.pipeline.read_text().replace("for name in names}", "for name in names[:1]}"))
    assert first.retry("A", from_step="publish").exit_status == 0
    assert sorted(results(first)) == ["A/x", "A/y.d/inner", "B/x", "B/x.d/inner"]


def test_deleted_results_are_named_and_come_back_from_the_try(first):
    (first.results / "A" / "x").unlink()
    shutil.rmtree(first.results / "B")
    report = first.run()
    assert report.exit_status == 0
    assert sum("is gone" in note for note in first.observer.notes) == 3
    assert first.retry("A", "B", from_step="publish").exit_status == 0
    assert len(results(first)) == 5
    assert len(list(first.folder.glob("work/named/*/make/attempt-*"))) == 2, "from the try that is there"


def test_without_the_work_folder_results_are_whole_and_are_made_again_by_their_steps(first):
    before = results(first)
    shutil.rmtree(first.folder / "work")
    assert first.run().exit_status == 0
    assert results(first) == before, "done is done: nothing in results/ leads into work/"
    (first.results / "A" / "x").unlink()
    assert first.retry("A", from_step="publish").exit_status == 0
    assert results(first) == before


MAPPED = """
class Row(SampleRow):
    sample: str
    names: str

pipeline = Pipeline("mapped", rows=Row, key="sample")

def lane(name, ctx):
    made = ctx.step("make", lambda: ctx.shell("echo {name} > out.txt", name=name, outputs=["out.txt"]))
    ctx.publish({f"{name}.txt": made / "out.txt"})

@pipeline.sample
def one(sample, ctx):
    ctx.map("lanes", lane, sample.row.names.split("+"), key=str)
"""


def test_results_of_items_that_the_next_generation_does_not_have_go_too(project):
    project.write(MAPPED, "sample,names\nA,x+y\nB,x\n")
    assert project.run().exit_status == 0
    before = set(results(project))
    project.write_sheet("sample,names\nA,y+z\nB,x\n")
    assert project.run(rerun_changed=True).exit_status == 0
    after = set(results(project))
    assert {name for name in before - after if "x.txt" in name and "/A/" in f"/{name}"}
    assert {Path(name).name for name in after if f"/{name}".startswith("/A/")} == {"y.txt", "z.txt"}
    assert {name for name in before if name.startswith("B/")} == {name for name in after if name.startswith("B/")}
