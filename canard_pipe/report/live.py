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
MOST_STEPS = 8


class Progress:
    """How far a run is: the steps saved in it, and how long the rest may take. Safe for several threads.

    ``begun_us`` is when the run began.
    """

    def __init__(self, begun_us: int) -> None:
        self._begun_us = begun_us
        self._lock = threading.Lock()
        self._saved: dict[str, int] = {}
        self._ended_at_begin: int | None = None

    def saved(self, step: str) -> None:
        """Count a step that was saved."""
        with self._lock:
            self._saved[step] = self._saved.get(step, 0) + 1

    def seen(self, counts: dict[str, int]) -> None:
        """Take in the counts of samples by state; the first ones are those that the run has found."""
        with self._lock:
            if self._ended_at_begin is None:
                self._ended_at_begin = _finished(counts)

    def left(self, counts: dict[str, int], now_us: int) -> str:
        """Say how long the rest takes if it goes on like this; empty while that cannot be told."""
        made = _finished(counts) - (self._ended_at_begin or 0)
        rest = sum(counts.values()) - _finished(counts)
        if made <= 0 or rest <= 0:
            return ""
        return f"about {duration((now_us - self._begun_us) / 1e6 / made * rest)} left"

    def steps_line(self, running: Sequence[dict[str, Any]]) -> str:
        """Say of each step how often it was saved in this run, and how many commands of it are at work or wait."""
        with self._lock:
            saved = dict(self._saved)
        at_work: dict[str, int] = {}
        for item in running:
            if item.get("step"):
                at_work[str(item["step"])] = at_work.get(str(item["step"]), 0) + 1
        names = list(dict.fromkeys([*saved, *at_work]))
        parts = []
        for name in names[:MOST_STEPS]:
            figures = [f"{saved[name]} saved"] if name in saved else []
            figures += [f"{at_work[name]} at work"] if name in at_work else []
            parts.append(f"{visible(name)} {', '.join(figures)}")
        more = f" · and {len(names) - MOST_STEPS} more" if len(names) > MOST_STEPS else ""
        return f"steps: {' · '.join(parts)}{more}" if parts else ""


class PlainLines:
    """One line per event, each with its time: reads well in a log file and through a pipe.

    ``write`` takes one line; ``now_us`` is the wall clock. Every ``summary_seconds`` it says how far the run is.
    """

    def __init__(self, write: Callable[[str], None], now_us: NowUs, *, summary_seconds: float = 60.0) -> None:
        self._write, self._now_us = write, now_us
        self._summary_us = round(summary_seconds * 1e6)
        self._last_summary_us = now_us()
        self._lock = threading.Lock()
        self._progress = Progress(now_us())

    def planned(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._line(visible(line))

    def step(self, kind: str, sample: str, step: str) -> None:
        self._progress.saved(step)
        self._line(f"{_name(kind, sample)}: step {visible(step)} is saved")

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        self._line(ended_line(kind, sample, state, detail))

    def snapshot(self, state: dict[str, Any]) -> None:
        now_us = self._now_us()
        counts = state.get("counts") or {}
        self._progress.seen(counts)
        if now_us - self._last_summary_us >= self._summary_us and not state.get("finished"):
            self._last_summary_us = now_us
            running = state.get("running") or []
            what = ", ".join(f"{visible(str(item.get('sample')))} {item.get('step')}" for item in running[:4])
            more = f" and {len(running) - 4} more" if len(running) > 4 else ""
            parts = [states_in_words(counts), self._progress.steps_line(running), f"now {what}{more}" if what else "",
                     self._progress.left(counts, now_us)]  # fmt: skip
            self._line(f"so far: {'; '.join(part for part in parts if part)}")

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
        self._progress = Progress(now_us())
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

    def step(self, kind: str, sample: str, step: str) -> None:  # noqa: ARG002 - those of Observer
        self._progress.saved(step)

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
        self._progress.seen(state.get("counts") or {})

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
        return picture(state, failures, self._now_us(), self._begun_us, self._progress)


def picture(
    state: dict[str, Any], failures: Sequence[str], now_us: int, begun_us: int, progress: Progress
) -> Group:
    """Draw one picture of the live view from the content of status.json."""
    counts = state.get("counts") or {}
    elapsed = (now_us - begun_us) / 1e6
    head = f"{state.get('pipeline', 'starting')}  {duration(elapsed)}  {states_in_words(counts) if counts else ''}"
    left = progress.left(counts, now_us)
    head += f"  {left}" if left else ""
    parts: list[Any] = [Text(head, style="bold")]
    steps = progress.steps_line(state.get("running") or [])
    if steps:
        parts.append(Text(steps, style="dim", no_wrap=True, overflow="ellipsis"))
    running = sorted(state.get("running") or [], key=lambda item: item.get("state") != "running")
    if running:
        parts.append(_running_table(running, now_us))
        if len(running) > MOST_RUNNING:
            parts.append(Text(f"and {len(running) - MOST_RUNNING} more commands", style="dim"))
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


def _finished(counts: dict[str, int]) -> int:
    return sum(count for state, count in counts.items() if state in ENDED)


def _name(kind: str, sample: str) -> str:
    name = visible(sample)
    return name if kind in ("sample", "item", name) else f"{name} ({kind})"
