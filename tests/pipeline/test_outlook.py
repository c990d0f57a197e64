"""What a run says before it does anything: changed code, changed input, --dry-run, also beside a living run."""

from __future__ import annotations

from canard_pipe.pipeline.opening import open_state

STEPS = """
class Row(SampleRow):
    sample: str
    text: str = "x"

pipeline = Pipeline("steps", rows=Row, key="sample", params={"depth": (int, 3)})

def first(sample):
    count(f"first {sample.key}")
    return 1

def second(sample):
    count(f"second {sample.key}")
    if sample.row.text == "bad":
        raise ValueError("no good")
    return 2

@pipeline.once
def ground(params, ctx):
    return params.depth

@pipeline.sample
def one(sample, ctx):
    ctx.step("first", first, sample)
    return ctx.step("second", second, sample)

@pipeline.cohort(after=one)
def together(results, ctx):
    return len(results)
"""
SHEET = "sample,text\nA,x\nB,x\nC,bad\n"


def dry(project, **options):
    before = project.counted()
    report = project.run(dry_run=True, **options)
    assert project.counted() == before
    return report, project.observer.plans[0]


def test_code_that_has_changed_is_named_by_step_and_never_acted_on(project):
    project.write(STEPS, "sample\nA\nB\n")
    project.run()
    project.write(STEPS.replace("    return 2", "    return 22"), "sample\nA\nB\n")
    assert project.run().exit_status == 0
    (note,) = [note for note in project.observer.notes if "code of step" in note]
    assert note == (
        "the code of step second has changed since it was saved of A, B: kept as it is; "
        "retry A --from second makes it anew"
    )
    assert project.counted().count("second A") == 1
    project.retry("A", from_step="second")
    assert project.counted().count("first A") == 1
    assert project.counted().count("second A") == 2
    project.run(dry_run=True)
    assert ["saved of B:" in note for note in project.observer.notes if "code of step" in note] == [True]


def test_a_comment_is_no_change_of_the_code(project):
    """BUGS 42: white space and comments trigger nothing; that the file is another is said."""
    project.write(STEPS, "sample\nA\n")
    project.run()
    project.write(STEPS.replace("    return 2", "    # the second\n    return 2"), "sample\nA\n")
    assert project.run().exit_status == 0
    assert [note for note in project.observer.notes if "pipeline file" in note] == [
        "the pipeline file has changed since the last run, but not the code of the steps that are saved"
    ]


def test_a_dry_run_tells_of_every_row_what_would_run_and_why(project):
    project.write(STEPS, SHEET)
    project.run()
    project.write_sheet("sample,text\nA,x\nB,y\nC,better\nD,x\n")
    report, said = dry(project)
    assert said[-4:] == [
        "B: nothing: it is done (column text changed); --rerun-changed makes it anew, --accept-changed keeps it",
        "C: from the top (column text changed)",
        "D: new, every step",
        "together (cohort): when one has ended for all samples",
    ]
    assert {row["sample"]: (row["state"], row["plan"], row["because"]) for row in report.samples} == {
        "ground": ("done", "same", None),
        "A": ("done", "same", None),
        "B": ("done", "changed", "column text"),
        "C": ("failed", "again", "column text"),
        "D": (None, "new", None),
    }
    _, said = dry(project, params=("depth=4",))
    assert "ground (once): from the top (parameter depth changed)" in said
    assert "A: nothing: it is done (parameter depth changed)" in "\n".join(said)


def test_a_dry_run_names_the_steps_that_a_sample_goes_on_after(project):
    project.write(STEPS, SHEET)
    project.run()
    with open_state(project.folder / ".canard", project.folder) as database:
        database.store.sql("UPDATE canard_absurd.tasks SET state = 'ready' WHERE id = 'steps/sample/C/1'")
    _, said = dry(project)
    assert "C: goes on after first" in said


def test_a_failed_sample_is_named_with_its_way_out(project):
    project.write(STEPS, SHEET)
    project.run()
    _, said = dry(project)
    assert "C: nothing: it has failed; `retry` runs it again" in said


def test_a_dry_run_works_beside_a_living_run(project):
    """It looks at the state and does not own it."""
    project.write(STEPS, "sample\nA\n")
    project.run()
    with open_state(project.folder / ".canard", project.folder) as owner:
        owner.serve()
        report, said = dry(project)
    assert said == ["1 as before: A"]
    assert report.exit_status == 0
