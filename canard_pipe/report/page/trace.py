"""trace.tsv: one line for each try of a command, for a spreadsheet or a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from canard_pipe.report.page.tries import Tried
from canard_pipe.report.wording import instant_text, visible

COLUMNS = (
    "sample", "kind", "item", "step", "command", "attempt", "state", "cause", "exit", "signal", "executor", "job",
    "host", "cpus", "memory_asked_bytes", "memory_peak_bytes", "cpu_seconds", "read_bytes", "written_bytes",
    "submitted", "started", "ended", "seconds", "folder",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@")
"""A spreadsheet computes a cell that begins so; an apostrophe before it makes it text."""
HEAD = "\t".join(COLUMNS)


def trace_lines(tries: Iterable[Tried]) -> Iterator[str]:
    """Yield the head line, then one line a try. An empty cell is not known; instants are ISO 8601 in UTC."""
    yield HEAD
    for each in tries:
        yield "\t".join(_cell(value) for value in _values(each))


def _values(one: Tried) -> tuple[Any, ...]:
    return (
        one.sample, one.kind, one.item, one.step, one.ordinal, one.attempt, one.state, one.cause, one.exit_code,
        one.signal, one.executor, one.job_id, one.host, one.cpus, one.memory_bytes, one.peak_memory_bytes,
        one.cpu_seconds, one.read_bytes, one.written_bytes, instant_text(one.submitted_us),
        instant_text(one.started_us), instant_text(one.ended_us), one.seconds, one.folder,
    )  # fmt: skip


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if not isinstance(value, str):
        return str(value)
    text = visible(value)
    return f"'{text}" if text.startswith(FORMULA) else text
