"""Folder names for keys: one rule, from key to name and back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

JOIN = "/"
"""Stands between the parts of a key of several columns; no part can hold it."""

LONGEST = 100
"""Bytes (and characters, since all names are ASCII) that a folder name has at most."""

RESERVED = frozenset({"cohort", "once"})
"""Names that have a meaning of their own in the results folder and in that of the work."""

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_STEM = 80
_DIGITS = 12


def encode_key(key: str) -> str:
    """Spell a key so that it is safe on every file system: ASCII letters, digits, ``._-`` stay.

    ``/`` between parts becomes ``+``, every other byte of the UTF-8 text ``%XX``; so do a dot at either end, a
    dash at the beginning, and the first letter of a reserved name. Never contains ``~``.
    """
    spelled = "".join(char if char in _SAFE else "+" if char == JOIN else _percent(char) for char in key)
    if spelled[:1] in ("-", ".") or spelled.casefold() in RESERVED:
        spelled = _percent(spelled[0]) + spelled[1:]
    return f"{spelled[:-1]}%2E" if spelled.endswith(".") else spelled


def decode_folder(folder: str) -> str | None:
    """Give the key of a folder name; None for the name of a key that was too long to be spelled out."""
    stem, mark, digest = folder.partition("~")
    key = unquote_to_bytes(stem.replace("+", JOIN)).decode("utf-8", "replace")
    return None if mark and not _digest(key).startswith(digest) else key


def assign_folders(keys: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give every key its folder name; the names are distinct without regard to case.

    A name depends on the key alone, except that keys whose spelling is equal but for case all get ``~`` and the
    beginning of their SHA-256, as do keys too long to be spelled out; the order of ``keys`` never matters.
    ``known`` maps keys to names given earlier: those keep them, and new keys keep clear of them.
    """
    known = dict(known or {})
    result = {key: known[key] for key in keys if key in known}
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        if key not in known:
            groups.setdefault(_stem(key).casefold(), []).append(key)
    taken = {name.casefold() for name in known.values()}
    for stem, members in groups.items():
        alone = len(members) == 1 and stem not in taken
        if alone and _spelled_out(members[0]):
            result[members[0]] = _stem(members[0])
            continue
        digits = _DIGITS
        names = _with_digests(members, digits)
        while len({name.casefold() for name in names} | taken) < len(names) + len(taken):
            digits += 4
            names = _with_digests(members, digits)
        result.update(zip(members, names, strict=True))
    return result


def _spelled_out(key: str) -> bool:
    return len(encode_key(key)) <= _STEM


def _stem(key: str) -> str:
    """Give the spelling of a key, cut where it is too long, but not within a ``%XX``."""
    spelled = encode_key(key)
    return spelled if len(spelled) <= _STEM else re.sub(r"%.?$", "", spelled[:_STEM])


def _with_digests(keys: list[str], digits: int) -> list[str]:
    return [f"{_stem(key)}~{_digest(key)[:digits]}" for key in keys]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8")).hexdigest()


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8"))
