"""A sheet as rows of text cells with their line numbers: delimited text."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from canard_pipe.errors import Problem
from canard_pipe.pipeline.sheets.source import Source
from canard_pipe.pipeline.sheets.words import quoted

_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons"}
_BY_SUFFIX = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_INVISIBLE = " \t\u00a0\u200b\ufeff"
_SEP_LINE = re.compile(r'"?sep=(.)"?\s*$', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RawRow:
    """The cells of one row in the order of the columns, outer blanks removed; ``line`` is where it begins."""

    line: int
    cells: tuple[str, ...]


@dataclass(slots=True)
class Table:
    """What a reader found: ``file`` is the name for messages, ``header_line`` is None without a header.

    ``problems`` are those of reading; rows that have one are not in ``rows``. ``key`` is the key that the format
    itself suggests. ``origin`` gives, for columns that another table added, its name and the lines there.
    """

    file: str
    columns: tuple[str, ...] = ()
    header_line: int | None = None
    rows: list[RawRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    key: tuple[str, ...] | None = None
    origin: dict[str, tuple[str, dict[int, int]]] = field(default_factory=dict)

    def refuse(self, line: int | None, column: str | None, message: str, hint: str = "") -> None:
        """Add a problem."""
        self.problems.append(self.problem(line, column, message, hint))

    def problem(self, line: int | None, column: str | None, message: str, hint: str = "") -> Problem:
        """Make a problem that names the file and line where the cell was written."""
        file = self.origin[column][0] if column in self.origin else self.file
        return Problem(file, None if line is None else self.written_in(line, column), column, message, hint)

    def written_in(self, line: int, column: str | None) -> int:
        """Give the line of the file in which a cell of the row at ``line`` was written."""
        return self.origin[column][1].get(line, line) if column in self.origin else line


@dataclass(frozen=True, slots=True)
class Delimited:
    """How delimited text is read: the options of the user that concern it."""

    delimiter: str | None = None
    columns: tuple[str, ...] | None = None
    pad: bool = False


def read_delimited(source: Source, how: Delimited) -> Table:
    """Read delimited text as RFC 4180 has it, with Python's csv module in its strict mode.

    Blank lines and lines of only delimiters are skipped, ``#`` lines only before the header. The delimiter is
    the given one, else that of the file name's end (comma where it says nothing) unless the header has one cell
    only and has several with another one; never a guess from rows (BUGS 65, 66).
    """
    table = Table(source.name)
    lines = io.StringIO(source.text, newline="\n").readlines()
    start, separator = _first_line(lines)
    if separator is not None:
        table.notes.append(f"the line sep={separator} names the delimiter")
    delimiter = how.delimiter or separator or _BY_SUFFIX.get(source.suffix, ",")
    if start == len(lines):
        table.refuse(None, None, "the sheet is empty", "its first line names the columns, such as sample,fastq_1")
        return table
    if how.columns is None and how.delimiter is None:
        delimiter = _check_on_header(table, lines[start:], delimiter)
    records = csv_records(table, lines, start, delimiter)
    if how.columns is not None:
        layout = _Layout.without_header(how.columns)
    else:
        try:
            header_line, cells = next(records)
        except StopIteration:
            return table
        table.header_line = header_line
        layout = _Layout.from_header(table, header_line, cells)
    table.columns = layout.columns
    layout.fill(table, records, pad=how.pad)
    return table


def csv_records(
    table: Table, lines: Sequence[str], start: int, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Give (line, cells) of the records from ``lines[start]`` on, blank ones left out; what is wrong goes to
    ``table.problems``. ``line`` counts from 1 and is where the record begins, also when cells hold line breaks."""
    reader = csv.reader(itertools.islice(lines, start, None), delimiter=delimiter, strict=True, skipinitialspace=True)
    while True:
        line = start + reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not _explain(table, line, str(error), delimiter):
                return
            continue
        cells = [cell.strip() for cell in cells]
        if any(cells):
            yield line, cells


def _explain(table: Table, line: int, error: str, delimiter: str) -> bool:
    """Add the problem for an error of the csv module; tell whether the next line can be trusted."""
    if "end of data" in error or "field limit" in error:
        table.refuse(
            line, None, 'a quote (") is opened here and never closed', 'write a quote inside a quoted value twice: ""'
        )
        return False
    if "expected after" in error:
        table.refuse(
            line, None, "text follows a closing quote, or a quoted value is not closed in its line",
            f"the closing quote must stand before {_NAMES.get(delimiter, quoted(delimiter)).removesuffix('s')} "
            'or line end; write a quote inside a quoted value twice: ""',
        )
        return True
    table.refuse(line, None, f"is not valid CSV: {error}")
    return True


