"""The house: what the README promises, how long modules are, and what no file of the project may hold."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULE_LINES = 400

# Folders of one machine, and addresses of package registries: neither works anywhere else. (Split, so that this
# file does not hold them itself.)
MACHINE_PATHS = re.compile("|".join(["/wo" + r"rk/(main|shared|\.library)", "/ro" + "ot/", "/tm" + r"p/\w"]))
REGISTRY_HOSTS = re.compile(
    r"https?://[\w.-]*(" + "|".join(["py" + r"pi\.", "python" + r"hosted\.", "npm" + "js", "debian" + r"\.org"]) + ")"
)


def project_files() -> list[Path]:
    """Return the files that git tracks or would track; outside of a clone, all that are not hidden."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if "/." not in f"/{path.relative_to(ROOT)}"]
    return sorted(path for path in paths if path.is_file())


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def makefile_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def too_long(path: Path) -> bool:
    return len(text_of(path).splitlines()) > MODULE_LINES


def forbidden_text(text: str) -> list[str]:
    """Return the paths of a machine and the registry addresses that ``text`` holds."""
    return [found.group() for pattern in (MACHINE_PATHS, REGISTRY_HOSTS) for found in pattern.finditer(text)]


def test_the_two_commands_of_the_readme_are_targets():
    readme = text_of(ROOT / "README.md")
    commands = re.findall(r"^make (\w+)", readme, re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    assert set(commands) <= makefile_targets(text_of(ROOT / "Makefile"))


def test_the_makefile_has_the_targets_people_expect_and_explains_each():
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    explained = set(re.findall(r"^ +make (\w+) +\w", help_text, re.MULTILINE))
    assert {"help", "demo", "check", "test", "bench", "docs"} <= explained


def test_no_module_is_longer_than_its_limit():
    long = [str(path.relative_to(ROOT)) for path in project_files() if path.suffix == ".py" and too_long(path)]
    assert long == []


def test_a_module_that_is_too_long_is_found(tmp_path):
    module = tmp_path / "long.py"
    module.write_text("x = 1\n" * (MODULE_LINES + 1))
    assert too_long(module)


def test_no_file_names_this_machine_or_a_registry():
    found = {str(path.relative_to(ROOT)): forbidden_text(text_of(path)) for path in project_files()}
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "text",
    [
        "sheet = '/wo" + "rk/shared/data/samples.csv'",
        "cd /ro" + "ot/pipe",
        "index-url = https://py" + "pi.org/simple",
        "https://files.python" + "hosted.org/packages/x.whl",
    ],
)
def test_a_machine_path_or_registry_is_found(text):
    assert forbidden_text(text)


def test_the_wheel_carries_statements_and_pipelines(tmp_path):
    """Every *.sql of the package and every file of pipelines/ is in the wheel, so that the demo needs no checkout."""
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["canard_pipe"]
    assert wheel["force-include"] == {"pipelines": "canard_pipe/pipelines"}
    ignored = subprocess.run(
        ["git", "check-ignore", "--stdin"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        input="\n".join(str(path) for path in ROOT.glob("canard_pipe/**/*.sql")),
    ).stdout
    assert ignored == ""  # hatchling leaves out what git ignores
