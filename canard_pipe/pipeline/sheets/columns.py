"""Which column of a sheet is which field of the row model, and which columns are the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from canard_pipe.pipeline.rows import SampleRow, column_fields, may_be_none
from canard_pipe.pipeline.sheets.keys import default_key
from canard_pipe.pipeline.sheets.table import Table
from canard_pipe.pipeline.sheets.words import did_you_mean, quoted, slip_of


@dataclass(slots=True)
class Columns:
    """The places of fields, of other columns (``extra``) and of the key within the cells of a row.

    ``absent`` are required fields without a column (told once, on the header). ``empty_is_none`` are the fields
    whose empty cell is None; ``names`` gives the name in the header for a field or one of its aliases.
    """

    fields: dict[str, int] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)
    key: tuple[int, ...] = ()
    absent: frozenset[str] = frozenset()
    empty_is_none: frozenset[str] = frozenset()
    names: dict[str, str] = field(default_factory=dict)


def match_columns(table: Table, rows: type[SampleRow], key: Sequence[str] | None) -> Columns:
    """Match the header with the row model; problems and notes go to the table (rules 5 and 9).

    A field takes the column of its name or alias, without regard to case. Columns that no field knows are
    ``extra``, unless one of them is nearly the name of a field that has no column: that is an error, since a
    misspelled optional column would be left out in silence.
    """
    known = column_fields(rows)
    by_name = {name.casefold(): owner for owner, info in known.items() for name in _names(owner, info)}
    columns = Columns()
    for place, column in enumerate(table.columns):
        owner = by_name.get(column.casefold())
        if owner is None:
            columns.extra[column] = place
        elif owner in columns.fields:
            earlier = table.columns[columns.fields[owner]]
            if earlier == column:
                continue  # told by the reader of the header
            table.refuse(
                table.header_line, column, f"is the same column as {quoted(earlier)}: case makes no difference",
                "name or remove one of them",
            )
        else:
            columns.fields[owner] = place
            columns.names |= dict.fromkeys([owner, *_names(owner, known[owner])], column)
    unseen = [owner for owner in known if owner not in columns.fields]
    columns.absent = frozenset(owner for owner in unseen if known[owner].is_required())
    columns.empty_is_none = frozenset(
        owner for owner, info in known.items() if info.is_required() and may_be_none(info.annotation)
    )
    _refuse_near_misses(table, columns, known, unseen)
    if columns.extra:
        table.notes.append("columns that the pipeline does not know, kept as they are: " + ", ".join(columns.extra))
    columns.key = _key_places(table, columns, by_name, key)
    return columns


def _names(owner: str, info: FieldInfo) -> list[str]:
    names = [owner]
    for alias in (info.alias, info.validation_alias):
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        names += [choice for choice in choices if isinstance(choice, str) and choice not in names]
    return names


def _refuse_near_misses(
    table: Table, columns: Columns, known: Mapping[str, FieldInfo], unseen: Sequence[str]
) -> None:
    unknown = list(columns.extra)
    wanted = {name: owner for owner in unseen for name in _names(owner, known[owner])}
    meant: set[str] = set()
    for column in unknown:
        name = slip_of(column, wanted)
        if name is None or wanted[name] in meant:
            continue
        meant.add(wanted[name])
        table.refuse(
            table.header_line, column, "is not a column of this pipeline", f"did you mean {quoted(name)}?"
        )
    for owner in [owner for owner in unseen if owner in columns.absent and owner not in meant]:
        hint = did_you_mean(owner, unknown) or f"the columns are {', '.join(map(quoted, table.columns))}"
        if table.header_line is not None and not columns.fields:
            hint = (
                f"line {table.header_line} is taken as the header: {', '.join(map(quoted, table.columns))}; "
                "for a sheet without one say --no-header --columns NAMES"
            )
        table.refuse(table.header_line, owner, "the sheet has no such column", hint)


def _key_places(
    table: Table, columns: Columns, by_name: Mapping[str, str], key: Sequence[str] | None
) -> tuple[int, ...]:
    if key is None:
        key = table.key
        if key is None:
            key = (default_key(table.columns),)
            table.notes.append(f"samples are named by the column {quoted(key[0])}")
    folded = {column.casefold(): place for place, column in enumerate(table.columns)}
    places = []
    for name in key:
        owner = by_name.get(name.casefold(), name)
        place = columns.fields.get(owner, folded.get(name.casefold()))
        if place is not None:
            places.append(place)
        elif owner not in columns.absent:
            table.refuse(
                table.header_line, name, "the sheet has no such column, and samples are named by it",
                did_you_mean(name, table.columns) or f"the columns are {', '.join(map(quoted, table.columns))}",
            )
    return tuple(places)
