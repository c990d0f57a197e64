"""Show a run while it goes on: a live view on a terminal, one line per event elsewhere. Both are Observers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from canard_pipe.report.status import STYLES
from canard_pipe.report.wording import (
    ENDED,
    duration,
    first_line,
    local_time,
    memory,
    parse_instant,
    states_in_words,
    visible,
)

NowUs = Callable[[], int]
MOST_RUNNING = 12
MOST_FAILURES = 5


class PlainLines:
    """One line per event, each with its time: reads well in a log file and through a pipe.

    ``write`` takes one line; ``now_us`` is the wall clock. Every ``summary_seconds`` it says how far the run is.
    """

    def __init__(self, write: Callable[[str], None], now_us: NowUs, *, summary_seconds: float = 60.0) -> None:
        self._write, self._now_us = write, now_us
        self._summary_us = round(summary_seconds * 1e6)
        self._last_summary_us = now_us()
        self._lock = threading.Lock()

    def planned(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._line(visible(line))

    def step(self, kind: str, sample: str, step: str) -> None:
        self._line(f"{_name(kind, sample)}: step {visible(step)} is saved")

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        self._line(ended_line(kind, sample, state, detail))

    def snapshot(self, state: dict[str, Any]) -> None:
        now_us = self._now_us()
        if now_us - self._last_summary_us >= self._summary_us and not state.get("finished"):
            self._last_summary_us = now_us
            running = state.get("running") or []
            what = ", ".join(f"{visible(str(item.get('sample')))} {item.get('step')}" for item in running[:4])
            more = f" and {len(running) - 4} more" if len(running) > 4 else ""
            self._line(
                f"so far: {states_in_words(state.get('counts') or {})}" + (f"; now {what}{more}" if what else "")
            )

    def note(self, text: str) -> None:
        self._line(visible(text))

    def event(self, name: str, facts: dict[str, Any]) -> None:
        """Nothing: it is for machines."""

    def close(self) -> None:
        """End the view; there is nothing to take away."""

    def _line(self, text: str) -> None:
        with self._lock:
            self._write(f"{local_time(self._now_us())}  {text}")


class LiveView:
    """A view that is drawn again twice a second: counts, running commands with time and memory, last failures, ETA.

    What happens is also printed above it as lines, except saved steps: those are seen in the table.
    """

    def __init__(self, console: Console, now_us: NowUs, *, lines: bool = True) -> None:
        self._console, self._now_us, self._lines = console, now_us, lines
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {}
        self._failures: deque[str] = deque(maxlen=MOST_FAILURES)
        self._begun_us = now_us()
        self._done_at_begin: int | None = None
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            refresh_per_second=2,
            transient=True,
            redirect_stderr=True,
        )
        self._live.start()

    def planned(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(Text(visible(line)))

    def step(self, kind: str, sample: str, step: str) -> None:
        pass

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        line = ended_line(kind, sample, state, detail)
        if state == "failed":
            with self._lock:
                self._failures.append(line)
        if self._lines:
            self._console.print(Text(line, style=STYLES.get(state, "") if state != "done" else ""))

    def snapshot(self, state: dict[str, Any]) -> None:
        with self._lock:
            self._state = state
            if self._done_at_begin is None:
                self._done_at_begin = _finished(state.get("counts") or {})

    def note(self, text: str) -> None:
        self._console.print(Text(visible(text), style="yellow"))

    def event(self, name: str, facts: dict[str, Any]) -> None:
        """Nothing: it is for machines."""

    def close(self) -> None:
        """Take the view off the screen."""
        self._live.stop()

    def _picture(self) -> Group:
        with self._lock:
            state, failures = self._state, list(self._failures)
        now_us = self._now_us()
        return picture(state, failures, now_us, self._begun_us, self._done_at_begin or 0)


def picture(state: dict[str, Any], failures: Sequence[str], now_us: int, begun_us: int, done_at_begin: int) -> Group:
    """Draw one picture of the live view from the content of status.json."""
    counts = state.get("counts") or {}
    total = sum(counts.values())
    finished = _finished(counts)
    elapsed = (now_us - begun_us) / 1e6
    head = f"{state.get('pipeline', 'starting')}  {duration(elapsed)}  {states_in_words(counts) if counts else ''}"
    left = total - finished
    made = finished - done_at_begin
    if made > 0 and left > 0:
        head += f"  about {duration(elapsed / made * left)} left"
    parts: list[Any] = [Text(head, style="bold")]
    running = sorted(state.get("running") or [], key=lambda item: item.get("state") != "running")
    if running:
        parts.append(_running_table(running, now_us))
        if len(running) > MOST_RUNNING:
            parts.append(Text(f"and {len(running) - MOST_RUNNING} more commands", style="dim"))
    steps = _steps_line(running)
    if steps:
        parts.append(Text(steps, style="dim"))
    parts += [Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in failures]
    return Group(*parts)


def ended_line(kind: str, sample: str, state: str, detail: str) -> str:
    """Say on one line that a sample, once or cohort function has come to a state."""
    reason = first_line(detail)
    word = "failed, is tried again" if state == "waiting" and reason else state
    return f"{_name(kind, sample)}: {word}" + (f": {reason}" if reason else "")


def _running_table(running: Sequence[dict[str, Any]], now_us: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in ("sample", "step", "time", "memory"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("time", "memory") else "left")
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)  # takes what the others leave
    for item in running[:MOST_RUNNING]:
        started = parse_instant(item.get("started_at"))
        table.add_row(
            Text(visible(str(item.get("sample") or ""))),
            Text(visible(" ".join(str(item[name]) for name in ("item", "step") if item.get(name)))),
            _since(item, started, now_us),
            "" if item.get("memory_bytes") is None else memory(item["memory_bytes"]),
            Text(_job(item) + first_line(str(item.get("command") or "")), style="dim"),
        )
    return table


def _job(item: dict[str, Any]) -> str:
    return f"job {item['job_id']}: " if item.get("job_id") else ""


def _since(item: dict[str, Any], started: int | None, now_us: int) -> str:
    if item.get("state") == "waiting":
        return "waits"  # for its share of cpus and memory
    since = "" if started is None else duration((now_us - started) / 1e6)
    return f"queued {since}" if item.get("state") == "queued" else since


def _steps_line(running: Sequence[dict[str, Any]]) -> str:
    by_step: dict[str, int] = {}
    for item in running:
        step = visible(str(item.get("step") or ""))
        by_step[step] = by_step.get(step, 0) + 1
    if len(running) <= MOST_RUNNING:
        return ""
    return "running by step: " + ", ".join(f"{count} {step}" for step, count in by_step.items())


def _finished(counts: dict[str, int]) -> int:
    return sum(count for state, count in counts.items() if state in ENDED)


def _name(kind: str, sample: str) -> str:
    name = visible(sample)
    return name if kind in ("sample", "item", name) else f"{name} ({kind})"
