"""Exit status by what was raised, and what the user is told: never a traceback for their own mistake."""

from __future__ import annotations

import errno
from pathlib import Path

import click
import pytest

from canard_pipe import errors
from canard_pipe.cli import exits
from canard_pipe.cli.session import Session
from tests.cli.pipelines import canard, lay_out


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InputError("x"), 2),
        (errors.SheetError([errors.Problem("s.csv", 3, "fastq", "is missing")]), 2),
        (errors.PipelineFileError([errors.Problem("p.py", None, None, "no")]), 2),
        (errors.ValueEncodeError("x"), 2),
        (errors.StateHeld(Path(".canard"), pid=7, host="node1"), 3),
        (errors.StorageError("disk", operation="open"), 3),
        (errors.SchemaError("newer", 9), 3),
        (errors.ExtensionError("quack"), 3),
        (errors.CloseError("closing", [ValueError("x")]), 3),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 3),
        (errors.ReplayError("t", "s", expected="a", actual="b"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("no"), 2),
        (SystemExit(5), 5),
        (click.exceptions.Exit(4), 4),
    ],
)
def test_each_kind_of_error_has_its_exit_status_and_no_traceback(error, status, capsys, tmp_path):
    assert exits.told(error, Session(tmp_path)) == status
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_problem_of_a_sheet_is_told(capsys):
    problems = [errors.Problem("s.csv", line, "fastq", "is missing", "look there") for line in (2, 5)]
    exits.told(errors.SheetError(problems), Session())
    assert capsys.readouterr().err.splitlines() == [
        "canard-pipe: the sheet is wrong (2 problems); nothing ran",
        "  s.csv:2: column fastq: is missing (look there)",
        "  s.csv:5: column fastq: is missing (look there)",
    ]


def test_a_fault_of_the_program_leaves_its_traceback_in_the_state_folder(capsys, tmp_path):
    with pytest.raises(ZeroDivisionError) as raised:
        raise ZeroDivisionError("oops")
    assert exits.told(raised.value, Session(tmp_path)) == 1
    told = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert "Traceback" not in told
    assert str(file) in told
    assert "ZeroDivisionError: oops" in file.read_text()


def test_with_canard_debug_the_fault_is_raised(monkeypatch, tmp_path):
    monkeypatch.setenv("CANARD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        exits.told(ZeroDivisionError(), Session(tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"], ["run"], ["run", "pipe.py"], ["run", "absent.py", "s.csv"], ["run", "pipe.py", "absent.csv"],
        ["run", "pipe.py", "s.csv", "--cpus", "0"], ["run", "pipe.py", "s.csv", "--memory", "much"],
        ["run", "pipe.py", "s.csv", "--param", "colour=red"],
        ["run", "pipe.py", "s.csv", "--rerun-changed", "--accept-changed"],
        ["status"], ["status", "--only", "happy"], ["why", "A"], ["logs", "A"], ["retry"], ["retry", "A"],
        ["retry", "A", "--failed"], ["cancel"], ["cancel", "A"], ["cancel", "A", "--all"], ["sql", "select 1"],
        ["check", "absent.py", "s.csv"],
    ],
)  # fmt: skip
def test_a_wrong_call_ends_with_2_and_makes_nothing(arguments, tmp_path):
    lay_out(tmp_path, A="x")
    before = sorted(tmp_path.iterdir())
    done = canard(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "__pycache__"] == before


def test_a_mistyped_command_is_answered_with_the_close_one(tmp_path):
    assert "Did you mean 'status'?" in canard(tmp_path, "statsu").stderr


def test_the_reader_of_a_pipe_may_go_away(tmp_path):
    """As `canard-pipe status --limit 0 | head -1`."""
    import subprocess

    from tests.cli.pipelines import command, environment

    process = subprocess.Popen(
        command("--help"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(timeout=30)
    assert "Traceback" not in told
    assert "Exception" not in told
