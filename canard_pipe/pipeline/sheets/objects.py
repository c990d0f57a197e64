"""Rows that are objects already: a JSON list, or what the pipeline's own reader function yields."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from canard_pipe.pipeline.sheets.source import Source, refuse, sheet_folder
from canard_pipe.pipeline.sheets.table import RawRow, Table
from canard_pipe.pipeline.sheets.words import quoted

Reader = Callable[[Path], Iterable[Mapping[str, str]]]
"""A pipeline's own reader of sheets: path in, mappings of text out, one for each row."""

_BLANK = re.compile(r"\s*")


def read_json(source: Source) -> Table:
    """Read a JSON list of objects whose values are texts (or null for an empty cell).

    Numbers are refused, since 007 and 1.10 cannot be told from 7 and 1.1 any more once somebody wrote them as
    numbers. Lines are those on which the objects begin.
    """
    table = Table(source.name)
    text = source.text
    rows: list[tuple[int, Any]] = []
    decoder = json.JSONDecoder(object_pairs_hook=_Object)
    line, counted = 1, 0
    place = _skip(text, 0)
    try:
        if text[place : place + 1] != "[":
            raise json.JSONDecodeError("expected a list of objects, [{...}, ...]", text, place)
        place = _skip(text, place + 1)
        while text[place : place + 1] != "]":
            value, end = decoder.raw_decode(text, place)
            line, counted = line + text.count("\n", counted, place), place
            rows.append((line, value))
            place = _skip(text, end)
            if text[place : place + 1] == ",":
                place = _skip(text, place + 1)
            elif text[place : place + 1] != "]":
                raise json.JSONDecodeError("expected , or ] after an object", text, place)
        if _skip(text, place + 1) != len(text):
            raise json.JSONDecodeError("text follows the list", text, place + 1)
    except json.JSONDecodeError as error:
        raise refuse(
            source.name, f"is not valid JSON: {error.msg} at character {error.colno}", line=error.lineno
        ) from error
    except RecursionError as error:
        raise refuse(source.name, "is nested too deeply", "a sheet is a list of objects of texts") from error
    _collect(table, rows)
    return table


def read_with(reader: Reader, path: str) -> tuple[Source, Table]:
    """Read a sheet with the pipeline's own function; the line of a row is its number among the rows.

    The digest is that of the rows. Raises SheetError also for any exception of the function.
    """
    name = getattr(reader, "__name__", "reader")
    table = Table(f"{path} (row of {name})")
    try:
        found = list(enumerate(reader(Path(path)), start=1))
    except Exception as error:
        raise refuse(path, f"the pipeline's reader {name} failed: {type(error).__name__}: {error}") from error
    _collect(table, [(line, _Object(row.items()) if isinstance(row, Mapping) else row) for line, row in found])
    objects = [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]
    text = json.dumps(objects, ensure_ascii=False, indent=0)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Source(path, sheet_folder(path), "", text, digest), table


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


class _Object(list[tuple[str, Any]]):
    """The pairs of one object, so that a doubled name can be seen."""


def _collect(table: Table, rows: list[tuple[int, Any]]) -> None:
    """Make a table of objects; its columns are all names in the order in which they first appear."""
    objects: list[tuple[int, dict[str, str]]] = []
    columns: dict[str, None] = {}
    for line, pairs in rows:
        if not isinstance(pairs, _Object):
            table.refuse(line, None, 'a row must be an object of texts, such as {"sample": "A"}')
            continue
        cells = _texts(table, line, pairs)
        columns.update(dict.fromkeys(cells))
        if any(cells.values()):
            objects.append((line, cells))
    table.columns = tuple(columns)
    table.rows = [RawRow(line, tuple(cells.get(name, "") for name in columns)) for line, cells in objects]


def _texts(table: Table, line: int, pairs: _Object) -> dict[str, str]:
    cells: dict[str, str] = {}
    for key, value in pairs:
        name = str(key).strip()
        if name in cells:
            table.refuse(line, name, "is given twice in this row")
        cells[name] = ""
        if isinstance(value, str):
            cells[name] = value.strip()
        elif isinstance(value, bool | int | float):
            table.refuse(
                line, name, f"{json.dumps(value)} is not a text", f'put it in quotes: "{json.dumps(value)}"'
            )
        elif value is not None:
            table.refuse(line, name, f"{quoted(value)} is not a text", "a cell is one text")
    return cells
