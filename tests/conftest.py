"""What all tests share: waiting for a condition, and asking for a tool.

Each is a plain function (``from tests.conftest import wait_until``) and a fixture of the same name.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest


def wait_until(condition: Callable[[], object], seconds: float = 10.0, *, every_seconds: float = 0.01) -> None:
    """Return as soon as ``condition()`` is true; fail the test if it is not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"the condition did not come true within {seconds} s")
        time.sleep(every_seconds)


def absent(what: str) -> NoReturn:
    """Skip the test since ``what`` is not here; fail it where everything has to be here (CANARD_REQUIRE_ALL=1)."""
    if os.environ.get("CANARD_REQUIRE_ALL") == "1":
        pytest.fail(f"{what} is not here, and CANARD_REQUIRE_ALL=1 asks for everything")
    pytest.skip(f"{what} is not here")


def require_tool(name: str) -> str:
    """Return the path of a program; without it the test skips or fails as :func:`absent` says."""
    path = shutil.which(name)
    if path is None:
        absent(f"the program {name}")
    return path


def shared_data() -> Path:
    """Return the folder of real reads with known results (CANARD_SHARED_DATA, else beside the checkout)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CANARD_SHARED_DATA") or default)
    if not (folder / "yeast-chrI" / "samples.csv").is_file():
        absent(f"the data folder {folder.name} (name it with CANARD_SHARED_DATA)")
    return folder


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., None]:
    return wait_until


@pytest.fixture(name="require_tool")
def require_tool_fixture() -> Callable[[str], str]:
    return require_tool


@pytest.fixture(name="shared_data")
def shared_data_fixture() -> Path:
    return shared_data()
