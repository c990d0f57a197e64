"""Checks of declared outputs after a command ended with 0: there, not empty, not a stump. No tool is needed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from pathlib import Path

# The empty block that ends every whole BGZF file: BAM, BCF, .vcf.gz.
BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_BGZF_NAMES = (".bam", ".bcf", ".vcf.gz", ".bgz")


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
        return _content_problem(path, mode.st_size)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _content_problem(path: Path, size: int) -> str | None:
    name = path.name.lower()
    if name.endswith(_BGZF_NAMES):
        with path.open("rb") as file:
            start = file.read(14)
            if start[:2] != BGZF_END[:2] or start[12:] != BGZF_END[12:14]:
                return "is not compressed with BGZF (as bgzip, samtools and bcftools do)"
            file.seek(max(0, size - len(BGZF_END)))
            if file.read() != BGZF_END:
                return "is cut off: its end block (BGZF) is missing"
    elif name.endswith(".json"):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            return f"is not valid JSON: {error}"
    return None
