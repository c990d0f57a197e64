"""Reading a sample sheet: from a file to samples, or to the list of everything that is wrong with it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Generic, Literal, TypeVar

from canard_pipe.errors import InputError, Problem, SheetError
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheets.columns import Columns, match_columns
from canard_pipe.pipeline.sheets.files import InputFiles
from canard_pipe.pipeline.sheets.folders import assign_folders
from canard_pipe.pipeline.sheets.groups import (
    map_names,
    note_grouped_rows,
    refuse_doubled_files,
    refuse_doubled_rows,
    refuse_mixed_owners,
    warn_of_twins,
)
from canard_pipe.pipeline.sheets.illumina import is_illumina, read_illumina
from canard_pipe.pipeline.sheets.keys import join_key
from canard_pipe.pipeline.sheets.objects import Reader, read_json, read_with
from canard_pipe.pipeline.sheets.source import Source, read_source, refuse
from canard_pipe.pipeline.sheets.table import Delimited, RawRow, Table, read_delimited
from canard_pipe.pipeline.sheets.typed import RowTyper
from canard_pipe.pipeline.sheets.units import join_sources, join_units

Row = TypeVar("Row", bound=SampleRow)

MAX_KEY_LENGTH = 200
"""Characters of a key when the caller does not know how many fit into its task ids."""


@dataclass(frozen=True, slots=True)
class SheetOptions:
    """How to read a sheet; the defaults guess nothing from its rows.

    ``format``: ``delimited``, ``illumina`` or ``json``; by default by the file's name and its first line.
    ``columns``: the names of the columns of a sheet without a header. ``pad``: fill up rows with too few cells.
    ``units`` and ``on``: a second table with a row for each lane or run, and the columns that join it; the model
    has the fields of both. ``missing``: texts such as ``NA`` that mean an empty cell. ``twins``: note or refuse
    names easily mistaken for one another. ``map_names``: give samples whose names cannot be used others (``_`` for what
    they cannot hold), and note it. ``folder``: where relative paths start (the sheet's folder). ``expand``:
    expand ``~`` and ``$NAME`` in paths. ``checksums``: verify columns such as ``fastq_1_md5``, which reads every
    file. ``compare_content``: a file with another time and the same bytes has not changed. ``skip_bad_rows``: samples
    with bad rows go to ``Sheet.refused`` instead of refusing the sheet.
    ``reader``: the pipeline's own function. ``max_key_length``: characters of a key that fit into task ids.
    """

    delimiter: str | None = None
    encoding: str | None = None
    format: Literal["delimited", "illumina", "json"] | None = None
    columns: tuple[str, ...] | None = None
    units: Path | None = None
    on: tuple[str, ...] = ()
    pad: bool = False
    missing: tuple[str, ...] = ()
    twins: Literal["note", "refuse"] = "note"
    map_names: bool = False
    folder: Path | None = None
    expand: bool = False
    checksums: bool = False
    compare_content: bool = False
    skip_bad_rows: bool = False
    reader: Reader | None = None
    max_key_length: int = MAX_KEY_LENGTH

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError("the delimiter must be one character, and neither a quote nor a line break")
        if self.columns is not None and (not all(self.columns) or len(set(self.columns)) != len(self.columns)):
            raise InputError("the names of the columns must be distinct and not empty")
        if (self.units is None) != (not self.on):
            raise InputError("units and on go together: the second table, and the columns that join it")
        if self.max_key_length < 1:
            raise InputError("max_key_length must be at least 1")


@dataclass(frozen=True, slots=True)
class SampleRows(Generic[Row]):
    """One sample: its key as typed (parts of a key of several columns joined by ``/``) and its rows in sheet order.

    ``folder`` is the sample's folder name: safe, at most 100 bytes, distinct without regard to case.
    """

    key: str
    parts: tuple[str, ...]
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    folder: str

    @property
    def single(self) -> Row:
        """The only row. Raises InputError when there are several."""
        if len(self.rows) != 1:
            lines = ", ".join(map(str, self.lines))
            raise InputError(f"sample {self.key} has {len(self.rows)} rows (lines {lines}), but one is wanted")
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class RefusedSample:
    """A sample that cannot run because of its rows, under ``SheetOptions.skip_bad_rows``."""

    key: str
    parts: tuple[str, ...]
    lines: tuple[int, ...]
    folder: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Sheet(Generic[Row]):
    """A sheet that can be used. ``text`` is the sheet as decoded, with ``\\n`` line ends; ``digest`` the SHA-256 of
    its bytes. ``notes`` are for the user. ``cells`` are the rows as text, in sheet order; ``file_columns`` tells in
    which place of them the files of a field are."""

    path: str
    text: str
    digest: str
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    samples: tuple[SampleRows[Row], ...]
    cells: tuple[RawRow, ...]
    file_columns: Mapping[str, int]
    refused: tuple[RefusedSample, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows of the sheet, those of refused samples included."""
        return len(self.cells)

    def clean_copy(self) -> str:
        """Give the sheet as UTF-8 text would have it: comma, ``\\n``, the same columns, absolute paths (rule 24).

        A cell that names a file is the absolute path; every other cell is as typed. Reading the copy gives the
        same samples.
        """
        typed = {line: row for sample in self.samples for line, row in zip(sample.lines, sample.rows, strict=True)}
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        for raw in self.cells:
            cells, row = list(raw.cells), typed.get(raw.line)
            for name, place in () if row is None else self.file_columns.items():
                if cells[place] and (path := getattr(row, name)) is not None:
                    cells[place] = str(path)
            writer.writerow(cells)
        return out.getvalue()


def read_sheet(
    path: str | PurePath,
    rows: type[Row],
    key: str | Sequence[str] | None = None,
    options: SheetOptions | None = None,
    *,
    known_folders: Mapping[str, str] | None = None,
) -> Sheet[Row]:
    """Read, type and check a sheet; ``-`` is standard input.

    Rows with the same key are one sample. ``key`` is a column or several; without one it is the first of sample,
    sample_id, sample_name, id, else the first column. ``known_folders`` maps keys to folder names that earlier runs
    gave; they are kept.

    Raises SheetError with all problems of all rows: reading, types, files, names; PipelineFileError for a row model
    whose types are not known. Nothing is written.
    """
    options = options or SheetOptions()
    rows.complete()
    source, table = _read(path, options)
    if options.units is not None:
        source, table = _with_units(source, table, options.units, options)
    if not table.columns:
        raise SheetError(table.problems or [Problem(table.file, None, None, "the sheet has no columns")])
    columns = match_columns(table, rows, (key,) if isinstance(key, str) else key)
    if options.map_names and columns.key:
        map_names(table, columns.key)
    files = InputFiles(options.folder or source.folder, expand=options.expand)
    typer = RowTyper(
        table, columns, rows, files,
        missing=options.missing, checksums=options.checksums, max_key_length=options.max_key_length,
    )  # fmt: skip
    groups: dict[tuple[str, ...], list[RawRow]] = {}
    typed: dict[int, Row] = {}
    for raw in table.rows:
        parts = typer.key(raw) if columns.key else None
        if parts is not None:
            groups.setdefault(parts, []).append(raw)
        row = typer.row(raw)
        if row is not None:
            typed[raw.line] = row
    if not table.rows and not table.problems:
        table.refuse(table.header_line, None, "the sheet has no rows", "add a line for each sample below the header")
    _check_together(table, columns, rows, files, groups, options)
    files_at = {name: place for name, place in columns.fields.items() if name in rows.file_fields}
    return _assemble(source, table, files_at, groups, typed, typer.problems, options, known_folders)


def _read(path: str | PurePath, options: SheetOptions) -> tuple[Source, Table]:
    if options.reader is not None:
        return read_with(options.reader, str(path))
    source = read_source(path, options.encoding)
    kind = options.format
    if kind is None:
        kind = "json" if source.suffix == ".json" else "illumina" if is_illumina(source) else "delimited"
    if kind == "json":
        return source, read_json(source)
    if kind == "illumina":
        return source, read_illumina(source)
    return source, read_delimited(source, Delimited(options.delimiter, options.columns, options.pad))


def _with_units(samples: Source, table: Table, path: Path, options: SheetOptions) -> tuple[Source, Table]:
    units, units_table = _read(path, replace(options, reader=None, columns=None))
    if units.folder != samples.folder and options.folder is None:
        raise refuse(
            units.name, f"lies in another folder than {samples.name}", "say with --folder where relative paths start"
        )
    return join_sources(samples, units), join_units(table, units_table, options.on)


def _check_together(
    table: Table, columns: Columns, rows: type[Row], files: InputFiles,
    groups: Mapping[tuple[str, ...], Sequence[RawRow]], options: SheetOptions,
) -> None:  # fmt: skip
    doubled = refuse_doubled_rows(table)
    refuse_doubled_files(table, columns, rows, files, doubled)
    refuse_mixed_owners(table, groups, columns.key)
    note_grouped_rows(table, groups, columns, rows)
    warn_of_twins(table, groups, columns.key, refuse=options.twins == "refuse")


def _assemble(
    source: Source, table: Table, files_at: Mapping[str, int],
    groups: Mapping[tuple[str, ...], Sequence[RawRow]], typed: Mapping[int, Row],
    row_problems: Sequence[tuple[int, Problem]], options: SheetOptions, known_folders: Mapping[str, str] | None,
) -> Sheet[Row]:  # fmt: skip
    keyed = {raw.line for members in groups.values() for raw in members}
    bad: dict[int, list[Problem]] = {}
    fatal = list(table.problems)
    for line, problem in row_problems:
        if options.skip_bad_rows and line in keyed:
            bad.setdefault(line, []).append(problem)
        else:
            fatal.append(problem)
    if fatal or (bad and not typed):
        raise SheetError(_sorted([*fatal, *(problem for found in bad.values() for problem in found)], table.columns))
    folders = assign_folders([join_key(parts) for parts in groups], known_folders)
    samples, refused = [], []
    for parts, members in groups.items():
        name, lines = join_key(parts), tuple(raw.line for raw in members)
        if all(line in typed for line in lines):
            samples.append(SampleRows(name, parts, tuple(typed[line] for line in lines), lines, folders[name]))
        else:
            why = tuple(problem for line in lines for problem in bad.get(line, ()))
            refused.append(RefusedSample(name, parts, lines, folders[name], why))
    return Sheet(
        source.name, source.text, source.digest, table.columns, tuple(table.notes), tuple(samples), tuple(table.rows),
        files_at, tuple(refused),
    )  # fmt: skip


def _sorted(problems: Sequence[Problem], columns: Sequence[str]) -> list[Problem]:
    """Put problems in the order of the sheet, each once: by line, then by column; those of the whole sheet first."""
    places = {column: place for place, column in enumerate(columns)}
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (problem.file, problem.line or 0, places.get(problem.column or "", -1)),
    )
