"""Nothing outlives its command, its run or its launcher (BUGS 50, G29). Real processes, really killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from canard_pipe.errors import StorageError
from canard_pipe.execution import local
from canard_pipe.execution.channel import end_processes_of_run
from tests.conftest import wait_until
from tests.execution.conftest import alive_with

REPOSITORY = Path(__file__).resolve().parents[2]
# Forks twice, in a session of its own; the first process ends only when that is done.
DAEMON = (
    "import os, time\nr, w = os.pipe()\nif os.fork(): os.read(r, 1); os._exit(0)\n"
    "os.setsid()\nif os.fork(): os._exit(0)\nos.write(w, bytes(1)); time.sleep({})"
)

RUN = """
    import sys, threading, time
    from pathlib import Path
    from canard_pipe.engine.database import Database
    from canard_pipe.execution.context import contexts
    from canard_pipe.execution.local import LocalExecutor
    from canard_pipe.execution.resources import Budget

    root, program, marker = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    lock = open(root / "lock", "w")
    executor = LocalExecutor(Budget(8, 1 << 30, monotonic=time.monotonic), keep_open=lambda: [lock.fileno()])
    with Database(root / "state.duckdb", root=root, claim_type=contexts(executor, root / "work")) as db, executor:
        db.spawn("sample", {}, id="s1")
        context = db.claim()
        if program == "shells":
            second = f"sleep {marker}.2 & sleep {marker}.3"
            context.pipe(["bash", "-c", f"sleep {marker}.1 | cat"], ["bash", "-c", second])
        elif program == "setsid":
            text = f"(setsid sleep {marker}.1 &); setsid bash -c 'sleep {marker}.2; true' & sleep {marker}.3"
            context.process(["bash", "-c", text])
        elif program == "daemon":
            context.process(["bash", "-c", f"python3 -c '{sys.argv[4]}'; sleep {marker}.2"])
