"""Names as people type them (exact ones first, else patterns such as ``S1*``) and as they are told them."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Sequence

from canard_pipe.errors import InputError


def named(given: Sequence[str], known: Collection[str], what: str = "sample") -> list[str]:
    """Return the known names that are meant, in the order of ``known``.

    A name is taken as it is where there is one; else ``*``, ``?`` and ``[...]`` in it stand for what they do in a
    shell. Raises InputError if one means nothing, with the names that are close.
    """
    exact = set(known)
    meant: set[str] = set()
    for name in given:
        found = {name} & exact or set(fnmatch.filter(known, name))
        if not found:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise InputError(f"no {what} is named {name!r}{hint}")
        meant |= found
    return [name for name in known if name in meant]


def some(keys: Sequence[str], most: int = 8) -> str:
    """Return keys as a text for people: of many, the first and how many more there are."""
    shown = ", ".join(keys[:most])
    return shown if len(keys) <= most else f"{shown}, … and {len(keys) - most} more"
