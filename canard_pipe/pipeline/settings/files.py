"""One settings file: TOML, checked as a whole, with the line of everything that is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.errors import InputError, Problem
from canard_pipe.pipeline.settings.keys import BY_NAME, KINDS, TABLES

PROFILES, DEFAULT_PROFILE = "profile", "default_profile"


@dataclass(frozen=True, slots=True)
class Found:
    """A value as the program uses it, and the line it stands in (None where that could not be told)."""

    value: Any
    line: int | None


@dataclass(slots=True)
class SettingsFile:
    """What one file says: settings by dotted name, and those of each profile."""

    path: Path
    values: dict[str, Found] = field(default_factory=dict)
    profiles: dict[str, dict[str, Found]] = field(default_factory=dict)
    default_profile: str | None = None
    problems: list[Problem] = field(default_factory=list)


def read_file(path: Path) -> SettingsFile | None:
    """Read and check a settings file; None if there is none. What is wrong is in ``problems``."""
    found = SettingsFile(path)
    try:
        if not path.is_file():  # /dev/null stands for no file
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found.problems.append(Problem(str(path), None, None, f"cannot be read: {error}"))
        return found
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        message = f"is not valid TOML: {error}"
        found.problems.append(Problem(str(path), int(line[1]) if line else None, None, message))
        return found
    _Check(found, _lines_of(text)).file(content)
    return found


class _Check:
    """Puts the content of one file into a SettingsFile."""

    def __init__(self, found: SettingsFile, lines: Mapping[tuple[str, ...], int]) -> None:
        self._found, self._lines = found, lines

    def file(self, content: Mapping[str, Any]) -> None:
        for name, value in content.items():
            if name == DEFAULT_PROFILE:
                if isinstance(value, str):
                    self._found.default_profile = value
                else:
                    self._refuse((name,), f"must be the name of a profile, not {value!r}")
            elif name == PROFILES:
                self._profiles(value)
            else:
                self._setting((), name, value, self._found.values, (DEFAULT_PROFILE, PROFILES))

    def _profiles(self, content: Any) -> None:
        if not isinstance(content, dict):
            self._refuse((PROFILES,), "must be tables: [profile.NAME]", f"{DEFAULT_PROFILE} names the one to use")
            return
        for profile, values in content.items():
            if not isinstance(values, dict):
                hint = f"write [profile.NAME]; {DEFAULT_PROFILE} names the one to use"
                self._refuse((PROFILES, profile), "must be a table", hint)
                continue
            into = self._found.profiles.setdefault(profile, {})
            for name, value in values.items():
                self._setting((PROFILES, profile), name, value, into, ())

    def _setting(
        self, above: tuple[str, ...], name: str, value: Any, into: dict[str, Found], also: Sequence[str]
    ) -> None:
        if name in TABLES:
            if not isinstance(value, dict):
                self._refuse((*above, name), f"is a table: [{'.'.join((*above, name))}]")
                return
            known = [key.partition(".")[2] for key in BY_NAME if key.startswith(f"{name}.")]
            for inner, inner_value in value.items():
                self._value((*above, name, inner), f"{name}.{inner}", inner_value, into, known)
        else:
            known = [key for key in BY_NAME if "." not in key]
            self._value((*above, name), name, value, into, [*known, *TABLES, *also])

    def _value(
        self, place: tuple[str, ...], name: str, value: Any, into: dict[str, Found], known: Sequence[str]
    ) -> None:
        key = BY_NAME.get(name)
        if key is None:
            hint = close_to(place[-1], known) or f"there are {', '.join(sorted(known))}"
            self._refuse(place, "is not a setting", hint)
            return
        try:
            into[name] = Found(key.checked(value), self._lines.get(place))
        except InputError as error:
            self._refuse(place, str(error), "" if key.choices else f"it is {KINDS[key.kind].words}")

    def _refuse(self, place: tuple[str, ...], message: str, hint: str = "") -> None:
        # The line of what stands deepest and is known: an inline table has no lines of its own.
        line = next((self._lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self._lines), None)
        self._found.problems.append(Problem(str(self._found.path), line, ".".join(place), message, hint))


def close_to(word: str, known: Sequence[str]) -> str:
    """Give the hint ``did you mean 'x'?``, or nothing."""
    from canard_pipe.pipeline.sheets.words import did_you_mean  # late: it needs pydantic, and most files are right

    return did_you_mean(word, known)


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Return in which line each key and table begins, for messages: tomllib does not tell.

    The text is known to be valid; only a line of a text over several lines can look like a key, and the first
    place of a key wins.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = tuple(_parts(header[1]))
            lines.setdefault(table, number)
        elif assigned := _ASSIGNMENT.match(line):
            lines.setdefault((*table, *_parts(assigned[1])), number)
    return lines


def _parts(dotted: str) -> Iterator[str]:
    for part in _PART.findall(dotted):
        yield part[1:-1] if part[0] in "\"'" else part
