"""Named SQL statements: one file per transition, ``sql/NAME.sql`` in the package that uses it.

A file holds one statement or several, each ended by ``;`` at a line's end. Parameters are named (``$now_us``).
A set of rows is spelled as a table with the columns that the statement takes of it::

    FROM rows(seq BIGINT, token VARCHAR) AS b

It has two renderings of the same meaning. Many rows are one JSON text, unnested; that is the quickest way to give
DuckDB many rows, but takes longer than the rest of a small statement. So for a single row the clause is left out, and
each ``b.seq`` becomes that row's value. Only a clause with an alias and without a JOIN can go; else ``rows(...)`` is
always a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

PACKAGES = (
    "canard_pipe.engine",
    "canard_pipe.execution",
    "canard_pipe.pipeline",
    "canard_pipe.report",
)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_TABLE = r"\brows\(([^()]*)\)"
_CLAUSE = re.compile(r"\s+(?:FROM|USING)\s+" + _TABLE + r"\s+AS\s+(\w+)\b(?!\s+JOIN\b)")
_GAP = re.compile(rf"\$([a-z_]+)|{_TABLE}|\x00(\w+) ([\w\[\]]+)\x00")


@dataclass(frozen=True, slots=True)
class Parameter:
    """The place of a named parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Table:
    """The place of a table of rows; ``columns`` are names and SQL types."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """The place of one column of the only row."""

    column: str
    type: str


Piece = str | Parameter | Table | Cell


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text as written, and in pieces: in general, and where its set of rows has one member.

    ``parameters`` are the names of what it takes, ``rows`` among them if it takes rows.
    """

    sql: str
    pieces: tuple[Piece, ...]
    for_one_row: tuple[Piece, ...]
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
    return [parse(part.strip()) for part in parts if part.strip()]


def parse(sql: str) -> Statement:
    """Return one statement of its text."""
    pieces = tuple(_pieces(sql))
    names = {piece.name for piece in pieces if isinstance(piece, Parameter)}
    if any(isinstance(piece, Table) for piece in pieces):
        names.add("rows")
    return Statement(sql, pieces, tuple(_pieces(_without_clauses(sql))), frozenset(names))


def _without_clauses(sql: str) -> str:
    columns = {alias: dict(_columns(table)) for table, alias in _CLAUSE.findall(sql)}
    sql = _CLAUSE.sub("", sql)
    for alias, types in columns.items():
        sql = re.sub(rf"\b{alias}\.(\w+)", lambda found: f"\0{found[1]} {types[found[1]]}\0", sql)  # noqa: B023
    return sql


def _pieces(sql: str) -> Iterator[Piece]:
    end = 0
    for gap in _GAP.finditer(sql):
        yield sql[end:gap.start()]
        end = gap.end()
        name, table, column, kind = gap.groups()
        if name is not None:
            yield Parameter(name)
        elif table is not None:
            yield Table(_columns(table))
        else:
            yield Cell(column, kind)
    yield sql[end:]


def _columns(table: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in (column.split() for column in table.split(",")))
