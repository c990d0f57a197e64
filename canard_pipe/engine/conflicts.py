"""Which errors of DuckDB mean that another transaction won, so that the statement may be repeated.

Embedded, the type of the exception tells (S35): TransactionException. But that type also covers misuse of
transactions and a commit that failed for want of disk, which no repetition heals. Over Quack the type is lost and
only the text is left: then the whole first line has to be that of a known conflict (S34), since the same words can
stand inside another error. What is not known is never repeated. DuckDB itself is not imported here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# All seen with DuckDB 1.5.5, embedded and over Quack alike; the prefix before them differs.
_KNOWN = re.compile(
    r"""
      Conflict\ on\ (?:update|tuple\ deletion)!
    | Failed\ to\ commit:\ PRIMARY\ KEY\ or\ UNIQUE\ constraint\ violation:\ duplicate\ key\ ".*"
    | Transaction\ conflict:\ attempting\ to\ [a-z ]+\ table\ ".*"\ but\ it\ has\ been\ (?:altered|dropped)
      \ by\ a\ different\ transaction
    | Catalog\ write-write\ conflict\ on\ (?:create|alter)\ with\ ".*"
    """,
    re.VERBOSE,
)
_NOT_CONFLICTS = re.compile(
    r"""
      Current\ transaction\ is\ aborted
    | [Cc]annot\ (?:start|commit|rollback|write)\b
    | Failed\ to\ commit:\ (?!PRIMARY\ KEY\ or\ UNIQUE\ constraint\ violation)
    | Attempting\ to\ write\ to\ database
    """,
    re.VERBOSE,
)
_EMBEDDED_PREFIX = "TransactionContext Error: "
_REMOTE_PREFIX = "Invalid Input Error: "


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another transaction won. ``message_based`` tells that only the text said so (E5)."""

    message_based: bool


def classify(error: BaseException, *, remote: bool = False) -> Conflict | None:
    """Return the conflict that ``error`` is, or None if repeating the statement is not known to be safe.

    ``remote`` tells that the statement went over Quack; only then is the text alone believed.
    """
    kind = type(error)
    if kind.__module__.partition(".")[0] not in ("duckdb", "_duckdb"):
        return None
    first_line = str(error).partition("\n")[0]
    if kind.__name__ == "TransactionException":
        text = first_line.removeprefix(_EMBEDDED_PREFIX)
        return None if _NOT_CONFLICTS.match(text) else Conflict(message_based=False)
    if remote and kind.__name__ == "InvalidInputException" and first_line.startswith(_REMOTE_PREFIX):
        text = first_line.removeprefix(_REMOTE_PREFIX)
        return Conflict(message_based=True) if _KNOWN.fullmatch(text) else None
    return None
