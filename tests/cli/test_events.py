"""A sample that waits for an event, and a terminal that emits it in SQL."""

from __future__ import annotations

from tests.cli.pipelines import canard, start
from tests.cli.test_run import states
from tests.conftest import wait_until

PIPELINE = """
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("waiting", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    return ctx.wait("panel", events=["panel"]).events["panel"]
"""

TASK_STATES = "select state from canard_absurd.tasks"


def test_an_event_from_a_terminal_wakes_the_sample(tmp_path):
    """L1: as docs/pipelines.md shows."""
    (tmp_path / "pipe.py").write_text(PIPELINE)
    (tmp_path / "s.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "pipe.py", "s.csv")
    try:
        wait_until(lambda: "suspended" in canard(tmp_path, "sql", "--csv", TASK_STATES).stdout, 30)
        assert states(tmp_path) == {"A": "waiting"}
        emitted = canard(
            tmp_path, "sql", "--write", "insert into canard_absurd.events values ('panel', '\"v2\"', now())"
        )
        assert emitted.returncode == 0, emitted.stderr
        assert run.wait(30) == 0
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    found = canard(tmp_path, "sql", "--csv", "select result from canard_absurd.tasks")
    assert found.stdout.splitlines()[1:] == ['"""v2"""']
