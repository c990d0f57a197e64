"""Checks of declared outputs after a command ended with 0: there, not empty, not a stump. No tool is needed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from pathlib import Path

from canard_pipe.execution.endings import end_problem, ends


def problems(folder: Path, outputs: Iterable[str]) -> list[str]:
    """Return what is wrong with the outputs of a try, one text for each that is not whole (BUGS 20)."""
    found = []
    for name in outputs:
        problem = _problem(folder / name)
        if problem is not None:
            found.append(f"the output {name} {problem}")
    return found


def _problem(path: Path) -> str | None:
    try:
        mode = path.stat()
    except FileNotFoundError:
        return "points to a file that is missing" if path.is_symlink() else "is missing"
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if stat.S_ISDIR(mode.st_mode):
        return None if any(path.iterdir()) else "is an empty folder"
    if not stat.S_ISREG(mode.st_mode):
        return "is neither a file nor a folder"
    if mode.st_size == 0:
        return "is empty"
    try:
        return _content_problem(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _content_problem(path: Path) -> str | None:
    if ends(path, (".json",)):
        try:
            json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            return f"is not valid JSON: {error}"
    return end_problem(path)
