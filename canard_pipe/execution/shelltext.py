"""Fill values into a text for bash, so that none can become anything but words (BUGS 67)."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping

from canard_pipe.errors import InputError
from canard_pipe.execution.command import argument_text

# Said on standard error when a line fails, since the exit code alone does not tell which member of a pipe it was.
_TRAP = """trap 'echo "canard-pipe: exit codes of the failed line: ${PIPESTATUS[*]}" >&2' ERR; """


def bash(text: str) -> tuple[str, ...]:
    """Return the argument list that runs ``text`` in bash: any failing command and member of a pipe ends it."""
    return ("bash", "-euo", "pipefail", "-c", _TRAP + text)


def fill(text: str, values: Mapping[str, object]) -> str:
    """Return ``text`` with each ``{name}`` replaced by the value of that name, quoted for the shell.

    A list or tuple becomes several words, an empty one no word. Braces of the shell are written ``{{`` and ``}}``.
    Raises InputError for an unknown name, anything but a plain name in braces, a value that is no text, number
    or path, and a place where quoting would not hold: inside quotes, a here-document or a comment.
    """
    if not isinstance(text, str):
        raise InputError(f"the text for the shell must be text, not {type(text).__name__}")
    filled = []
    quoting = _Quoting()
    used = set()
    for literal, name in _parts(text):
        filled.append(literal)
        quoting.read(literal)
        if name is None:
            continue
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            raise InputError(
                f"{{{name}}} in the text for the shell has no value (values: {known}); "
                "braces of the shell itself are written {{ and }}"
            )
        used.add(name)
        quoting.refuse(name)
        filled.append(_words(name, values[name]))
        quoting.read("x")
    argument_text("".join(filled), "the text for the shell")
    return "".join(filled)


def names(text: str) -> set[str]:
    """Return the names in braces of a text."""
    return {name for _, name in _parts(text) if name is not None}


def _parts(text: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(
            f"the text for the shell has unpaired braces ({error}); braces of the shell are written {{{{ and }}}}"
        ) from error
    parts: list[tuple[str, str | None]] = []
    for literal, name, form, conversion in parsed:
        if name is not None and (form or conversion or not name.isidentifier()):
            shown = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            raise InputError(
                f"{shown} in the text for the shell is not a plain name; "
                "braces of the shell itself are written {{ and }}"
            )
        parts.append((literal, name))
    return parts


def _words(name: str, value: object) -> str:
    items = value if isinstance(value, list | tuple) else [value]
    return " ".join(shlex.quote(argument_text(item, f"the value of {{{name}}}")) for item in items)


class _Quoting:
    """Follows bash's quoting through a text, as far as needed to know whether a place is inside quotes."""

    _NEXT = re.compile(r"\\.|<<<|<<|\$'|\$\(|[\s\S]", re.DOTALL)

    def __init__(self) -> None:
        self._inside: list[str] = []  # the nesting: ' " # $' ` or ( for a command substitution
        self._here_document = False
        self._word_begins = True

    def read(self, text: str) -> None:
        for mark in self._NEXT.findall(text):
            self._take(mark)

    def _take(self, mark: str) -> None:
        within = self._inside[-1] if self._inside else ""
        if within == "'":
            if mark.endswith("'"):  # a backslash means nothing here
                self._inside.pop()
        elif within == "#":
            if mark.endswith("\n"):
                self._inside.pop()
        elif within == "$'":
            if mark == "'":
                self._inside.pop()
        elif within == '"':
            if mark == '"':
                self._inside.pop()
            elif mark == "$(":
                self._inside.append("(")
        elif mark == "`" and within == "`":
            self._inside.pop()
        elif mark in ("'", '"', "$'", "`"):
            self._inside.append(mark)
        elif mark in ("$(", "("):
            self._inside.append("(")
        elif mark == ")" and within == "(":
            self._inside.pop()
        elif mark == "#" and self._word_begins:
            self._inside.append("#")
        elif mark == "<<":
            self._here_document = True
        self._word_begins = mark in " \t\n;&|()"

    def refuse(self, name: str) -> None:
        within = self._inside[-1] if self._inside else ""
        places = {"'": "quotes", '"': "quotes", "$'": "quotes", "`": "backquotes", "#": "a comment"}
        place = "a here-document (or after one)" if self._here_document else places.get(within)
        if place:
            raise InputError(
                f"{{{name}}} in the text for the shell is inside {place}, where its quoting does not hold; "
                "write it bare: it is quoted already"
            )
