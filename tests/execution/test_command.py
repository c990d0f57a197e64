"""Descriptions of commands, and texts for the shell."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canard_pipe.errors import InputError
from canard_pipe.execution.command import Options, command
from canard_pipe.execution.resources import Escalate
from canard_pipe.execution.shelltext import bash, fill

ROOT = Path("/launch")


def digest(*args, root=ROOT, **options: Any):
    return command([args], cast("Options", options)).digest(root)


def test_numbers_and_paths_become_text():
    made = command([["bwa", "-t", 4, Path("/ref.fa"), 0.5]], {})
    assert made.members == (("bwa", "-t", "4", "/ref.fa", "0.5"),)


@pytest.mark.parametrize(
    "args", [["a", True], ["a", None], ["a", b"x"], ["a", ["b"]], "a b", [], [""], ["a\0b"], ["a", "\ud800"], None]
)
def test_arguments_that_are_none_are_refused(args):
    with pytest.raises(InputError):
        command([args], {})


@pytest.mark.parametrize(
    "options",
    [
        {"outputs": "x.bam"}, {"outputs": ["/x"]}, {"outputs": ["../x"]}, {"outputs": [""]},
        {"outputs": ["status.json"]}, {"stdout": "a/b"}, {"stdout": "stderr.log"}, {"stdout": ".."},
        {"env": {"A=B": "c"}}, {"env": {"A": "b\0"}}, {"env": ["A"]}, {"cpus": 0}, {"cpus": "4"}, {"memory": "4Q"},
        {"time": "soon"}, {"timeout": 0}, {"limits": "licence"}, {"memory": Escalate("4G", max="1G")},
        {"stdin": 1.5, "cpus": True}, {"cpu": 2},
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_refused_before_anything_starts(options):
    with pytest.raises(InputError):
        command([["true"]], options)


def test_digest_tells_commands_apart():
    digests = [
        digest("a", "b"), digest("a b"), digest("a", "b", outputs=["c"]), digest("a", "b", env={"A": "1"}),
        digest("a", "b", stdin="/x"), digest("a", "b", stdout="x"), digest("a", "b", sigpipe_ok=True),
        command([["a"], ["b"]], {}).digest(ROOT),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)


def test_digest_is_the_same_for_more_resources_and_after_a_move():
    asked = {"cpus": 4, "memory": "8G", "time": "2h", "timeout": 5, "limits": ["l"], "heartbeat_seconds": 1}
    assert digest("a", "b") == digest("a", "b", **asked)
    assert digest("a", "/launch/x", "-o/launch/y") == digest("a", "/new ö/x", "-o/new ö/y", root=Path("/new ö"))


def test_time_is_the_lesser_of_time_and_timeout_and_grows_after_timeouts():
    made = command([["a"]], {"time": Escalate("1h", max="2h"), "timeout": "90m"})
    assert [made.seconds(n) for n in range(3)] == [3600, 5400, 5400]
    assert command([["a"]], {}).seconds() is None


def run_bash(text):
    return subprocess.run(bash(text), capture_output=True, timeout=20, check=False)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_value_in_a_shell_text_is_one_word_whatever_it_holds(value):
    # BUGS 67
    done = run_bash(fill("printf '<%s>' {x}", {"x": value}))
    assert done.stdout == f"<{value}>".encode()


def test_a_list_becomes_several_words():
    assert run_bash(fill("printf '<%s>' {x}{y}", {"x": ["a b", "c'", Path("d")], "y": []})).stdout == b"<a b><c'><d>"


@pytest.mark.parametrize(
    "text",
    ["echo {y}", "echo {", "awk '{print $1}'", "echo {x!r}", "echo {x:>4}", "echo {x.a}", "echo {0}", "echo {}",
     "echo '{x}'", 'echo "{x}"', 'echo "a $(b "{x}")"', "echo $'{x}'", "echo `ls {x}`", "cat <<E\n{x}\nE",
     "true # it's {x}"],
)  # fmt: skip
def test_places_that_cannot_be_filled_safely_are_refused(text):
    with pytest.raises(InputError):
        fill(text, {"x": "a; b"})


@pytest.mark.parametrize(
    "text", ["echo {x} '}}'", "awk '{{print $1}}' {x}", "# don't\necho {x}", 'echo "$(basename {x})"', "cat <<< {x}",
             "echo \"it's\" {x}", "echo a\\'b {x}", "echo ${{#y}} {x}", "echo 'a\\' {x}"],
)  # fmt: skip
def test_places_outside_of_quotes_are_filled(text):
    assert "'a; b'" in fill(text, {"x": "a; b"})


def test_values_that_are_no_text_are_refused():
    for value in (None, True, {"a": 1}, [None], "a\0"):
        with pytest.raises(InputError):
            fill("echo {x}", {"x": value})


def test_shell_text_fails_with_its_first_failing_command_and_says_the_codes_of_a_pipe():
    # BUGS 17: PIPESTATUS is logged
    done = run_bash("true | (exit 3) | cat; echo not reached")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"exit codes of the failed line: 0 3 0" in done.stderr
    assert run_bash("echo $unset_name").returncode != 0
