"""What names a sample: which columns, what a key may hold, which keys are easily mistaken for one another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from canard_pipe.pipeline.sheets.folders import JOIN

DEFAULT_COLUMNS = ("sample", "sample_id", "sample_name", "id")
"""The columns that are tried, without regard to case, when the pipeline declares no key (rule 9)."""

OWNERS = frozenset(
    {"patient", "patient_id", "individual", "individual_id", "subject", "subject_id", "donor", "donor_id", "case_id"}
)
"""Columns that say whose sample it is: rows that differ there are not lanes of one sample (BUGS 4)."""

LONGEST_PART = 255


def default_key(columns: Sequence[str]) -> str:
    """Give the column that is the key when none is declared: the first known name, else the first column."""
    names = {column.casefold(): column for column in reversed(columns)}
    return next((names[name] for name in DEFAULT_COLUMNS if name in names), columns[0])


def join_key(parts: Sequence[str]) -> str:
    """Give the key as shown, stored and used in task ids."""
    return JOIN.join(parts)


def check_part(text: str) -> tuple[str, str] | None:
    """Say as (message, hint) why a text cannot be (a part of) a key (rule 11), or None.

    Anything printable is fine, but ``/``, a leading dot or dash, and more than 255 bytes of UTF-8.
    """
    for place, char in enumerate(text, start=1):
        if char == JOIN:
            return "a sample's name cannot hold /", "it names a folder; write _ or - instead"
        if not char.isprintable():
            name = unicodedata.name(char, "a control character")
            return (
                f"character {place} of the sample's name cannot be printed: U+{ord(char):04X} ({name})",
                "delete it" if not char.isspace() else "write a plain space or _ instead",
            )
    if text.startswith((".", "-")):
        kind = "dot" if text[0] == "." else "dash"
        return f"a sample's name cannot begin with a {kind}", "tools would take it for a hidden file or an option"
    size = len(text.encode("utf-8"))
    if size > LONGEST_PART:
        return f"the sample's name has {size} bytes, {LONGEST_PART} are possible", "use a shorter one"
    return None


def mapped_part(text: str) -> str:
    """Return a (part of a) key with _ for each character that it cannot hold, or not begin with (rule 11)."""
    made = "".join("_" if char == JOIN or not char.isprintable() else char for char in text)
    return f"_{made[1:]}" if made.startswith((".", "-")) else made


def twins(keys: Iterable[str]) -> list[tuple[str, ...]]:
    """Give the groups of keys that differ in case, blanks, ``-`` for ``_``, or leading zeros only (rule 12)."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(_without_differences(key), []).append(key)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _without_differences(key: str) -> str:
    bare = unicodedata.normalize("NFKC", key).casefold().replace("-", "_")
    bare = re.sub(r"\s+", "", bare)
    return re.sub(r"(?<![\d.])0+(?=\d)", "", bare)
