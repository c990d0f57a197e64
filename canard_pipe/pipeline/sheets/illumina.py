"""Illumina sample sheets: v1 (IEM, bcl2fastq) and v2 (BCL Convert)."""

from __future__ import annotations

import io
from collections.abc import Iterator

from canard_pipe.pipeline.sheets.source import Source
from canard_pipe.pipeline.sheets.table import Table, csv_records, read_section

_DATA = ("[bclconvert_data]", "[data]")


def is_illumina(source: Source) -> bool:
    """Tell whether the first line that is not blank is ``[Header]``."""
    lines = (line.strip(" \t,;") for line in source.text.split("\n", 20))
    first = next((line for line in lines if line), "")
    return first.strip('"').casefold() == "[header]"


def read_illumina(source: Source) -> Table:
    """Read the section [BCLConvert_Data] or [Data]; its lines may be padded with commas or short.

    The key is (Sample_ID, Lane) where there is a lane, else Sample_ID.
    """
    table = Table(source.name)
    lines = io.StringIO(source.text, newline="\n").readlines()
    sections: dict[str, int] = {}
    for index, line in enumerate(lines):
        name = line.strip().strip(" \t,;\"").casefold()
        if name.startswith("[") and name.endswith("]"):
            sections.setdefault(name, index)
    found = next((name for name in _DATA if name in sections), None)
    if found is None:
        table.refuse(None, None, "this Illumina sheet has no section [BCLConvert_Data] or [Data]")
        return table
    start = sections[found] + 1
    end = min((index for index in sections.values() if index >= start), default=len(lines))
    read_section(table, _records(table, lines[:end], start))
    version = "v2" if found == _DATA[0] else "v1"
    table.notes.append(f"Illumina sample sheet {version}: section {lines[start - 1].strip().strip(',')} is read")
    names = {name.casefold(): name for name in table.columns}
    if "sample_id" in names:
        table.key = (names["sample_id"], names["lane"]) if "lane" in names else (names["sample_id"],)
    return table


def _records(table: Table, lines: list[str], start: int) -> Iterator[tuple[int, list[str]]]:
    return csv_records(table, lines, start, ",")
