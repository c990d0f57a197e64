"""Stored values: Python values as JSON text, and back, equal and of the same type.

JSON carries None, bool, int (64 bit), finite float, str, list and dict with text keys as they are. What JSON has
not is an object with one tag of our own::

    {"$bytes": "base64"}  {"$float": "nan"}  {"$tuple": [...]}  {"$date": "2026-11-30"}  {"$datetime": "..."}
    {"$timedelta": [days, seconds, microseconds]}  {"$decimal": "1.10"}  {"$uuid": "..."}
    {"$path": "reads/A.fastq.gz"}                       a path as given
    {"$project": "work/A/sorted.bam", "size": 12, "mtime_ns": 34}   a path below the launch folder, relative to it
    {"$dict": [["$odd key", value], ...]}               a dict with a key that begins with $
    {"$object": ["Depths", {"mean": 30.5}]}             a registered dataclass; of a model also the fields given
    {"$skipped": "reason"}                              the result of a task that left itself out

A project can thus be moved, and SQL can read every value (``value::JSON``). DuckDB's own binding of lists and
dicts is not used since it unifies their members' types.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import enum
import json
import math
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from canard_pipe.engine.registered import Adapted, Registry
from canard_pipe.errors import ValueEncodeError

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Skipped:
    """The result of a task that left itself out, for ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a stored value names, with what it was like when the value was saved."""

    path: Path
    size: int | None
    mtime_ns: int | None

    def unchanged(self) -> bool:
        """Tell whether the file is there with the size and time it had; a folder only has to be there."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        if self.size is None:
            return True
        return (found.st_size, found.st_mtime_ns) == (self.size, self.mtime_ns)


