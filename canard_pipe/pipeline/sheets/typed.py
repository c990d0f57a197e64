"""From the cells of a row to the pipeline's row model, with every problem of the row."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from canard_pipe.errors import Problem
from canard_pipe.pipeline.rows import FILES, SampleRow
from canard_pipe.pipeline.sheets.columns import Columns
from canard_pipe.pipeline.sheets.files import InputFiles, checksum_trouble
from canard_pipe.pipeline.sheets.keys import check_part, join_key
from canard_pipe.pipeline.sheets.table import RawRow, Table
from canard_pipe.pipeline.sheets.words import MISSING, explain

Row = TypeVar("Row", bound=SampleRow)


class RowTyper(Generic[Row]):
    """Types the rows of one sheet; ``problems`` gathers (line of the row, what is wrong with it).

    ``missing`` are texts that mean an empty cell (never in a key). ``checksums``: read every file that a column
    such as ``fastq_1_md5`` or ``md5_1`` gives a checksum for.
    """

    def __init__(
        self, table: Table, columns: Columns, rows: type[Row], files: InputFiles,
        *, missing: Collection[str] = (), checksums: bool = False, max_key_length: int,
    ) -> None:  # fmt: skip
        self.problems: list[tuple[int, Problem]] = []
        self._table, self._columns, self._rows, self._files = table, columns, rows, files
        self._missing, self._max_key_length = frozenset(missing), max_key_length
        self._context = {FILES: files}
        self._key_columns = {table.columns[place] for place in columns.key}
        self._checksums = self._checksum_columns() if checksums else {}
        self._pairs = [
            (f"{name[:-1]}1", name)
            for name in rows.read_fields
            if name.endswith("2") and f"{name[:-1]}1" in rows.read_fields
        ]

    def key(self, raw: RawRow) -> tuple[str, ...] | None:
        """Give the parts of the row's key as typed; None, with a problem, for one that cannot be used (rule 11)."""
        parts = tuple([raw.cells[place] for place in self._columns.key])
        usable = bool(parts)
        for place, text in zip(self._columns.key, parts, strict=True):
            column = self._table.columns[place]
            if not text:
                usable = False
                self._refuse(raw.line, column, MISSING, "samples are named by this column")
                continue
            trouble = check_part(text)
            if trouble is not None:
                usable = False
                self._refuse(raw.line, column, *trouble)
        if usable and len(join_key(parts)) > self._max_key_length:
            usable = False
            self._refuse(
                raw.line, self._table.columns[self._columns.key[-1]],
                f"the sample's name has {len(join_key(parts))} characters, "
                f"{self._max_key_length} are possible in this pipeline",
                "use a shorter one",
            )  # fmt: skip
        return parts if usable else None

    def row(self, raw: RawRow) -> Row | None:
        """Give the row as the model has it; None, with problems, when something is wrong with it (rule 14)."""
        before = len(self.problems)
        cells, columns = raw.cells, self._columns
        values: dict[str, object] = {}
        for name, place in columns.fields.items():
            text = cells[place]
            if text and (text not in self._missing or place in columns.key):
                values[name] = text
        given = set(values)
        for name in columns.empty_is_none:
            values.setdefault(name, None)
        if columns.extra:
            values["extra"] = {name: cells[place] for name, place in columns.extra.items()}
        for first, second in self._pairs:
            if second in given and first not in given and not self._rows.model_fields[first].is_required():
                self._refuse(raw.line, columns.names.get(first, first), f"{MISSING}, but {second} is given")
        try:
            row = self._rows.__pydantic_validator__.validate_python(values, context=self._context)
        except ValidationError as error:
            for place_, message, hint in explain(error):
                column = None if place_ is None else columns.names.get(place_, place_)
                # A field without a column is told on the header, an empty key by key().
                if place_ not in columns.absent and not (message == MISSING and column in self._key_columns):
                    self._refuse(raw.line, column, message, hint)
            return None
        except Exception as error:
            self._refuse(raw.line, None, f"the row model failed: {type(error).__name__}: {error}",
                         "a validator of the pipeline raises something else than ValueError")
            return None
        self._verify(raw, row)
        return row if len(self.problems) == before else None

    def _refuse(self, line: int, column: str | None, message: str, hint: str = "") -> None:
        self.problems.append((line, self._table.problem(line, column, message, hint)))

    def _checksum_columns(self) -> dict[str, int]:
        """Give the place of the checksum for a file field: ``fastq_1_md5``, ``md5_1``, ``fastq_md5`` and the like."""
        places = {name.casefold(): place for place, name in enumerate(self._table.columns)}
        found: dict[str, int] = {}
        for name in self._rows.file_fields:
            stem, _, number = name.rpartition("_") if re.search(r"_\d$", name) else (name, "", "")
            spellings = [f"{name}_{kind}" for kind in ("md5", "sha256")]
            spellings += [f"{kind}_{number}" for kind in ("md5", "sha256") if number]
            if number in ("", "1"):
                spellings += [f"{stem}_md5", "md5"]
            place = next((places[spelling] for spelling in spellings if spelling in places), None)
            if place is not None:
                found[name] = place
        return found

    def _verify(self, raw: RawRow, row: Row) -> None:
        for name, place in self._checksums.items():
            path, expected = getattr(row, name), raw.cells[place]
            if not isinstance(path, Path) or not expected or expected in self._missing:
                continue
            trouble = checksum_trouble(path, expected)
            if trouble is not None:
                self._refuse(raw.line, self._table.columns[place], *trouble)

