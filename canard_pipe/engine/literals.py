"""SQL text without parameters, for a transport that has none (Quack): every value as a literal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from canard_pipe.engine.statements import Statement
from canard_pipe.errors import InputError

_PARAMETER = re.compile(r"\$([a-z_]+)")  # as in statements.py


def literal(value: Any) -> str:
    """Spell None, bool, int (64 bit), float, text or bytes as an SQL expression of the same value.

    Raises InputError for anything else, and for text that is not valid Unicode.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"the integer {value} does not fit 64 bits")
        return f"'{value}'::BIGINT"  # as text, since a bare -9223372036854775808 is the negation of too large a number
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    raise InputError(f"a {type(value).__name__} cannot be spelled in SQL")


def render(statement: Statement, params: Mapping[str, Any]) -> str:
    """Return the statement with each ``$name`` replaced by the literal of its value. Raises InputError."""
    missing = statement.parameters - params.keys()
    if missing:
        raise InputError(f"no value for {', '.join(sorted(missing))}")
    return _PARAMETER.sub(lambda found: literal(params[found[1]]), statement.sql)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text {text!r} is not valid Unicode") from error
    # A NUL would end the statement's text.
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in text.split("\0")]
    return pieces[0] if len(pieces) == 1 else f"({' || chr(0) || '.join(pieces)})"