"""


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    runs = []

    def start(program: str, marker: str, processes: int, code: str = RUN) -> subprocess.Popen[bytes]:
        """Start a run and return it when so many processes of its commands have ``marker`` in their arguments."""
        arguments = [str(tmp_path), program, marker, DAEMON.format(f"{marker}.1")]
        run = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *arguments], cwd=REPOSITORY
        )
        runs.append(run)
        wait_until(lambda: len(set(alive_with(marker)) - {run.pid}) >= processes or run.poll() is not None, 20)
        assert run.poll() is None
        return run

    yield start
    for run in runs:
        run.kill()
        run.wait()


@pytest.mark.parametrize(("program", "processes"), [("shells", 5), ("setsid", 5), ("daemon", 2)])
def test_sigkill_of_the_run_ends_everything_within_a_second(start_run, tmp_path, program, processes):
    # S39
    marker = f"730{len(program)}"
    run = start_run(program, marker, processes)
    run.kill()
    run.wait()
    wait_until(lambda: not alive_with(marker), 1.0)
    assert not list(tmp_path.rglob("status.json")), "what was killed with the run has no outcome"


def test_fork_of_the_run_does_not_keep_the_launcher(start_run):
    # a child that the run has forked holds the other end of the launcher's socket
    forking = "__import__('os').fork() or time.sleep(7310.9)\n        context = db.claim()"
    run = start_run("shells", "7310", 6, code=RUN.replace("context = db.claim()", forking))
    run.kill()
    run.wait()
    try:
        wait_until(lambda: not alive_with("sleep 7310."), 1.5)
    finally:
        for pid in alive_with("7310"):
            os.kill(pid, signal.SIGKILL)


def test_lock_of_the_owner_is_free_only_when_the_launcher_is_gone(start_run, tmp_path):
    run = start_run("shells", "7320", 5)
    children = psutil.Process(run.pid).children()
    (launcher,) = (child.pid for child in children if "launcher.py" in " ".join(child.cmdline()))
    os.kill(launcher, signal.SIGSTOP)
    run.kill()
    run.wait()
    held = [str(entry.readlink()) for entry in Path(f"/proc/{launcher}/fd").iterdir()]
    assert str(tmp_path / "lock") in held
    os.kill(launcher, signal.SIGCONT)
    wait_until(lambda: not alive_with("7320"), 2.0)
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_commands_do_not_hold_the_lock(make_lab, tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        lab = make_lab(keep_open=lambda: [lock.fileno()])
        folder = lab.claim().process(["sh", "-c", "ls -l /proc/self/fd"])
        assert "lock" not in (folder / "stdout.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_launcher_leaves_the_terminals_signals_to_the_run(lab, background, number):
    # BUGS 50 a, b, c: the run decides, and tells the launcher
    context = lab.claim()
    os.kill(lab.executor._launcher.pid, number)
    assert background(lambda: context.process(["sleep", "0.2"])).join().error is None


def test_left_over_daemon_is_ended_before_the_command_counts_as_done(lab):
    started = time.monotonic()
    folder = lab.claim().process([sys.executable, "-c", DAEMON.format("7330")])
    assert alive_with("7330") == []
    assert time.monotonic() - started < 2
    assert (folder / "status.json").exists()


def test_left_over_background_job_is_ended_too(lab):
    folder = lab.claim().process(["bash", "-c", "sleep 7331 & exit 0"])
    assert alive_with("sleep 7331") == []
    assert '"left_over": 1' in (folder / "status.json").read_text()


@pytest.mark.parametrize("hidden", [
    "os.chdir('/')",  # its output still goes to the log of its try
    "[os.dup2(os.open(os.devnull, os.O_RDWR), n) for n in (0, 1, 2)]",  # it still works in the folder
])
def test_daemon_that_hides_its_environment_is_known_by_the_folder_of_its_try(lab, background, hidden):
    """It would write on while the result of its command is published."""
    first, second = lab.claim("s1"), lab.claim("s2")
    long = background(lambda: first.process(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]))
    second.process(["env", "-i", sys.executable, "-c", f"import os; {hidden}\n" + DAEMON.format("7339")])
    assert not alive_with("7339")
    (lab.root / "work/s1/+main/attempt-1/go").touch()
    assert long.join().error is None


def test_daemon_that_hides_altogether_is_ended_when_it_can_only_be_that_commands(lab, background, wait_until):
    first, second = lab.claim("s1"), lab.claim("s2")
    long = background(lambda: first.process(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]))
    hidden = "import os; os.chdir('/'); [os.dup2(os.open(os.devnull, os.O_RDWR), n) for n in (0, 1, 2)]\n"
    second.process(["env", "-i", sys.executable, "-c", hidden + DAEMON.format("7332")])
    assert alive_with("7332"), "it might be the other command's"
    (lab.root / "work/s1/+main/attempt-1/go").touch()
    assert long.join().error is None
    wait_until(lambda: not alive_with("7332"))


def test_other_commands_go_on_when_one_is_ended(lab, background, wait_until):
    first, second = lab.claim("s1"), lab.claim("s2")
    text = "(setsid sleep 7333.1 &); while [ ! -e go ]; do sleep 0.02; done"
    long = background(lambda: first.process(["bash", "-c", text]))
    wait_until(lambda: alive_with("sleep 7333.1"))
    with pytest.raises(Exception, match="longer than its time"):
        second.process(["bash", "-c", "(setsid sleep 7333.2 &); sleep 7333.3"], timeout=0.4)
    assert alive_with("sleep 7333.1")
    assert not alive_with("sleep 7333.2")
    assert not alive_with("sleep 7333.3")
    (lab.root / "work/s1/+main/attempt-1/go").touch()
    assert long.join().error is None


def test_death_of_the_launcher_ends_its_commands_and_they_run_again(lab, background, wait_until, caplog):
    context = lab.claim()
    text = "[ $(wc -l < %s) = 2 ] || { (setsid sleep 7340.1 &); sleep 7340.2; }" % (lab.root / "executions")
    call = background(lambda: context.process(lab.counting(text)))
    wait_until(lambda: len(alive_with("sleep 7340.")) >= 2)
    os.kill(lab.executor._launcher.pid, signal.SIGKILL)
    assert call.join().error is None
    assert call.result.name == "attempt-2"
    assert alive_with("sleep 7340.") == []
    assert lab.executions == 2
    assert "launcher died" in caplog.text
    assert lab.jobs() == [(1, "interrupted", "launcher died"), (2, "done", None)]


def test_launcher_that_dies_while_a_handler_takes_in_the_end_of_its_command_harms_nobody(lab, background, monkeypatch):
    taken, dead = threading.Event(), threading.Event()
    outcome_of, end = lab.executor._outcome_of, end_processes_of_run

    def late(admitted):  # the end was told, and the handler has not looked yet
        lab.executor._launcher.kill()
        assert dead.wait(10)
        try:
            return outcome_of(admitted)
        finally:
            taken.set()

    def end_processes(token):
        dead.set()
        assert taken.wait(10)
        return end(token)

    monkeypatch.setattr(lab.executor, "_outcome_of", late)
    monkeypatch.setattr(local, "end_processes_of_run", end_processes)
    background(lambda: lab.claim().process(["true"])).join()
    monkeypatch.undo()
    assert background(lambda: lab.claim("b").process(["true"])).join().error is None, "somebody still supervises"


def test_launcher_that_dies_again_and_again_is_an_error_of_storage_not_of_the_sample(lab):
    context = lab.claim()
    with pytest.raises(StorageError, match="the launcher died 3 times"):
        context.process(["sh", "-c", "kill -KILL $PPID; sleep 7341"])
    assert alive_with("sleep 7341") == []


def test_processes_of_a_run_are_found_by_its_token():
    environment = os.environ | {"CANARD_RUN": "token-of-a-dead-run"}
    process = subprocess.Popen(["bash", "-c", "env -u CANARD_RUN sleep 7350.1 & sleep 7350.2"], env=environment)
    wait_until(lambda: len(alive_with("sleep 7350.")) >= 3)
    assert end_processes_of_run("token-of-a-dead-run") == 3
    process.wait()
    assert end_processes_of_run("token-of-a-dead-run") == 0


def test_launcher_sleeps_while_nothing_happens(lab, background, wait_until):
    context = lab.claim()
    context.process(["true"])
    stat = Path(f"/proc/{lab.executor._launcher.pid}/status")

    def switches():
        return [line for line in stat.read_text().splitlines() if "ctxt_switches" in line]

    wait_until(lambda: "S (sleeping)" in stat.read_text())
    before = switches()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 0.5)
    assert switches() == before


def test_closing_does_not_wait_for_a_stuck_launcher_for_ever(lab, background, wait_until, monkeypatch):
    monkeypatch.setattr(local, "PATIENCE_SECONDS", 0.1)
    context = lab.claim()
    call = background(lambda: context.process(["sleep", "7360"]))
    wait_until(lambda: alive_with("sleep 7360"))
    os.kill(lab.executor._launcher.pid, signal.SIGSTOP)
    lab.executor.close()
    assert call.join().error is not None
    assert alive_with("sleep 7360") == []
