"""Stop means stop, run by run: terminals that close, second signals, programs that ignore TERM, a launcher that dies.

Single signals and kills of the run are in test_survival.py, leases and trees in tests/execution.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from pathlib import Path

import duckdb
import psutil
import pytest

from tests.conftest import wait_until
from tests.program import LOG, command, environment, start
from tests.test_survival import TREE, alive

STUBBORN = '''
from canard_pipe import Pipeline, SampleRow

class Row(SampleRow):
    sample: str

pipeline = Pipeline("stubborn", rows=Row, key="sample", limits={"one": 1})

@pipeline.sample
def one(sample, ctx):
    ctx.step("tree", lambda: ctx.process(["bash", "-c", """
        trap '' TERM HUP INT
        [ -e ../../../../../again ] && exit 0
        (trap '' TERM; setsid sleep 101 & sleep 102) &
        touch ../../../../../running
        while :; do sleep 103; done
    """], limits=["one"]))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "samples.csv").write_text("sample\nA\nB\n")
    return tmp_path


LINE = ("run", "stubborn.py", "samples.csv")


def at_work(folder: Path) -> list[psutil.Process]:
    """The processes whose directory lies in the folder, whatever they have done to their environment."""
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        inside = (process.info["cwd"] or "").startswith(str(folder))
        if inside and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(process)
    return found


def tasks(folder: Path) -> set[tuple[str, int]]:
    with duckdb.connect(str(folder / ".canard" / "state.duckdb"), read_only=True) as con:
        return set(con.execute("SELECT state, failures FROM canard_absurd.tasks").fetchall())


def take_terminal() -> None:
    """Make standard input the controlling terminal of a new session, as a login does."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once_what_ignores_the_first(folder, number):
    """BUGS 50: TERM is ignored, also by a session of its own; nothing is counted."""
    run = start(folder, *LINE)
    wait_until((folder / "running").exists, 30)
    run.send_signal(number)
    wait_until(lambda: "stopping" in (folder / LOG).read_text(), 30)
    assert len(at_work(folder)) > 1, "the grace goes on"
    run.send_signal(number)
    assert run.wait(30) == 130
    wait_until(lambda: not at_work(folder), 5)
    assert tasks(folder) == {("ready", 0)}


def test_a_terminal_that_closes_stops_the_run_and_all_that_it_has_started(folder):
    """BUGS 50 c, with a real terminal: SIGHUP comes from the kernel, and nobody can read the output any more."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        command(*LINE), cwd=folder, env=environment(TERM="xterm"), stdin=theirs, stdout=theirs, stderr=theirs,
        preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(theirs)
    try:
        wait_until((folder / "running").exists, 30, every_seconds=0.05)
        os.close(ours)
        assert run.wait(40) in (130, 1, 3)
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: not at_work(folder), 5)
    assert tasks(folder) == {("ready", 0)}


def test_a_launcher_that_is_killed_takes_its_commands_along_and_the_run_goes_on(folder):
    """BUGS 50: daemons included; the commands run again and nothing is counted."""
    run = start(folder, *LINE)
    try:
        wait_until((folder / "running").exists, 30)
        (launcher,) = [
            child for child in psutil.Process(run.pid).children() if "launcher.py" in " ".join(child.cmdline())
        ]
        before = set(at_work(folder)) - {psutil.Process(run.pid), launcher}
        before -= set(psutil.Process(run.pid).children())
        assert before
        (folder / "again").touch()
        launcher.kill()
        assert run.wait(60) == 0, (folder / LOG).read_text()
    finally:
        run.kill()
        run.wait()
    assert not [process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    wait_until(lambda: not at_work(folder), 5)
    assert tasks(folder) == {("completed", 0)}


def children_of(run: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The launcher and the guard of a run."""
    lines = {child: " ".join(child.cmdline()) for child in psutil.Process(run.pid).children()}
    return {name: child for child, line in lines.items() for name in ("launcher.py", "canard-guard") if name in line}


def test_a_run_killed_together_with_its_launcher_leaves_nothing(tmp_path):
    """BUGS 50: as killall does; the guard is a shell."""
    (tmp_path / "tree.py").write_text(TREE.replace("env -i ", ""))  # without it nothing tells whose it is
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "tree.py", "samples.csv")
    wait_until((tmp_path / "running").exists, 20)
    run.send_signal(signal.SIGSTOP)  # neither may end what the other leaves
    children = children_of(run)
    children["launcher.py"].suspend()
    children["launcher.py"].kill()
    run.kill()
    run.wait()
    wait_until(lambda: not alive(tmp_path), 10.0)
    wait_until(lambda: not children["canard-guard"].is_running(), 10.0)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_run_killed_with_its_launcher_and_guard_left_alive_is_ended_by_the_next_one(tmp_path):
    """Nobody is there to end it at once; but it never runs beside its own repetition."""
    (tmp_path / "tree.py").write_text(TREE.replace("env -i ", ""))  # without it nothing tells whose it is
    (tmp_path / "samples.csv").write_text("sample\nA\n")
    run = start(tmp_path, "run", "tree.py", "samples.csv")
    wait_until((tmp_path / "running").exists, 20)
    for child in children_of(run).values():
        child.kill()
    run.kill()
    run.wait()
    left = {process.pid for process in at_work(tmp_path) if "sleep 103" in " ".join(cmdline(process))}
    assert left
    again = start(tmp_path, "run", "tree.py", "samples.csv")
    wait_until(lambda: list(tmp_path.glob("work/**/tree/attempt-2")), 20)
    wait_until(lambda: not any(map(lives, left)), 2.0)
    again.kill()
    again.wait()
    wait_until(lambda: not alive(tmp_path), 1.0)


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
