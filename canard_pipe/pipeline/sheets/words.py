"""What pydantic found, in the words of somebody who filled in a sheet."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

MISSING = "missing value"

_SHOWN = 60


def quoted(text: object) -> str:
    """Give ``text`` in quotes, shortened, with what cannot be printed spelled out."""
    shown = "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in str(text))
    return f"'{shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + '…'}'"


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Give the choice that is most alike, if one is; case and separators make no difference.

    Names that both have digits and differ in them, such as fastq_1 and fastq_2, are not taken for one another.
    """
    plain = {_bare(choice): choice for choice in choices if _digits(choice) in (_digits(word), "") or not _digits(word)}
    found = difflib.get_close_matches(_bare(word), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def slip_of(word: str, choices: Iterable[str]) -> str | None:
    """Give the choice of which ``word`` is a misspelling beyond doubt: one slip of the keyboard, two in long names."""
    bare = _bare(word)
    plain = {_bare(choice): choice for choice in choices if _digits(choice) == _digits(word)}
    allowed = 0 if len(bare) < 4 else 1 if len(bare) < 8 else 2
    slips = {name: _slips(bare, name) for name in plain}
    best = min(slips, key=lambda name: slips[name], default=None)
    return plain[best] if best is not None and slips[best] <= allowed else None


def _slips(one: str, two: str) -> int:
    """Count the letters to insert, delete, replace or swap with their neighbour."""
    before: list[int] = []
    row = list(range(len(two) + 1))
    for i, char in enumerate(one, start=1):
        before, above, row = row, before, [i]
        for j, other in enumerate(two, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != other))
            if i > 1 and j > 1 and char == two[j - 2] and one[i - 2] == other:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _bare(word: str) -> str:
    return re.sub(r"[\W_]+", "", word).casefold()


def _digits(word: str) -> str:
    return re.sub(r"\D", "", word)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Give the hint ``did you mean 'x'?``, or nothing."""
    found = closest(word, choices)
    return "" if found is None else f"did you mean {quoted(found)}?"


def explain(error: ValidationError) -> list[tuple[str | None, str, str]]:
    """Say what is wrong as (field or alias or None, message, hint), one for each field.

    Where a field allows several types and none fits, their messages are joined by ``or``.
    """
    found: dict[str | None, list[tuple[str, str]]] = {}
    for detail in error.errors(include_url=False):
        place = str(detail["loc"][0]) if detail["loc"] else None
        words = _words(detail["type"], detail.get("ctx") or {}, detail["input"], detail["msg"])
        alternatives = found.setdefault(place, [])
        if words not in alternatives:
            alternatives.append(words)
    return [
        (place, " or ".join(message for message, _ in words), next((hint for _, hint in words if hint), ""))
        for place, words in found.items()
    ]


_RULES = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "decimal_parsing": "must be a number",
    "decimal_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false (also yes, no, 1, 0)",
    "bool_type": "must be true or false (also yes, no, 1, 0)",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "date_parsing": "must be a date such as 2026-03-31",
    "date_from_datetime_parsing": "must be a date such as 2026-03-31",
    "date_from_datetime_inexact": "must be a date without a time",
    "date_type": "must be a date such as 2026-03-31",
    "datetime_parsing": "must be a date and time such as 2026-03-31T12:00",
    "datetime_from_date_parsing": "must be a date and time such as 2026-03-31T12:00",
    "time_parsing": "must be a time such as 12:00",
    "uuid_parsing": "must be a UUID",
}
_CONTAINERS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "dict_type", "model_type")


def _words(kind: str, context: dict[str, Any], value: Any, message: str) -> tuple[str, str]:
    if kind == "missing":
        return MISSING, ""
    if kind == "input_file":
        return message, str(context.get("hint", ""))
    if kind in ("literal_error", "enum"):
        expected = str(context.get("expected", ""))
        choices = re.findall(r"'([^']*)'", expected)
        return f"must be {expected}, not {quoted(value)}", did_you_mean(str(value), choices)
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", "")) or f"{quoted(value)} is not accepted", ""
    if kind in _RULES:
        return f"{_RULES[kind].format_map(context)}, not {quoted(value)}", ""
    if kind in _CONTAINERS:
        return f"{quoted(value)} is one text, but the row model wants several values", (
            "let the model split it: a pydantic field_validator with mode='before'"
        )
    text = re.sub(r"^Input should be", "must be", message)
    return f"{text[:1].lower()}{text[1:]}, not {quoted(value)}", ""
