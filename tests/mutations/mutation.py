"""A mutation: one rule of the package broken on purpose, in a copy, and the tests that must notice it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("canard_pipe", "pipelines", "tests", "pyproject.toml")
# What pytest ends with: all passed, some failed. Anything else is a fault of the run itself.
PASSED, FAILED = 0, 1
HANGS_SECONDS, RUN_SECONDS = 10, 110  # a broken wake-up lets a test wait for ever
# Runs the tests with the package of the current folder, however the other one is installed.
PROGRAM = (
    "import sys, pathlib, pytest; sys.path.insert(0, ''); import canard_pipe; "
    "assert pathlib.Path(canard_pipe.__file__).is_relative_to(pathlib.Path.cwd()), canard_pipe.__file__; "
    "sys.exit(pytest.main(['-x', '-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
)


class CannotApply(Exception):
    """The text that a mutation changes is not there, or more than once: the mutation has to be written anew."""


@dataclass(frozen=True)
class Edit:
    """In ``file`` (below the package), ``old`` becomes ``new``. It must be there exactly once."""

    file: str
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Change the file. Raises CannotApply."""
        path = package / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.old) != 1:
            raise CannotApply(f"{self.file} has {text.count(self.old)} times the text {self.old!r}, not once")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True)
class Mutation:
    """``name`` says which rule is broken; at least one of ``tests`` (pytest's selection) must fail by it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def copy_project(folder: Path) -> Path:
    """Copy what the tests need of the project into ``folder``, compiled files too: they save seconds."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        else:
            shutil.copy(source, folder / part)
    return folder


def mutate(folder: Path, mutation: Mutation) -> Path:
    """Return a copy of the project in ``folder`` with the mutation in it. Raises CannotApply."""
    copy_project(folder)
    for edit in mutation.edits:
        edit.apply(folder / "canard_pipe")
    return folder


def run_tests(checkout: Path, tests: Iterable[str], *, test_seconds: int = RUN_SECONDS) -> tuple[int, str]:
    """Run tests in ``checkout`` with its own package, until the first that fails; return pytest's end and its words.

    A test that takes more than ``test_seconds`` has failed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--timeout={test_seconds}", *tests], cwd=checkout, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=RUN_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr
