"""Words and numbers for people: times, sizes, states; and text made safe for a terminal."""

from __future__ import annotations

import datetime
import re

STATES = (
    "failed", "blocked", "cancelled", "changed", "running", "queued", "waiting", "skipped", "done", "retired",
)  # fmt: skip
"""The states of samples; those that need somebody first."""

ENDED_WELL = frozenset({"done", "skipped"})
ENDED = ENDED_WELL | {"failed", "cancelled", "blocked", "changed", "retired"}
"""States that a run leaves as they are, unless somebody asks for a retry."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return ``text`` on one line, with control characters (and those that turn the direction) spelled out."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def first_line(text: str | None, longest: int = 160) -> str:
    """Return the first line that says something; one longer than ``longest`` characters is cut in its middle.

    What happened is said at the beginning of a message or, after a long command, at its end.
    """
    line = next((line.strip() for line in (text or "").splitlines() if line.strip()), "")
    line = visible(line)
    if len(line) <= longest:
        return line
    tail = longest // 2
    return f"{line[: longest - tail - 1].rstrip()}…{line[-tail:].lstrip()}"


def duration(seconds: float) -> str:
    """Spell a duration: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def size(amount: float | None) -> str:
    """Spell a number of bytes: ``12 kB`` is 12,000 bytes."""
    if amount is None:
        return "?"
    if amount < 1000:
        return f"{amount:.0f} B"
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def memory(amount: float) -> str:
    """Spell memory in units of 1024, as options do: ``512 MiB``, ``4 GiB``."""
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1023.5:
            return f"{amount:.0f} {unit}" if amount >= 10 or amount == int(amount) else f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def local_time(us: int | None) -> str:
    """Return an instant (microseconds since 1970) as local date and time to the second."""
    if us is None:
        return "?"
    return datetime.datetime.fromtimestamp(us // 1_000_000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def instant_text(us: int | None) -> str | None:
    """Return an instant as ISO text in UTC, for machines."""
    if us is None:
        return None
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
    return moment.isoformat()


def parse_instant(given: object) -> int | None:
    """Return the microseconds since 1970 of an ISO text (or of such a number itself); None if it is neither."""
    if isinstance(given, int):
        return given
    try:
        moment = datetime.datetime.fromisoformat(str(given))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1_000_000)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 sample``, ``2 samples``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def urgency(state: str) -> int:
    """Return the place of a state among those that need somebody first."""
    return STATES.index(state) if state in STATES else len(STATES)


def states_in_words(counts: dict[str, int]) -> str:
    """Return counts by state, such as ``1 failed, 3 done``; those that need somebody first."""
    known = [(state, counts[state]) for state in STATES if counts.get(state)]
    other = [(state, count) for state, count in counts.items() if state not in STATES and count]
    return ", ".join(f"{count} {state}" for state, count in [*known, *other]) or "none"


def exit_in_words(exit_code: int | None, signal: str | None) -> str:
    """Say how a command ended: by signal (by name) or exit code, with what a shell's 128 + n means."""
    if signal:
        return f"ended by {signal}{_SIGNALS.get(signal, '')}"
    if exit_code is None:
        return "no exit code"
    if exit_code == 0:
        return "exit code 0"
    meaning = _EXIT_CODES.get(exit_code, "")
    return f"exit code {exit_code}{meaning}"


_SIGNALS = {
    "SIGKILL": " (killed from outside: mostly out of memory)",
    "SIGSEGV": " (the program crashed)",
    "SIGABRT": " (the program gave up by itself)",
    "SIGBUS": " (the program crashed; a full disk or a file that shrank can do that)",
    "SIGILL": " (the program was built for another processor)",
    "SIGXCPU": " (over its limit of processor time)",
    "SIGXFSZ": " (over the limit of file size)",
    "SIGPIPE": " (the next program of the pipe ended first)",
}
_EXIT_CODES = {
    126: " (found, but it cannot be executed)",
    127: " (a program was not found)",
    134: " (SIGABRT: the program gave up by itself)",
    137: " (SIGKILL: killed from outside, mostly out of memory)",
    139: " (SIGSEGV: the program crashed)",
    141: " (SIGPIPE: the next program of the pipe ended first)",
    143: " (SIGTERM: asked to end from outside)",
}
