"""Starting: nothing heavy is imported before a command needs it; help names every command."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import canard_pipe
from canard_pipe.cli.main import COMMANDS, cli
from tests.cli.pipelines import ROOT, canard, environment

HEAVY = ("duckdb", "pydantic", "rich", "pysam", "psutil", "jinja2", "importlib.metadata")


def loaded_after(code: str) -> list[str]:
    """Return which heavy modules a fresh interpreter has loaded after ``code``."""
    script = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "code",
    [
        "import canard_pipe, canard_pipe.cli.main",
        "from canard_pipe.cli.main import invoke; invoke(['--version'])",
        "from canard_pipe.cli.main import invoke; invoke(['--help'])",
        "from canard_pipe.cli import running, looking, steering, asking, cleaning, configuring, demo",
        "from canard_pipe.cli import doctoring, reporting",
    ],
)
def test_nothing_heavy_is_imported_before_a_command_needs_it(code):
    assert loaded_after(code) == []


def test_an_import_that_is_not_lazy_would_be_found():
    assert loaded_after("import pydantic")[0] == "pydantic"


def test_status_does_without_the_parts_that_only_run_needs(tmp_path):
    assert not {"pydantic", "pysam", "psutil"} & set(
        loaded_after("from canard_pipe.pipeline import access; from canard_pipe.report import rows, status")
    )


def test_every_public_name_is_there():
    for name in canard_pipe.__all__:
        assert getattr(canard_pipe, name) is not None
    assert set(canard_pipe.__all__) <= set(dir(canard_pipe))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        canard_pipe.nothing  # noqa: B018 - asking for it is the test


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert canard_pipe.__version__ == project["version"]


def test_the_command_line_tells_its_version(tmp_path):
    done = canard(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"canard-pipe {canard_pipe.__version__}\n")


def test_help_names_every_command_and_the_exit_status(tmp_path):
    done = canard(tmp_path, "--help")
    assert done.returncode == 0
    for name, (_, what) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert what[:40] in done.stdout
    assert "130 interrupted" in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_of_its_own(name):
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.name == name
    assert command.help
    assert command.short_help
    assert "Exit status: " in command.help
