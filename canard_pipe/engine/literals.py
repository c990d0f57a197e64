"""SQL text without parameters, for a transport that has none (Quack): every value as a literal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from canard_pipe.engine.statements import Cell, Parameter, Piece, Statement, Table
from canard_pipe.errors import InputError

Row = Mapping[str, Any]


def literal(value: Any) -> str:
    """Spell None, bool, int (64 bit), float, text, bytes or a list of such as an SQL expression of the same value.

    Raises InputError for anything else, and for text that is not valid Unicode.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"the integer {value} does not fit 64 bits")
        # Negative ones as text, since a bare -9223372036854775808 is the negation of too large a number.
        return str(value) if value >= 0 else f"'{value}'::BIGINT"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    raise InputError(f"a {type(value).__name__} cannot be spelled in SQL")


def render(statement: Statement, params: Mapping[str, Any]) -> str:
    """Return the statement with the literal of its value in the place of each parameter.

    ``rows`` is a list of dicts; a key that a row lacks is NULL. Raises InputError.
    """
    missing = statement.parameters - params.keys()
    if missing:
        raise InputError(f"no value for {', '.join(sorted(missing))}")
    if "rows" not in statement.parameters:
        return "".join([_spelled(piece, params, ()) for piece in statement.pieces])
    rows: Sequence[Row] = params["rows"]
    pieces = statement.for_one_row if len(rows) == 1 else statement.pieces
    return "".join([_spelled(piece, params, rows) for piece in pieces])


def _spelled(piece: Piece, params: Mapping[str, Any], rows: Sequence[Row]) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Parameter):
        return literal(params[piece.name])
    if isinstance(piece, Cell):
        text = literal(rows[0].get(piece.column))
        return text if piece.type == "VARCHAR" and text[0] == "'" else f"{text}::{piece.type}"
    return _table(piece, rows)


def _table(table: Table, rows: Sequence[Row]) -> str:
    text = json.dumps([{name: row.get(name) for name, _ in table.columns} for row in rows])
    shape = ",".join(
        f'"{name}":["{kind[:-2]}"]' if kind.endswith("[]") else f'"{name}":"{kind}"' for name, kind in table.columns
    )
    return f"(SELECT unnest(from_json({_quoted(text)}::JSON, '[{{{shape}}}]'), max_depth := 2))"


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text {text!r} is not valid Unicode") from error
    # A NUL would end the statement's text.
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in text.split("\0")]
    return pieces[0] if len(pieces) == 1 else f"({' || chr(0) || '.join(pieces)})"
