"""The TAB key: commands, files, and samples and steps of the state, quickly and without a word where there is none."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.cli.pipelines import ROOT, environment
from tests.report.made import make


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completing")
    made = make(folder)
    made.command(made.failed("007", "it broke"), "call")
    for name in ("a b", "ä"):
        made.plan(name, task=False)
    made.database.close()
    program = folder / "bin" / "canard-pipe"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m canard_pipe.cli.main \"$@\"\n")
    program.chmod(0o755)
    return folder


def offered(folder, project, *words, shell="zsh"):
    """Return what is offered for the last of ``words``."""
    line = f"{shlex.join(['canard-pipe', *words[:-1]])} {words[-1]}"
    env = environment(
        _CANARD_PIPE_COMPLETE=f"{shell}_complete", COMP_WORDS=line,
        COMP_CWORD=str(len(words)), PATH=f"{project / 'bin'}:/usr/bin:/bin",
    )  # fmt: skip
    done = subprocess.run(
        ["canard-pipe"], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True,
        executable=project / "bin" / "canard-pipe",
    )  # fmt: skip
    assert done.stderr == ""
    lines = done.stdout.split("\n")
    return dict(zip(lines[1::3], lines[0::3], strict=False)) if shell == "zsh" else done.stdout.splitlines()


def test_samples_and_steps_come_from_the_state(project):
    assert list(offered(project, project, "why", "")) == ["007", "a b", "ä"]
    assert list(offered(project, project, "retry", "007", "--from", "")) == ["align", "call"]
    assert list(offered(project, project, "logs", "007", "ca")) == ["call"]


def test_from_elsewhere_the_state_is_named_and_without_one_nothing_is_said(project, tmp_path):
    assert offered(tmp_path, project, "why", "") in ({}, {"": ""})
    state = str(project / ".canard")
    assert list(offered(tmp_path, project, "why", "--state", state, "00")) == ["007"]


def test_commands_and_files_are_completed(project):
    assert list(offered(project, project, "st")) == ["status"]
    assert offered(project, project, "run", "pi") == {"pi": "file"}


def test_in_bash_a_name_is_quoted_as_it_has_to_be_typed(project):
    script = (
        'eval "$(_CANARD_PIPE_COMPLETE=bash_source canard-pipe)"\n'
        'COMP_WORDS=(canard-pipe why a) COMP_CWORD=2\n_canard_pipe_completion canard-pipe\n'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = environment(PATH=f"{project / 'bin'}:/usr/bin:/bin")
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=project, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["'a b'"]


def test_the_page_says_what_the_shells_need(project):
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for shell in ("bash", "zsh", "fish"):
        assert f"_CANARD_PIPE_COMPLETE={shell}_source canard-pipe" in page
