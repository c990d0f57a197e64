"""Start canard-pipe as a user does, in a process of its own: the one place of the tests that knows how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = "run.log"


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a call, without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CANARD_", "NO_COLOR", "XDG_"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    nowhere = {"CANARD_PIPE_SITE_FILE": os.devnull, "CANARD_PIPE_USER_FILE": os.devnull}
    return kept | nowhere | {"PYTHONPATH": path, "PYTHONWARNINGS": "default"} | more


def command(*arguments: str | Path) -> list[str]:
    """Return the argument list of a call."""
    return [sys.executable, "-m", "canard_pipe.cli.main", *map(str, arguments)]


def canard(
    folder: Path, *arguments: str | Path, seconds: float = 60, input: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Call canard-pipe in ``folder`` with ``input`` and wait for its end. ``more``: variables of its environment."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        input=input,
    )


def start(folder: Path, *arguments: str | Path, **more: str) -> subprocess.Popen[str]:
    """Start canard-pipe in ``folder``, in the background; what it prints is added to ``run.log`` there."""
    with (folder / LOG).open("a") as log:
        return subprocess.Popen(
            command(*arguments),
            cwd=folder,
            env=environment(**more),
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
        )