class Codec:
    """Encodes and decodes values. ``root`` is the launch folder: paths below it are stored relative to it.

    ``types`` are dataclasses and pydantic models whose instances can be stored. Raises InputError for others.
    """

    def __init__(self, root: Path, types: Iterable[type | Adapted] = ()) -> None:
        self.types = Registry(types)
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - links are kept as given

    def encode(self, value: Any, *, with_files: bool = False) -> str:
        """Return ``value`` as JSON text.

        With ``with_files``, size and time of existing regular files below the launch folder are kept beside their
        paths. Raises ValueEncodeError, which names the place in the value, before anything is sent (G17).
        """
        tree = self._to_tree(value, "$", with_files, 0)
        return json.dumps(tree, ensure_ascii=True, allow_nan=False, separators=(",", ":"))

    def decode(self, text: str) -> Any:
        """Return the value of JSON text made by :meth:`encode`. Raises ValueError if it is not such text."""
        try:
            return self._from_tree(json.loads(text))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
            raise ValueError(f"not a stored value: {error!r}") from error

    def files(self, text: str) -> Iterator[StoredFile]:
        """Yield every project file that an encoded value names."""
        if '"$project"' in text:
            yield from self._files(json.loads(text))

    def _to_tree(self, value: Any, where: str, with_files: bool, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueEncodeError(
                f"lists and dicts are nested more than {_DEEPEST} deep, or hold themselves", where[:99]
            )
        if value is None or isinstance(value, bool):
            return value
        name = self.types.name_of(type(value))
        if name is not None:
            fields, given = self.types.fields_of(value, where)
            tree = self._dict_to_tree(fields, where, with_files, depth)
            return {"$object": [name, tree] if given is None else [name, tree, given]}
        if isinstance(value, enum.Enum):
            raise ValueEncodeError(f"enum members such as {value!r} are not stored; use their value", where)
        if isinstance(value, str):
            return _text(value, where)
        if isinstance(value, int):
            if not _INT_MIN <= value <= _INT_MAX:
                raise ValueEncodeError("an integer does not fit 64 bits", where)
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, PurePath):
            return self._path_to_tree(Path(value), where, with_files)
        if isinstance(value, tuple):
            return {"$tuple": self._items_to_tree(value, where, with_files, depth)}
        if isinstance(value, list):
            return self._items_to_tree(value, where, with_files, depth)
        if isinstance(value, dict):
            return self._dict_to_tree(value, where, with_files, depth)
        for kind, tag, encode, _ in _SCALARS:
            if type(value) is kind:
                content = encode(value)
                return {tag: _text(content, where) if isinstance(content, str) else content}
        raise ValueEncodeError(
            f"a value of type {type(value).__qualname__} cannot be stored; return text, numbers, paths, lists, dicts, "
            "or dataclasses and models that are registered (types=)", where
        )

    def _items_to_tree(self, items: Sequence[Any], where: str, with_files: bool, depth: int) -> list[Any]:
        return [self._to_tree(item, f"{where}[{at}]", with_files, depth + 1) for at, item in enumerate(items)]

    def _dict_to_tree(self, value: dict[Any, Any], where: str, with_files: bool, depth: int) -> Any:
        odd = False
        tree: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueEncodeError(f"the dict key {key!r} is not text", where)
            odd = odd or key.startswith("$")
            tree[_text(key, where)] = self._to_tree(item, f"{where}.{key}", with_files, depth + 1)
        return {"$dict": [[key, item] for key, item in tree.items()]} if odd else tree

    def _path_to_tree(self, path: Path, where: str, with_files: bool) -> dict[str, Any]:
        text = _text(str(path), where)
        if not path.is_absolute() or not path.is_relative_to(self.root):
            return {"$path": text}
        tree: dict[str, Any] = {"$project": _text(path.relative_to(self.root).as_posix(), where)}
        if with_files:
            try:
                found = path.stat()
            except OSError:
                return tree
            if stat.S_ISREG(found.st_mode):
                tree |= {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
        return tree

    def _from_tree(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self._from_tree(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        tag = next((key for key in tree if key.startswith("$")), None)
        if tag is None:
            return {key: self._from_tree(item) for key, item in tree.items()}
        content = tree[tag]
        if tag == "$project":
            return self.root / content
        if tag == "$path":
            return Path(content)
        if tag == "$float":
            return float(content)
        if tag == "$tuple":
            return tuple(self._from_tree(item) for item in content)
        if tag == "$dict":
            return {key: self._from_tree(item) for key, item in content}
        if tag == "$object":
            name, fields, *given = content
            return self.types.restore(name, self._from_tree(fields), given[0] if given else None)
        for _, known, _, decode in _SCALARS:
            if tag == known:
                return decode(content)
        raise ValueError(f"unknown tag {tag!r} in a stored value")

    def _files(self, tree: Any) -> Iterator[StoredFile]:
        if isinstance(tree, list):
            for item in tree:
                yield from self._files(item)
        elif isinstance(tree, dict):
            if "$project" in tree:
                yield StoredFile(self.root / tree["$project"], tree.get("size"), tree.get("mtime_ns"))
            else:
                for item in tree.values():
                    yield from self._files(item)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueEncodeError(f"the text {value!r} is not valid Unicode", where) from error
    return str(value)


def _delta(content: list[int]) -> datetime.timedelta:
    return datetime.timedelta(days=content[0], seconds=content[1], microseconds=content[2])


# (type, tag, encode, decode); datetime before date does not matter, since the exact type is compared
_SCALARS: tuple[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (bytes, "$bytes", lambda value: base64.b64encode(value).decode(), base64.b64decode),
    (datetime.datetime, "$datetime", lambda value: value.isoformat(), datetime.datetime.fromisoformat),
    (datetime.date, "$date", lambda value: value.isoformat(), datetime.date.fromisoformat),
    (datetime.timedelta, "$timedelta", lambda value: [value.days, value.seconds, value.microseconds], _delta),
    (decimal.Decimal, "$decimal", str, decimal.Decimal),
    (uuid.UUID, "$uuid", str, uuid.UUID),
    (Skipped, "$skipped", lambda value: str(value.reason), Skipped),
)
