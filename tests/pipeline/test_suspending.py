"""Tasks that sleep while their commands run: nothing runs twice, nothing is held, and every death is survived."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest

from canard_pipe.pipeline.opening import open_state
from tests.cli.pipelines import canard, start
from tests.conftest import wait_until
from tests.execution.conftest import alive_with

STEPS = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("sleepy", rows=Row, key="sample")

def command(ctx, name, text="true"):
    text = f"echo {name} >> {HERE}/executions; {text}; echo {name} > {name}"
    return ctx.process(["bash", "-c", text], outputs=[name])

def three(sample, ctx):
    one = command(ctx, "one")
    two = command(ctx, "two", f"cat {one}/one > /dev/null")
    return command(ctx, "three", f"cat {two}/two > /dev/null; while [ -e {HERE}/hold ]; do sleep 0.05; done") / "three"

@pipeline.sample
def sample(sample, ctx):
    ctx.publish({"three": ctx.step("three", three, sample, ctx)})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipe.py").write_text(textwrap.dedent(STEPS))
    (tmp_path / "s.csv").write_text("sample\nA\n")
    return tmp_path


def executions(folder: Path) -> list[str]:
    file = folder / "executions"
    return file.read_text().split() if file.exists() else []


RUN = ("run", "pipe.py", "s.csv", "--suspend-always")


def test_each_command_of_a_step_runs_once_though_the_task_sleeps_at_each(folder):
    ended = canard(folder, *RUN)
    assert ended.returncode == 0, ended.stderr
    assert executions(folder) == ["one", "two", "three"]
    assert (folder / "results" / "A" / "three").read_text() == "three\n"
    rows = canard(folder, "sql", "--csv", "select outcome from canard_absurd.attempts order by attempt").stdout.split()
    assert rows[1:] == ["suspended", "suspended", "suspended", "completed"]
    rows = canard(folder, "sql", "--csv", "select state, live from canard_absurd.jobs").stdout.split()
    assert rows[1:] == ["done,False"] * 3


def test_a_sample_whose_command_runs_holds_no_claim_and_is_called_running(folder):
    (folder / "hold").touch()
    run = start(folder, *RUN)
    try:
        wait_until(lambda: executions(folder) == ["one", "two", "three"], 60)
        query = (
            "select t.state, t.worker is null, s.state "
            "from canard_absurd.tasks t join canard_absurd.samples s on s.task_id = t.id"
        )
        found = lambda: canard(folder, "sql", "--csv", query).stdout.splitlines()[1:]  # noqa: E731
        wait_until(lambda: found() == ["suspended,True,running"], 30)
        (folder / "hold").unlink()
        assert run.wait(60) == 0
    finally:
        end(run)


def test_after_sigkill_of_the_run_the_next_goes_on_at_the_command_that_was_running(folder):
    (folder / "hold").touch()
    run = start(folder, *RUN)
    try:
        wait_until(lambda: executions(folder) == ["one", "two", "three"], 60)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(30)
    finally:
        end(run)
    (folder / "hold").unlink()
    ended = canard(folder, *RUN)
    assert ended.returncode == 0, ended.stderr
    assert executions(folder) == ["one", "two", "three", "three"]


def test_cancel_ends_the_command_of_a_task_that_sleeps(folder):
    (folder / "hold").touch()
    run = start(folder, *RUN)
    try:
        wait_until(lambda: executions(folder) == ["one", "two", "three"], 60)
        assert alive_with(str(folder / "hold"))
        asked = canard(folder, "cancel", "A")
        assert asked.returncode == 0, asked.stderr
        assert run.wait(60) == 1
        assert not alive_with(str(folder / "hold"))
    finally:
        end(run)
    with open_state(folder / ".canard", folder) as database:
        query = "SELECT state, live, to_cancel FROM canard_absurd.jobs WHERE ordinal = 3"
        _, rows = database.store.sql(query)
    assert rows == [("cancelled", False, False)]


def end(run) -> None:
    if run.poll() is None:
        run.kill()
        run.wait()
