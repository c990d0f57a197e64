"""Every command as a new user types it, on a terminal and in a script: the same words and the same exit status.

One project is used by all: A is cancelled while it runs, B fails, C is done; the tests that change it come last.
"""

from __future__ import annotations

import json

import pytest

from tests.cli.pipelines import canard, lay_out
from tests.conftest import wait_until
from tests.terminal import COLOUR, OnTerminal

RUN = ("run", "pipe.py", "s.csv", "--cpus", "8")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project after a run on a terminal that others have looked at, followed, and cancelled a sample of."""
    folder = tmp_path_factory.mktemp("terminal")
    lay_out(folder, A="good", B="bad", C="good")
    hold = folder / "hold"
    hold.touch()
    run = OnTerminal(folder, *RUN, "--param", f"hold={hold}")
    followed = None
    try:
        logs = [folder / "work" / "tiny" / key / "copy" / "attempt-1" / "stdout.log" for key in "ABC"]
        wait_until(lambda: all(log.exists() and log.stat().st_size for log in logs), 60)
        followed = OnTerminal(folder, "logs", "C", "-f")
        wait_until(lambda: "copying C" in followed.plain, 60)
        going = OnTerminal(folder, "status")
        assert going.wait() == 0
        assert "running for" in going.plain
        cancelled = OnTerminal(folder, "cancel", "A")
        assert (cancelled.wait(), cancelled.plain) == (0, "cancelled: A\n")
        hold.unlink()
        assert run.wait() == 1
        assert followed.wait() == 0  # it ends by itself, since the sample has
    finally:
        run.end()
        if followed is not None:
            followed.end()
    assert "copy/attempt-1/stdout.log <==\ncopying C\n" in followed.plain
    return folder, run


def test_the_run_shows_a_live_view_and_ends_with_a_summary_in_colour(project):
    _, run = project
    assert "\x1b[?25l" in run.text  # the cursor is hidden while it draws
    assert COLOUR.search(run.text)
    assert "3 samples: 1 failed, 1 cancelled, 1 done" in run.plain
    assert "exit status 1: not everything is done" in run.plain
    assert "next: canard-pipe why B" in run.plain


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("status",), 0, ["3 samples: 1 failed, 1 cancelled, 1 done", "why: canard-pipe why B"]),
        (("why", "B"), 0, ["exit code 3", "it is bad"]),
        (("logs", "B", "count"), 0, ["it is bad"]),
        (("check", "pipe.py", "s.csv"), 0, ["nothing is wrong: a run can start"]),
        (("config",), 0, ["profile: none", "max_jobs"]),
        (("clean",), 0, ["C"]),
        (("sql", "select sample from canard_absurd.samples where state = 'failed'"), 0, ["B"]),
        (("why", "nobody"), 2, ["'nobody' is not in the plan of tiny"]),
        (("statsu",), 2, ["Did you mean 'status'?"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_terminal_and_a_script_read_the_same(project, arguments, status, words):
    folder, _ = project
    shown = OnTerminal(folder, *arguments)
    assert shown.wait() == status
    piped = canard(folder, *arguments)
    assert piped.returncode == status
    assert "\x1b" not in piped.stdout + piped.stderr
    for word in words:
        assert word in shown.plain
        assert word in piped.stdout + piped.stderr
    assert set((piped.stdout + piped.stderr).split()) == set(shown.plain.split())


@pytest.mark.parametrize(
    "arguments",
    [("status", "--json"), ("status", "--counts", "--json"), ("why", "B", "--json"), ("logs", "B", "--json"),
     ("check", "pipe.py", "s.csv", "--json"), ("config", "--json"), ("clean", "--json")],
    ids=" ".join,
)  # fmt: skip
def test_json_is_json_on_a_terminal_too(project, arguments):
    folder, _ = project
    shown = OnTerminal(folder, *arguments)
    assert shown.wait() == 0
    assert "\x1b" not in shown.text
    json.loads(shown.text)


def test_no_color_takes_the_colour_away_and_nothing_else(project):
    folder, _ = project
    coloured, bare = OnTerminal(folder, "status"), OnTerminal(folder, "status", NO_COLOR="1")
    assert (coloured.wait(), bare.wait()) == (0, 0)
    assert COLOUR.search(coloured.text)
    assert "\x1b" not in bare.text
    assert bare.text == coloured.plain


def test_the_doctor_says_the_same_of_this_machine_in_colour(project):
    folder, _ = project
    shown = OnTerminal(folder, "doctor")
    assert shown.wait() in (0, 1)  # a machine of tests may lack something
    assert "Traceback" not in shown.plain
    told = canard(folder, "doctor", "--json")
    assert told.returncode == shown.process.returncode
    assert json.loads(told.stdout)


def test_a_backup_is_made_once_and_never_over_a_file(project):
    folder, _ = project
    shown = OnTerminal(folder, "backup", "copy.duckdb")
    assert shown.wait() == 0
    assert (folder / "copy.duckdb").stat().st_size > 0
    again = canard(folder, "backup", "copy.duckdb", "--json")
    assert (again.returncode, "exists" in again.stdout + again.stderr) == (2, True)


def test_a_retry_on_a_terminal_goes_back_to_a_step_and_ends_what_was_open(project):
    folder, _ = project
    (folder / "B.in").write_text("mended\n")
    retried = OnTerminal(folder, "retry", "A", "B", "--from", "copy")
    assert retried.wait() == 0, retried.plain
    assert "3 samples: 3 done" in retried.plain
    piped = canard(folder, "retry", "C", "--from", "count")
    assert piped.returncode == 0, piped.stdout + piped.stderr
    assert "C: step count is saved" in piped.stdout
    assert "C: step copy is saved" not in piped.stdout


def test_clean_lists_first_and_removes_with_yes(project):
    folder, _ = project
    listed = json.loads(canard(folder, "clean", "--json").stdout)
    assert listed
    assert all(not each["removed"] for each in listed)
    cleaned = OnTerminal(folder, "clean", "--yes")
    assert cleaned.wait() == 0
    assert not any((folder / each["folder"]).exists() for each in listed)
    assert sorted(path.name for path in (folder / "results").iterdir()) == ["A", "B", "C", "cohort"]
