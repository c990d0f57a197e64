"""Two tables: samples, and the units (lanes, runs) of each, as Snakemake workflows have them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from canard_pipe.pipeline.sheets.source import Source
from canard_pipe.pipeline.sheets.table import RawRow, Table
from canard_pipe.pipeline.sheets.words import did_you_mean, quoted


def join_sources(samples: Source, units: Source) -> Source:
    """Give one source for both, for the record: the texts one after the other, one digest."""
    digest = hashlib.sha256(f"{samples.digest}\n{units.digest}\n".encode()).hexdigest()
    text = f"{samples.text}\n# units: {units.name}\n{units.text}"
    return Source(samples.name, samples.folder, samples.suffix, text, digest)


def join_units(samples: Table, units: Table, on: Sequence[str]) -> Table:
    """Give a row for each unit that has the cells of its sample as well; ``on`` are the columns that say whose it is.

    Lines are those of the units; problems with a column of the samples name the samples' file and line. A unit
    without a sample, a sample without units, a doubled sample, and a column of both tables are errors (rule 17).
    """
    joined = Table(units.file, header_line=units.header_line)
    joined.notes = [f"{table.file}: {note}" for table in (samples, units) for note in table.notes]
    joined.problems = [*samples.problems, *units.problems]
    joined.key = tuple(on)
    sample_places, unit_places = _places(samples, on, joined), _places(units, on, joined)
    if sample_places is None or unit_places is None:
        return joined
    named = {units.columns[place].casefold() for place in unit_places}
    added = [place for place in range(len(samples.columns)) if place not in sample_places]
    taken = {column.casefold() for column in units.columns} - named
    for place in added:
        if samples.columns[place].casefold() in taken:
            samples.refuse(
                samples.header_line, samples.columns[place], f"{units.file} has this column too", "rename one of them"
            )
            joined.problems.append(samples.problems[-1])
    joined.columns = (*units.columns, *(samples.columns[place] for place in added))
    whose = _by_key(samples, sample_places, joined)
    lines: dict[int, int] = {}
    for unit in units.rows:
        key = tuple(unit.cells[place] for place in unit_places)
        sample = whose.get(key)
        if sample is None:
            units.refuse(
                unit.line, units.columns[unit_places[-1]],
                f"there is no sample {quoted('/'.join(key))} in {samples.file}",
                did_you_mean("/".join(key), map("/".join, whose)),
            )  # fmt: skip
            joined.problems.append(units.problems[-1])
            continue
        lines[unit.line] = sample.line
        joined.rows.append(RawRow(unit.line, unit.cells + tuple(sample.cells[place] for place in added)))
    joined.origin = dict.fromkeys((samples.columns[place] for place in added), (samples.file, lines))
    used = set(lines.values())
    for key, sample in whose.items():
        if sample.line not in used:
            samples.refuse(
                sample.line, None, f"sample {quoted('/'.join(key))} has no units in {units.file}",
                "add its units or take it out",
            )  # fmt: skip
            joined.problems.append(samples.problems[-1])
    return joined


def _places(table: Table, on: Sequence[str], joined: Table) -> list[int] | None:
    folded = {column.casefold(): place for place, column in enumerate(table.columns)}
    missing = [name for name in on if name.casefold() not in folded]
    for name in missing:
        table.refuse(
            table.header_line, name, "the sheet has no such column, and the two tables are joined by it",
            did_you_mean(name, table.columns),
        )  # fmt: skip
        joined.problems.append(table.problems[-1])
    return None if missing else [folded[name.casefold()] for name in on]


def _by_key(samples: Table, places: Sequence[int], joined: Table) -> dict[tuple[str, ...], RawRow]:
    whose: dict[tuple[str, ...], RawRow] = {}
    for raw in samples.rows:
        key = tuple(raw.cells[place] for place in places)
        earlier = whose.setdefault(key, raw)
        if earlier is not raw:
            samples.refuse(
                raw.line, samples.columns[places[-1]],
                f"sample {quoted('/'.join(key))} is in line {earlier.line} already", "a sample has one row here",
            )  # fmt: skip
            joined.problems.append(samples.problems[-1])
    return whose
