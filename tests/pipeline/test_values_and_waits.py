"""What pipelines take over from the engine: registered types as values, and waiting for events."""

from __future__ import annotations

import pytest

from canard_pipe.errors import PipelineFileError
from canard_pipe.pipeline.opening import open_state

MODELS = """
from dataclasses import dataclass
from pydantic import BaseModel

@dataclass(frozen=True)
class Depths:
    mean: float

class Report(BaseModel):
    sample: str
    depths: Depths

class Row(SampleRow):
    sample: str

pipeline = Pipeline("typed", rows=Row, key="sample", types=TYPES)

@pipeline.sample
def one(sample, ctx):
    depths = ctx.step("measure", lambda: Depths(30.5))
    assert isinstance(depths, Depths)
    return Report(sample=sample.key, depths=depths)

@pipeline.cohort(after=one)
def together(results, ctx):
    count(sum(report.depths.mean for report in results.values()))
"""
WAITING = """
class Row(SampleRow):
    sample: str

pipeline = Pipeline("waiting", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    if sample.key == "A":
        count(ctx.wait("panel", events=["panel is there"]).events)
    else:
        ctx.step("make", lambda: ctx.process(["sleep", "0.3"]).name)
        ctx.database.emit("panel is there", sample.key)
"""


def test_registered_types_go_from_step_to_cohort(project):
    project.write(MODELS.replace("TYPES", "[Depths, Report]"), "sample\nA\nB\n")
    assert project.run().exit_status == 0
    assert project.counted() == ["61.0"]
    assert project.run(dry_run=True).exit_status == 0


def test_a_type_that_was_not_named_fails_the_sample_and_says_so(project):
    project.write(MODELS.replace("TYPES", "[Report]"), "sample\nA\n")
    report = project.run()
    (row,) = [row for row in report.samples if row["sample"] == "A"]
    assert row["state"] == "failed"
    assert "Depths cannot be stored" in row["error"]


def test_what_cannot_be_registered_is_a_mistake_of_the_pipeline_file(project):
    project.write(MODELS.replace("TYPES", "[dict]"), "sample\nA\n")
    with pytest.raises(PipelineFileError, match="dataclasses and pydantic models"):
        project.run()


def test_a_sample_can_wait_for_what_another_one_says(project):
    """L1: it holds no slot meanwhile, and the run does not end before it has come."""
    project.write(WAITING, "sample\nA\nB\n")
    report = project.run(slots=1)
    assert project.states(report) == {"A": "done", "B": "done"}
    assert project.counted() == ["{'panel is there': 'B'}"]
    with open_state(project.folder / ".canard", project.folder) as database:
        assert sorted(database.store.sql("SELECT sample, step, kind FROM canard_absurd.steps")[1]) == [
            ("A", "panel", "wait"), ("B", "make", "step"),
        ]  # fmt: skip
