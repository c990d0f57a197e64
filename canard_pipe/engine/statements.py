"""Named SQL statements: one file per transition, ``sql/NAME.sql`` in the package that uses it.

A file holds one statement or several, each ended by ``;`` at a line's end. Parameters are named (``$now_us``);
a set of rows comes as one JSON text, ``$rows``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_PARAMETER = re.compile(r"\$([a-z_]+)")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
PACKAGES = (
    "canard_pipe.engine",
    "canard_pipe.execution",
    "canard_pipe.pipeline",
    "canard_pipe.report",
)


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text and the names of its parameters."""

    sql: str
    parameters: frozenset[str]


@cache
def load(name: str) -> tuple[Statement, ...]:
    """Return the statements of ``sql/NAME.sql`` from the one package that has it. Raises LookupError."""
    for package in PACKAGES:
        file = resources.files(package) / "sql" / f"{name}.sql"
        if file.is_file():
            return tuple(split(file.read_text(encoding="utf-8")))
    raise LookupError(f"no statement is named {name!r}")


def split(text: str) -> list[Statement]:
    """Split the text of an SQL file into statements, without comments."""
    parts = re.split(r";\s*(?:\n|$)", _COMMENT.sub("", text))
    return [
        Statement(part.strip(), frozenset(_PARAMETER.findall(part))) for part in parts if part.strip()
    ]
