"""What rows say together: doubled rows and files, samples of two patients, names easily mistaken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheets.columns import Columns
from canard_pipe.pipeline.sheets.files import InputFiles, same_files
from canard_pipe.pipeline.sheets.keys import OWNERS, join_key, mapped_part, twins
from canard_pipe.pipeline.sheets.table import RawRow, Table
from canard_pipe.pipeline.sheets.words import quoted

Groups = Mapping[tuple[str, ...], Sequence[RawRow]]
_OF_A_LANE = re.compile(r"lane|run|unit|lib|barcode|index|flowcell|read|date|rep", re.IGNORECASE)


def refuse_doubled_rows(table: Table) -> set[int]:
    """Refuse a row all of whose cells are those of an earlier one; give the lines of such rows."""
    first: dict[tuple[str, ...], int] = {}
    doubled = set()
    for raw in table.rows:
        earlier = first.setdefault(raw.cells, raw.line)
        if earlier != raw.line:
            doubled.add(raw.line)
            table.refuse(raw.line, None, f"this row is the same as line {earlier}", "take one of them out")
    return doubled


def refuse_doubled_files(
    table: Table, columns: Columns, rows: type[SampleRow], files: InputFiles, leave_out: Iterable[int]
) -> None:
    """Refuse a file that two rows name, or two columns of a row, unless its field is ``FileCheck(shared=True)``.

    Links to one file are one file.
    """
    skipped = set(leave_out)
    places = [
        (columns.fields[name], check.folder)
        for name, check in rows.file_fields.items()
        if name in columns.fields and not check.shared
    ]
    named = (
        (raw.line, table.columns[place], identity)
        for raw, place, folder in _written_cells(table, places)
        if raw.line not in skipped
        and raw.cells[place]
        and (identity := files.identity(raw.cells[place], folder=folder)) is not None
    )
    for line, column, earlier, its_column in same_files(named):
        if line == earlier:
            table.refuse(line, column, f"is the same file as {its_column}", "name the file of the other read")
        else:
            where = f"line {table.written_in(earlier, its_column)}, column {its_column}"
            table.refuse(
                line, column, f"is the same file as in {where}",
                "name another file; where rows may share one, the pipeline says FileCheck(shared=True)",
            )


def _written_cells(table: Table, places: Sequence[tuple[int, bool]]) -> Iterator[tuple[RawRow, int, bool]]:
    """Give the cells at ``places``; one that stands in many rows, since another table added it, once."""
    seen: set[tuple[str, int]] = set()
    for raw in table.rows:
        for place, folder in places:
            column = table.columns[place]
            if column in table.origin:
                written = column, table.written_in(raw.line, column)
                if written in seen:
                    continue
                seen.add(written)
            yield raw, place, folder


def map_names(table: Table, key: Sequence[int]) -> None:
    """Give samples whose names cannot be used others, and say so; refuse where two of them would become one."""
    given: dict[tuple[str, ...], tuple[str, ...]] = {}  # what each name was
    for at, raw in enumerate(table.rows):
        before = tuple(raw.cells[place] for place in key)
        parts = tuple(map(mapped_part, before))
        other = given.setdefault(parts, before)
        if other != before:
            table.refuse(
                raw.line, table.columns[key[-1]],
                f"{quoted(join_key(before))} and {quoted(join_key(other))} would both be called "
                f"{quoted(join_key(parts))}", "name one of them otherwise",
            )
        elif parts != before:
            cells = list(raw.cells)
            for place, part in zip(key, parts, strict=True):
                cells[place] = part
            table.rows[at] = RawRow(raw.line, tuple(cells))
    changed = [f"{quoted(join_key(was))} is called {quoted(join_key(now))}" for now, was in given.items() if now != was]
    if changed:
        table.notes.append(f"names that could not be used: {_some(changed)}")


def refuse_mixed_owners(table: Table, groups: Groups, key: Sequence[int]) -> None:
    """Refuse a sample whose rows belong to different patients: they would be merged in silence (BUGS 4)."""
    places = [
        place for place, name in enumerate(table.columns) if name.casefold() in OWNERS and place not in key
    ]
    for parts, members in groups.items():
        for place in places:
            other = next((raw for raw in members if raw.cells[place] != members[0].cells[place]), None)
            if other is None:
                continue
            column, first = table.columns[place], members[0]
            table.refuse(
                other.line, column,
                f"sample {quoted(join_key(parts))} is of {quoted(first.cells[place])} in line {first.line} "
                f"and of {quoted(other.cells[place])} here",
                f'if these are two samples, the pipeline says key=("{column}", "{table.columns[key[-1]]}")',
            )


def note_grouped_rows(table: Table, groups: Groups, columns: Columns, rows: type[SampleRow]) -> None:
    """Note which samples have several rows, and where these differ in more than files and lanes."""
    several = [f"{join_key(parts)} ({len(members)} rows)" for parts, members in groups.items() if len(members) > 1]
    if several:
        table.notes.append(f"rows of the same name are one sample: {_some(several)}")
    for place in [columns.fields[name] for name in rows.file_fields if name in columns.fields]:
        mixed = [
            join_key(parts)
            for parts, members in groups.items()
            if 0 < sum(not raw.cells[place] for raw in members) < len(members)
        ]
        if mixed:
            table.notes.append(f"some rows have {table.columns[place]} and some have not: {_some(mixed)}")
    places = {
        place
        for name, place in columns.fields.items()
        if name not in rows.file_fields
        and place not in columns.key
        and not _OF_A_LANE.search(name)
        and table.columns[place].casefold() not in OWNERS
    }
    for place in sorted(places):
        differing = [
            join_key(parts) for parts, members in groups.items() if len({raw.cells[place] for raw in members}) > 1
        ]
        if differing:
            table.notes.append(f"the rows of a sample differ in {table.columns[place]}: {_some(differing)}")


def warn_of_twins(table: Table, groups: Groups, key: Sequence[int], *, refuse: bool) -> None:
    """Note, or refuse, samples whose names differ only in what is easily overlooked (rule 12)."""
    lines = {join_key(parts): members[0].line for parts, members in groups.items()}
    for keys in twins(lines):
        names = ", ".join(f"{quoted(name)} (line {lines[name]})" for name in keys)
        if refuse:
            table.refuse(
                lines[keys[-1]], table.columns[key[-1]],
                f"these names differ only in case, blanks, - for _, or leading zeros: {names}",
                "if they are one sample write the name alike, else name them more clearly",
            )
        else:
            table.notes.append(f"easily mistaken for one another: {names}")


def _some(names: Sequence[str], count: int = 5) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")
