"""What a task was made from, as text that can be held against what it would be made from now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Signature = tuple[int, ...]
"""Size and time of a file, and a checksum if one was asked for; empty for a folder: only that it is there counts."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests of the cells of a task's rows and of the parameters, and the signatures of its input files.

    ``rows`` has a dict per row, by column; ``files`` are in the order of the rows and their fields.
    """

    rows: tuple[Mapping[str, str], ...]
    params: Mapping[str, str]
    files: tuple[Signature, ...]

    @property
    def text(self) -> str:
        """The text that is kept in the plan: equal for equal fingerprints."""
        return json.dumps(
            {"rows": self.rows, "params": self.params, "files": self.files}, separators=(",", ":"), sort_keys=True
        )

    def changes_since(self, before: str, files: Sequence[str]) -> list[str]:
        """Name what differs from the text of an earlier fingerprint; ``files`` are the names of this one's files."""
        try:
            old = json.loads(before)
            rows, params, signatures = old["rows"], old["params"], old["files"]
        except (ValueError, KeyError, TypeError):
            return []
        said = []
        if len(rows) != len(self.rows):
            said.append(f"{len(self.rows)} rows, before {len(rows)}")
        elif columns := sorted({name for pair in zip(rows, self.rows, strict=True) for name in _differing(*pair)}):
            said.append(f"column{'s' * (len(columns) > 1)} {', '.join(columns)}")
        if names := _differing(params, self.params):
            said.append(f"parameter{'s' * (len(names) > 1)} {', '.join(sorted(names))}")
        if len(signatures) == len(self.files):
            pairs = zip(files, signatures, self.files, strict=True)
            if other := [name for name, one, two in pairs if tuple(one) != two]:
                said.append(f"file{'s' * (len(other) > 1)} {', '.join(other)}")
        return said


def of_params(values: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return the digests of parameters by name; a file counts with its size and time.

    Paths below ``root``, the launch folder, count as relative to it: a project can be moved.
    """
    return {
        name: _short([_plain(value, root), [signature(file) for file in files_in(value)]])
        for name, value in values.items()
    }


def of_rows(rows: Sequence[Mapping[str, Any]], root: Path) -> tuple[dict[str, str], ...]:
    """Return the digests of the cells of rows by column, as :func:`of_params` does.

    Columns that the row model does not know are columns too.
    """
    cells = [{name: value for name, value in row.items() if name != "extra"} | row.get("extra", {}) for row in rows]
    return tuple({name: _short(_plain(value, root)) for name, value in row.items()} for row in cells)


def signature(file: Path) -> Signature:
    """Return size and time of a file, nothing of a folder. Raises OSError if it is not there."""
    found = file.stat()
    return (found.st_size, found.st_mtime_ns) if file.is_file() else ()


def signature_since(file: Path, before: Sequence[int] | None, *, content: bool) -> Signature:
    """Return the signature of a file that had ``before`` in the last plan, or None; the same if nothing has changed.

    With ``content`` one that has another time but the same bytes has not changed, as far as ``before`` has a
    checksum. Reads the file only where that is not known. Raises OSError.
    """
    now = signature(file)
    if before is not None and tuple(before[:2]) == now:
        return tuple(before)
    if not content or not now:
        return now
    checksum = _checksum(file)
    if before is not None and tuple(before[::2]) == (now[0], checksum):
        return tuple(before)
    return (*now, checksum)


def signatures_in(text: str | None) -> list[Sequence[int]]:
    """Return the signatures of files in the text of a fingerprint; none if there are none or it is damaged."""
    try:
        return list(json.loads(text)["files"]) if text else []
    except (ValueError, KeyError, TypeError):
        return []


def files_in(value: Any) -> Iterable[Path]:
    """Give the paths within a value."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping):
        yield from files_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from files_in(item)


def _differing(one: Mapping[str, str], two: Mapping[str, str]) -> set[str]:
    return {name for name in {*one, *two} if one.get(name) != two.get(name)}


def _plain(value: Any, root: Path) -> Any:
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item, root) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, root) for item in value]
    if isinstance(value, Path) and value.is_relative_to(root):
        return str(value.relative_to(root))
    return str(value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _checksum(file: Path) -> int:
    found = hashlib.blake2b(digest_size=7)  # an integer that every JSON reader takes
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            found.update(chunk)
    return int.from_bytes(found.digest(), "big") >> 3
