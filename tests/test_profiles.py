"""The profiles in slurm/profiles are ones that canard-pipe takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canard_pipe.execution.slurm.settings import from_table
from canard_pipe.pipeline.settings.resolve import resolve

PROFILES = Path(__file__).resolve().parents[1] / "slurm" / "profiles"
FILES = sorted(PROFILES.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_profile_is_valid_and_says_what_it_is_named_for(file, tmp_path):
    (tmp_path / "canard.toml").write_text(file.read_text())
    settings = resolve(tmp_path, {"HOME": str(tmp_path)}, profile=file.stem)
    assert settings["executor"] == "slurm"
    assert from_table(settings.table("slurm")).site.partition


def test_every_profile_is_in_the_list():
    listed = re.findall(r"^\| \[(\w+\.toml)\]", (PROFILES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [file.name for file in FILES]
