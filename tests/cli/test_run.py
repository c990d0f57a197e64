"""Whole runs in processes of their own: run, the same line again, a second terminal, retry, cancel, interrupt."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest

from tests.cli.pipelines import canard, command, environment, lay_out, start
from tests.conftest import wait_until


def states(folder):
    done = canard(folder, "status", "--json")
    assert done.returncode == 0, done.stderr
    return {row["sample"] or row["function"]: row["state"] for row in json.loads(done.stdout)}


@pytest.fixture
def held(tmp_path):
    """A run whose samples are held at their first command until the file ``hold`` is gone."""
    lay_out(tmp_path, A="good", B="good", C="good")
    hold = tmp_path / "hold"
    hold.touch()
    run = start(tmp_path, "run", "pipe.py", "s.csv", "--param", f"hold={hold}", "--cpus", "8")
    logs = [tmp_path / "work" / "tiny" / key / "copy" / "attempt-1" / "stdout.log" for key in "ABC"]
    wait_until(lambda: all(log.exists() and log.stat().st_size for log in logs) or run.poll() is not None, 30)
    assert run.poll() is None, (tmp_path / "run.log").read_text()
    yield run
    hold.unlink(missing_ok=True)
    if run.poll() is None:
        run.send_signal(signal.SIGTERM)
        run.wait(30)


def test_a_good_run_ends_with_0_and_the_same_line_does_nothing(tmp_path):
    lay_out(tmp_path, A="good", B="good", D="skip")
    first = canard(tmp_path, "run", "pipe.py", "s.csv")
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    assert "3 samples: 1 skipped, 2 done" in first.stdout
    assert "D: skipped: nothing in it" in first.stdout
    assert "results: results/" in first.stdout
    assert states(tmp_path) == {"A": "done", "B": "done", "D": "skipped", "reference": "done", "cohort": "done"}
    assert (tmp_path / "results" / "cohort" / "all.txt").read_text() == "2\n"
    again = canard(tmp_path, "run", "pipe.py", "s.csv")
    assert again.returncode == 0
    assert "nothing to do" in again.stdout
    assert "step" not in again.stdout.split("nothing to do")[0]


def test_one_bad_sample_gives_1_and_is_retried_alone_after_it_is_mended(tmp_path):
    lay_out(tmp_path, A="good", B="bad", C="good")
    done = canard(tmp_path, "run", "pipe.py", "s.csv")
    assert done.returncode == 1
    assert "next: canard-pipe why B" in done.stdout
    assert states(tmp_path) == {"A": "done", "B": "failed", "C": "done", "reference": "done", "cohort": "blocked"}
    why = canard(tmp_path, "why", "B").stdout
    assert "step: count" in why
    assert "ended: exit code 3" in why
    assert "  | it is bad" in why
    (tmp_path / "B.in").write_text("mended\n")
    retried = canard(tmp_path, "retry", "B")
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert set(states(tmp_path).values()) == {"done"}
    assert (tmp_path / "results" / "cohort" / "all.txt").read_text() == "3\n"


def test_plain_lines_have_their_time_and_no_colour(tmp_path):
    lay_out(tmp_path, A="good")
    lines = canard(tmp_path, "run", "pipe.py", "s.csv").stdout.split("\n\n")[0].splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \S", line) for line in lines)
    assert any(line.endswith("A: done") for line in lines)
    assert any(line.endswith("A: step copy is saved") for line in lines)


def test_json_of_a_run_is_alone_on_standard_output(tmp_path):
    lay_out(tmp_path, A="good", B="bad")
    done = canard(tmp_path, "run", "pipe.py", "s.csv", "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 1
    assert {row["sample"]: row["state"] for row in rows if row["sample"]} == {"A": "done", "B": "failed"}
    assert "B: failed" in done.stderr


def test_a_dry_run_says_what_would_run_and_makes_nothing(tmp_path):
    lay_out(tmp_path, A="good", B="good")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = canard(tmp_path, "run", "pipe.py", "s.csv", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "2 new: A, B" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before


def test_check_lists_everything_that_is_wrong_and_runs_nothing(tmp_path):
    lay_out(tmp_path, A="good", B="good")
    assert canard(tmp_path, "check", "pipe.py", "s.csv").returncode == 0
    (tmp_path / "A.in").unlink()
    (tmp_path / "B.in").write_text("")
    done = canard(tmp_path, "check", "pipe.py", "s.csv")
    assert done.returncode == 2
    assert "s.csv:2" in done.stderr
    assert "s.csv:3" in done.stderr
    found = json.loads(canard(tmp_path, "check", "pipe.py", "s.csv", "--json").stdout)
    assert found["ok"] is False
    assert [problem["line"] for problem in found["problems"]] == [2, 3]
    assert not (tmp_path / ".canard").exists()


def test_a_second_terminal_sees_the_run_within_a_second(held, tmp_path):
    begun = time.monotonic()
    assert states(tmp_path) == {
        "A": "running",
        "B": "running",
        "C": "running",
        "reference": "done",
        "cohort": "waiting",
    }
    text = canard(tmp_path, "status").stdout
    assert "running for" in text
    assert f"process {held.pid}" in text
    wait_until(lambda: "now in step copy" in canard(tmp_path, "why", "A").stdout, 20)  # status.json is some seconds old
    assert "A is running" in canard(tmp_path, "why", "A").stdout
    assert canard(tmp_path, "logs", "A").stdout.endswith("stdout.log <==\ncopying A\n")
    rows = canard(
        tmp_path, "sql", "--json", "select state, count(*) as n from canard_absurd.tasks group by state order by state"
    )
    assert json.loads(rows.stdout) == [{"state": "completed", "n": 1}, {"state": "running", "n": 3}]
    assert time.monotonic() - begun < 30  # a bound against hanging; how fast it is, make bench tells


def test_a_second_run_of_a_held_state_names_the_holder_and_ends_with_3(held, tmp_path):
    done = canard(tmp_path, "run", "pipe.py", "s.csv")
    assert done.returncode == 3
    assert f"process {held.pid} on" in done.stderr
    assert "Traceback" not in done.stderr


def test_cancel_and_retry_reach_the_living_run(held, tmp_path):
    done = canard(tmp_path, "cancel", "B")
    assert (done.returncode, done.stdout) == (0, "cancelled: B\n"), done.stderr
    assert states(tmp_path)["B"] == "cancelled"
    assert canard(tmp_path, "cancel", "nobody").returncode == 2
    done = canard(tmp_path, "retry", "B", "--json")
    assert json.loads(done.stdout) == {"ok": True, "message": "will run again: B"}, done.stderr
    (tmp_path / "hold").unlink()
    assert held.wait(60) == 0, (tmp_path / "run.log").read_text()
    assert states(tmp_path)["B"] == "done"


def test_following_logs_ends_with_the_sample(held, tmp_path):
    import subprocess

    follower = subprocess.Popen(
        command("logs", "-f", "A"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    assert follower.stdout.readline().endswith("stdout.log <==\n")
    assert follower.stdout.readline() == "copying A\n"
    (tmp_path / "hold").unlink()
    follower.communicate(timeout=60)
    assert follower.returncode == 0


def test_an_interrupted_run_ends_with_130_and_goes_on_with_nothing_counted(held, tmp_path):
    held.send_signal(signal.SIGINT)
    assert held.wait(30) == 130
    assert "nothing is lost, the same line goes on" in (tmp_path / "run.log").read_text()
    (tmp_path / "hold").unlink()
    done = canard(tmp_path, "run", "pipe.py", "s.csv", "--param", f"hold={tmp_path / 'hold'}")
    assert done.returncode == 0, done.stdout
    rows = json.loads(canard(tmp_path, "status", "--json").stdout)
    assert {row["failures"] for row in rows} == {0}


def test_after_sigkill_status_tells_what_was_and_the_same_line_goes_on(held, tmp_path):
    held.kill()
    held.wait(30)
    text = canard(tmp_path, "status").stdout
    assert "was interrupted" in text
    (tmp_path / "hold").unlink()
    assert canard(tmp_path, "run", "pipe.py", "s.csv", "--param", f"hold={tmp_path / 'hold'}").returncode == 0


def on_terminal(folder, *arguments, **more):
    """Run the command line on a pseudo-terminal; return its exit status and what the terminal got."""
    import pty

    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(folder)
        line = command(*arguments)
        os.execvpe(line[0], line, environment(TERM="xterm", COLUMNS="100", LINES="40", **more))
    got = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        got += piece
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got.decode()


def test_on_a_terminal_there_is_a_live_view(tmp_path):
    lay_out(tmp_path, A="good", B="bad")
    status, text = on_terminal(tmp_path, "run", "pipe.py", "s.csv", "--param", "seconds=0")
    assert status == 1
    assert "\x1b[?25l" in text  # the cursor is hidden while it draws
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    assert "step copy is saved" not in text
    assert "B: failed" in text
    assert "2 samples: 1 failed, 1 done" in text
    assert "\x1b[32m" in on_terminal(tmp_path, "status")[1]


def test_no_color_is_respected_on_a_terminal(tmp_path):
    lay_out(tmp_path, A="good")
    assert on_terminal(tmp_path, "run", "pipe.py", "s.csv", NO_COLOR="1")[0] == 0
    status, text = on_terminal(tmp_path, "status", NO_COLOR="1")
    assert status == 0
    assert "\x1b[" not in text


def test_a_cancel_of_what_runs_is_told_by_the_run_too(held, tmp_path):
    assert canard(tmp_path, "cancel", "A").returncode == 0
    wait_until(lambda: re.search(r"  A: cancelled$", (tmp_path / "run.log").read_text(), re.M), 20)


def test_a_retry_that_has_nothing_to_do_ends_with_2_with_and_without_a_run(held, tmp_path):
    asked = canard(tmp_path, "retry", "A")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "nothing to retry: A is running" in asked.stderr
    (tmp_path / "hold").unlink()
    assert held.wait(60) == 0
    asked = canard(tmp_path, "retry", "A")
    assert asked.returncode == 2
    assert "nothing to retry: A is done; --from STEP" in asked.stderr
    assert canard(tmp_path, "retry", "--failed").returncode == 0


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "> /dev/full", "| true"])
def test_the_exit_status_is_about_the_samples_even_if_nobody_can_read(tmp_path, redirection):
    """As under cron, or before `| head -1`: what is printed is not what was done."""
    lay_out(tmp_path, A="good")
    line = shlex.join(command("run", "pipe.py", "s.csv", "--param", "seconds=0"))
    ended = subprocess.run(
        ["bash", "-c", f"{line} {redirection}; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert list((tmp_path / "results" / "A").iterdir())


def test_a_state_that_has_lost_its_database_is_not_begun_anew_in_silence(tmp_path):
    """BUGS 22: the way out is named, and along it the results that are there are taken over."""
    lay_out(tmp_path, A="good")
    again = ("run", "pipe.py", "s.csv", "--param", "seconds=0")
    assert canard(tmp_path, *again).returncode == 0
    file = tmp_path / ".canard" / "state.duckdb"
    os.truncate(file, 5000)
    damaged = canard(tmp_path, *again)
    assert (damaged.returncode, "Put back a backup" in damaged.stderr) == (3, True)
    assert file.stat().st_size == 5000
    file.unlink()
    lost = canard(tmp_path, *again)
    assert (lost.returncode, "has lost its database" in lost.stderr) == (2, True)
    assert not file.exists()
    (tmp_path / ".canard").rename(tmp_path / "aside")
    shown = canard(tmp_path, *again)
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_a_sheet_in_the_place_of_the_pipeline_is_not_executed(tmp_path):
    lay_out(tmp_path, A="good")
    (tmp_path / "x.csv").write_text("open('executed', 'w')\n")
    told = canard(tmp_path, "check", "x.csv", "pipe.py")
    assert told.returncode == 2
    assert "PIPELINE comes first, then SHEET" in told.stderr
    assert not (tmp_path / "executed").exists()