def _first_line(lines: Sequence[str]) -> tuple[int, str | None]:
    """Give the index of the first line that is neither blank nor a comment, and the delimiter of a ``sep=`` line."""
    separator = None
    for index, line in enumerate(lines):
        text = line.strip().strip(_INVISIBLE + ",;")
        found = _SEP_LINE.match(line) if separator is None else None
        if found:
            separator = found[1]
        elif text and not text.startswith("#"):
            return index, separator
    return len(lines), separator


def _check_on_header(table: Table, lines: Sequence[str], delimiter: str) -> str:
    counts = {choice: _cells(lines, choice) for choice in (delimiter, *_NAMES)}
    if counts[delimiter] > 1:
        return delimiter
    best = max(counts, key=lambda choice: counts[choice])
    if counts[best] > 1:
        table.notes.append(
            f"the header is separated by {_NAMES[best]}, so {_NAMES[best]} are taken as delimiter "
            f"instead of {_NAMES.get(delimiter, quoted(delimiter))}"
        )
        return best
    return delimiter


def _cells(lines: Sequence[str], delimiter: str) -> int:
    try:
        return len(next(csv.reader(lines, delimiter=delimiter, skipinitialspace=True)))
    except (csv.Error, StopIteration):
        return 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which cells of a record belong to which column. ``width`` counts the header's cells, unnamed ones too."""

    columns: tuple[str, ...]
    places: tuple[int, ...]
    width: int
    padded: bool = False

    @classmethod
    def without_header(cls, columns: tuple[str, ...]) -> _Layout:
        return cls(columns, tuple(range(len(columns))), len(columns))

    @classmethod
    def from_header(cls, table: Table, line: int, cells: Sequence[str], *, padded: bool = False) -> _Layout:
        names = [cell.strip(_INVISIBLE).strip() for cell in cells]
        seen: dict[str, int] = {}
        for place, name in enumerate(names, start=1):
            if '"' in name:
                table.refuse(line, None, f"the column name {quoted(name)} has a stray quote in it", "remove the quote")
                names[place - 1] = name = name.strip('"')
            if name and name in seen:
                table.refuse(
                    line, name, f"the header has {quoted(name)} twice, in place {seen[name]} and {place}",
                    "name or remove one of them",
                )
            seen.setdefault(name, place)
        places = tuple(place for place, name in enumerate(names) if name)
        return cls(tuple(names[place] for place in places), places, len(names), padded)

    def fill(self, table: Table, records: Iterator[tuple[int, list[str]]], *, pad: bool) -> None:
        """Put the records into the table, or say what is wrong with their number of cells (BUGS 65, 70)."""
        unnamed = [place for place in range(self.width) if place not in set(self.places)]
        filled: dict[int, int] = {}
        trivial = self.places == tuple(range(self.width))
        least = max(self.places, default=-1) + 1
        hashes = []
        for line, cells in records:
            if cells[0].startswith("#"):
                hashes.append(line)
            if len(cells) != self.width:
                if self.padded:
                    while len(cells) > self.width and not cells[-1]:
                        cells.pop()
                if len(cells) > self.width or (len(cells) < least and not pad and not self.padded):
                    self._refuse_count(table, line, len(cells))
                    continue
                cells += [""] * (self.width - len(cells))
            for place in unnamed:
                if cells[place]:
                    filled.setdefault(place, line)
            table.rows.append(RawRow(line, tuple(cells) if trivial else tuple([cells[place] for place in self.places])))
        for place in unnamed:
            if place in filled:
                table.refuse(
                    table.header_line, None,
                    f"column {place + 1} has no name, but a value in line {filled[place]}", "name it in the header",
                )
        dropped = [str(place + 1) for place in unnamed if place not in filled]
        if dropped and not self.padded:
            table.notes.append(f"column {', '.join(dropped)} has neither a name nor a value and is left out")
        if hashes:
            lines = ", ".join(map(str, hashes[:5])) + (", …" if len(hashes) > 5 else "")
            table.notes.append(f"rows that begin with # are rows, comments end at the header: line {lines}")

    def _refuse_count(self, table: Table, line: int, count: int) -> None:
        expected = len(self.columns) if table.header_line is None else self.width
        what = "the list of columns" if table.header_line is None else "header"
        hint = (
            'a value with the delimiter in it must be in quotes: "Smith, lab"'
            if count > expected
            else "add the missing delimiters, or allow short rows with --pad"
        )
        cells = f"{count} cell" if count == 1 else f"{count} cells"
        table.refuse(line, None, f"line {line} has {cells}, {what} has {expected}", hint)


def read_section(table: Table, records: Iterator[tuple[int, list[str]]]) -> None:
    """Read a header and its rows whose lines are padded with delimiters to some width, or not padded."""
    try:
        line, cells = next(records)
    except StopIteration:
        return
    table.header_line = line
    layout = _Layout.from_header(table, line, cells, padded=True)
    table.columns = layout.columns
    layout.fill(table, records, pad=True)
