"""A worker that was frozen while another took its sample over: nothing of it reaches the state or the results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import wait_until
from tests.program import LOG, canard, environment, start

PIPELINE = """
from pathlib import Path
from canard_pipe import Pipeline, SampleRow

HERE = Path(__file__).parent

class Row(SampleRow):
    sample: str

pipeline = Pipeline("stale", rows=Row, key="sample")

@pipeline.sample
def one(sample, ctx):
    text = '''
        if ! [ -e {here}/first ]; then
            echo $$ > {here}/first.new; mv {here}/first.new {here}/first
            until [ -e {here}/go ]; do sleep 0.05; done
        fi
        pwd > out.txt
    '''
    out = ctx.step("make", lambda: ctx.shell(text, here=HERE, outputs=["out.txt"]))
    ctx.publish({"out.txt": out / "out.txt"})
"""
# A worker with a lease of 4 s instead of 30.
WORKER = """
import sys
from canard_pipe.pipeline import joining
joining.LEASE_SECONDS, joining.MARGIN_SECONDS = 4.0, 0.5
from canard_pipe.cli.main import main
sys.exit(main())
"""


def worker(folder: Path) -> subprocess.Popen[str]:
    with (folder / LOG).open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, "worker", "--wait", "30"], cwd=folder, env=environment(), stdout=log,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("its_command", ["has ended meanwhile", "is still at work"])
def test_a_frozen_worker_that_wakes_up_writes_nothing(tmp_path, its_command):
    """BUGS 8: the other one has saved and published; a command at work is done again in another folder, and its stale
    tool is ended; one that has ended meanwhile is taken over by its record.
    """
    (tmp_path / "stale.py").write_text(PIPELINE)
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    planning = start(tmp_path, "run", "stale.py", "samples.csv")
    wait_until((tmp_path / "first").exists, 30)
    planning.kill()
    planning.wait()
    (tmp_path / "first").unlink()

    server = start(tmp_path, "serve")
    processes = [server]
    try:
        wait_until(lambda: "serving" in (tmp_path / LOG).read_text(), 30)
        frozen = worker(tmp_path)
        processes.append(frozen)
        wait_until((tmp_path / "first").exists, 30)
        os.kill(frozen.pid, signal.SIGSTOP)
        tool = psutil.Process(int((tmp_path / "first").read_text()))
        if its_command == "has ended meanwhile":
            (tmp_path / "go").touch()
        processes.append(worker(tmp_path))
        result = tmp_path / "results" / "A" / "out.txt"
        wait_until(result.exists, 40)
        seen = (result.read_bytes(), result.stat().st_ino)
        os.kill(frozen.pid, signal.SIGCONT)
        wait_until(lambda: not tool.is_running() or tool.status() == psutil.STATUS_ZOMBIE, 30)
        for process in processes[1:]:
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0, (tmp_path / LOG).read_text()
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(40)
    assert (result.read_bytes(), result.stat().st_ino) == seen
    tries = {folder.name for folder in tmp_path.glob("work/stale/A*/make/attempt-*")}
    last = 2 if its_command == "has ended meanwhile" else 3
    assert tries == {f"attempt-{number}" for number in range(1, last + 1)}
    assert result.read_text().strip().endswith(f"attempt-{last}")
    query = "SELECT state, failures FROM canard_absurd.tasks"
    assert json.loads(canard(tmp_path, "sql", "--json", query).stdout) == [{"state": "completed", "failures": 1}]
