"""A table of what a person asked in SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from canard_pipe.report.wording import visible


def sql_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Return columns and rows as a table; numbers to the right, NULL dim."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for place, name in enumerate(columns):
        cells = [row[place] for row in rows if row[place] is not None]
        numbers = bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
        table.add_column(Text(visible(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("NULL", style="dim") if cell is None else Text(visible(_spelled(cell))) for cell in row))
    return table


def _spelled(cell: Any) -> str:
    if isinstance(cell, dict | list):
        return json.dumps(cell, ensure_ascii=False, default=str)
    return str(cell)
