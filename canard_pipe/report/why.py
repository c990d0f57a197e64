"""Why a sample is in its state: cause, command, logs, history, and what happens next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.execution.folders import last_lines
from canard_pipe.pipeline.access import View
from canard_pipe.report.commands import typed
from canard_pipe.report.hints import hint
from canard_pipe.report.items import by_map, in_words, telling
from canard_pipe.report.rows import PlanRow, RunRow, find_row
from canard_pipe.report.wording import (
    counted,
    duration,
    exit_in_words,
    first_line,
    instant_text,
    local_time,
    memory,
    parse_instant,
    size,
    visible,
)

STDERR_LINES = 15
MADE = ("done", "skipped", "changed", "retired")  # an earlier failure is history, not the cause of these
MOST_HISTORY = 12
MOST_ITEMS = 5


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a command, as recorded. ``folder`` is absolute."""

    task_attempt: int
    step: str
    ordinal: int
    number: int
    folder: Path
    command: str
    state: str
    cause: str | None
    exit_code: int | None
    signal: str | None
    peak_memory_bytes: int | None
    memory_bytes: int | None
    time_seconds: float | None
    host: str | None
    started_us: int | None
    ended_us: int | None
    archived: bool

    def ended_in_words(self) -> str:
        """Say how the command ended, for people."""
        if self.cause == "timeout":
            limit = "" if self.time_seconds is None else f" of {duration(self.time_seconds)}"
            return f"ended since it ran longer than its time{limit}"
        if self.cause == "oom" and (self.signal, self.exit_code) == (None, None):
            return f"ended since it used more than its memory of {memory(self.memory_bytes or 0)}"
        return exit_in_words(self.exit_code, self.signal)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of the task, as recorded."""

    number: int
    worker: str
    started_us: int
    ended_us: int
    outcome: str
    error: str | None
    cause: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that ``why`` says of one row, before it is put into words."""

    row: PlanRow
    run: RunRow | None
    attempts: tuple[Attempt, ...]
    tries: tuple[Try, ...]
    outputs: tuple[tuple[str, str, int], ...]
    needs: tuple[tuple[str, str, str, int, str], ...]
    running: dict[str, Any] | None
    live: bool
    stderr: tuple[str, ...]
    failed_try: Try | None
    failure: Attempt | None
    root: Path
    items: tuple[Explanation, ...] = ()

    @property
    def cause(self) -> dict[str, Any]:
        """Return the facts of the last failure."""
        return self.failure.cause if self.failure is not None else {}

    def folder_of_failure(self, attempt: Attempt) -> Path | None:
        """Return the folder of an attempt's failed command, unless it is told above as the cause of the state."""
        if attempt is self.failure and self.row.state not in MADE:
            return None
        return self.root / str(attempt.cause["folder"]) if attempt.cause.get("folder") else None


def explain(view: View, name: str, *, stderr_lines: int = STDERR_LINES) -> Explanation:
    """Gather what is known of the row called ``name``. Raises InputError if there is none."""
    run, row = find_row(view, name)
    return _explained(view, run, row, stderr_lines)


def _explained(view: View, run: RunRow | None, row: PlanRow, stderr_lines: int) -> Explanation:
    if row.seq is None:
        attempts, tries, outputs = [], [], []
    else:
        attempts = [
            Attempt(*(*found[:6], json.loads(found[6]) if found[6] else {}))
            for found in view.query("report_attempts", seq=row.seq)
        ]
        tries = _tries(view, row.seq)
        outputs = view.query("report_outputs", seq=row.seq)
    needs = view.query("report_prerequisites", pipeline=run.pipeline if run else "", kind=row.kind, key=row.sample)
    failure = next((attempt for attempt in reversed(attempts) if attempt.outcome in ("failed", "expired")), None)
    failed_try = _failed_try(view, failure, tries)
    running = _running(view, row)
    log = failed_try.folder / "stderr.log" if failed_try is not None else None
    return Explanation(
        row,
        run,
        tuple(attempts),
        tuple(tries),
        tuple(outputs),
        tuple(needs),
        running,
        view.source == "live",
        tuple(last_lines(log, stderr_lines, 65_536)) if log is not None else (),
        failed_try,
        failure,
        view.root,
        tuple(_explained(view, run, row.of_item(item), stderr_lines) for item in telling(row.items, MOST_ITEMS)),
    )


def why_lines(found: Explanation, now_us: int, state_option: str = "") -> list[str]:
    """Put an explanation into words. ``state_option`` has to follow commands so that they find this state."""
    row = found.row
    lines = [f"{visible(row.label)} is {row.state}{_because(row)}", *_next_lines(found, now_us, state_option)]
    if row.lost:
        lines.append("the plan names a task that is gone from the database: the same run again makes it anew")
    if row.steps:
        lines += ["", f"saved steps: {', '.join(map(visible, row.steps))}"]
    if found.running is not None:
        lines += ["", *_running_lines(found.running, now_us)]
    if found.failure is not None and row.state not in MADE:
        lines += ["", *_failure_lines(found)]
    lines += _items_lines(found, now_us)
    if found.outputs and row.state in ("done", "changed", "retired"):
        lines += ["", "published:", *(f"  {visible(target)}  {size(bytes_)}" for target, _, bytes_ in found.outputs)]
    if found.attempts:
        lines += ["", "attempts:", *_history_lines(found)]
    return lines


def _items_lines(found: Explanation, now_us: int) -> list[str]:
    open_maps = {name: items for name, items in by_map(found.row.items).items() if name not in found.row.steps}
    if not open_maps:
        return []
    lines = ["", *(in_words(name, items) for name, items in open_maps.items())]
    for item in found.items:
        row = item.row
        lines += ["", f"item {visible(row.sample)} is {row.state}{_because(row)}"]
        if item.running is not None:
            lines += [f"  {line}" for line in _running_lines(item.running, now_us)]
        if item.failure is not None:
            lines += [f"  {line}" for line in _failure_lines(item)]
    failed = sum(item.state == "failed" for item in found.row.items)
    if failed > MOST_ITEMS:
        lines += ["", f"{failed - MOST_ITEMS} more failed items are not told here: see canard-pipe status --json"]
    return lines


def why_json(found: Explanation, now_us: int) -> dict[str, Any]:
    """Return an explanation as one object for machines."""
    failed = found.failed_try
    return found.row.as_json() | {
        "sample": found.row.sample,
        "next": " ".join(_next_lines(found, now_us)).removeprefix("next: "),
        "cause": found.cause or None,
        "command": failed.command if failed else None,
        "exit_code": failed.exit_code if failed else found.cause.get("exit_code"),
        "signal": failed.signal if failed else found.cause.get("signal"),
        "folder": str(failed.folder) if failed else found.cause.get("folder"),
        "stderr": list(found.stderr),
        "hint": hint(found.cause, failed.exit_code if failed else None, failed.signal if failed else None),
        "running": found.running,
        "published": [{"target": target, "state": state, "size": bytes_} for target, state, bytes_ in found.outputs],
        "attempts": [
            {"attempt": attempt.number, "outcome": attempt.outcome, "error": attempt.error,
             "cause": attempt.cause or None,
             "worker": attempt.worker, "started_at": instant_text(attempt.started_us),
             "ended_at": instant_text(attempt.ended_us)}
            for attempt in found.attempts
        ],
        "items": [
            item.as_json() | _item_json(next((each for each in found.items if each.row.seq == item.seq), None))
            for item in found.row.items
        ],
        "commands": [
            {"step": each.step, "attempt": each.number, "state": each.state, "cause": each.cause,
             "exit_code": each.exit_code, "signal": each.signal, "command": each.command, "folder": str(each.folder),
             "peak_memory_bytes": each.peak_memory_bytes}
            for each in found.tries
        ],
    }  # fmt: skip


def _item_json(found: Explanation | None) -> dict[str, Any]:
    if found is None:
        return {}
    failed = found.failed_try
    return {
        "cause": found.cause or None,
        "command": failed.command if failed else None,
        "exit_code": failed.exit_code if failed else found.cause.get("exit_code"),
        "signal": failed.signal if failed else found.cause.get("signal"),
        "folder": str(failed.folder) if failed else found.cause.get("folder"),
        "stderr": list(found.stderr),
        "running": found.running,
    }


def _because(row: PlanRow) -> str:
    if row.state == "failed":
        return f" after {counted(row.failures or 0, 'failure')}"
    if row.state == "blocked":
        return f" by {first_line(row.blocked_by)}"
    if row.state == "skipped":
        return f": {first_line(row.skipped_because)}"
    if row.state == "changed" and row.changed_because:
        return f": {first_line(row.changed_because)}"
    if row.failures and row.state in ("done", "changed", "retired", "cancelled"):
        return f" after {counted(row.failures, 'failure')}"
    if row.failures:
        return f", {counted(row.failures, 'failure')} of {row.max_failures} so far"
    return ""


def _next_lines(found: Explanation, now_us: int, state_option: str = "") -> list[str]:
    row = found.row
    retry = typed("retry", row.sample, state_option=state_option)
    again = "" if found.live else " as soon as a run is going on"
    if row.state == "failed":
        return [f"next: nothing by itself. Mend the cause, then: {retry}"]
    if row.state == "cancelled":
        return [f"next: nothing by itself. To run it after all: {retry}"]
    if row.state == "blocked":
        return ["next: goes on by itself when what blocks it is done or skipped", *_needs_lines(found)]
    if row.state == "changed":
        return [
            "next: its results are kept as they are. The same run with --rerun-changed makes them anew, with "
            "--accept-changed it keeps them and says no more"
        ]
    if row.state == "retired":
        return ["next: nothing; it is no longer in the sheet, its results are kept"]
    if row.state == "running":
        return [
            "next: its attempt goes on"
            if found.live
            else "next: was running when the run ended; goes on with the next run"
        ]
    if row.state == "queued":
        return ["next: goes on by itself when its job has ended" + again]
    if row.state == "waiting":
        wait_us = (row.available_us or 0) - now_us
        if row.seq is None or _unfinished(found):
            return [f"next: starts by itself{again} when what it needs is there", *_needs_lines(found)]
        if wait_us > 0 and row.failures:
            return [f"next: is tried again in {duration(wait_us / 1e6)}{again}"]
        return [f"next: is run{again}" + (" when a slot is free" if found.live else "")]
    return ["next: nothing, it is complete"]


def _unfinished(found: Explanation) -> bool:
    return any(state not in ("done", "skipped", "retired") for _, _, state, _, _ in found.needs)


def _needs_lines(found: Explanation) -> list[str]:
    lines = []
    for function, kind, state, count, example in found.needs:
        if state in ("done", "skipped", "retired"):
            continue
        what = f"{count} samples, such as {visible(example)}" if kind == "sample" and count > 1 else visible(example)
        lines.append(f"  needs {function}: {what}: {state}")
    return lines


def _failure_lines(found: Explanation) -> list[str]:
    failure, failed, cause = found.failure, found.failed_try, found.cause
    lines = []
    if failure is not None:
        message = (failure.error or "").strip().splitlines() or ["no message"]
        lines.append(f"cause: {visible(message[0])}")
        if "folder" not in cause:  # else what follows says it
            lines += [f"       {visible(line)}" for line in message[1:12]]
    if cause.get("kind"):
        lines.append(": ".join(visible(str(each)) for each in ("kind", cause["kind"], cause.get("evidence")) if each))
    if cause.get("where"):
        lines.append(f"raised: {cause.get('type', '')} at {visible(str(cause['where']))}")
    if failed is not None:
        lines += [
            f"step: {visible(failed.step or '(outside of any step)')}",
            f"command: {visible(failed.command)}",
            f"ended: {failed.ended_in_words()}{_used(failed)}",
            f"folder: {failed.folder}",
        ]
        if found.stderr:
            lines += ["last lines of stderr:", *(f"  | {line}" for line in found.stderr)]
        else:
            lines.append("stderr: nothing was written")
    elif cause.get("folder"):
        lines.append(f"folder: {cause['folder']}")
    advice = hint(cause, failed.exit_code if failed else None, failed.signal if failed else None)
    if advice:
        lines.append(f"hint: {advice}")
    return lines


def _used(failed: Try) -> str:
    parts = []
    if failed.started_us is not None and failed.ended_us is not None:
        parts.append(f"after {duration((failed.ended_us - failed.started_us) / 1e6)}")
    if failed.peak_memory_bytes:
        asked = f" of {memory(failed.memory_bytes)} asked for" if failed.memory_bytes else ""
        parts.append(f"at most {memory(failed.peak_memory_bytes)} of memory{asked}")
    if failed.host:
        parts.append(f"on {failed.host}")
    return f", {', '.join(parts)}" if parts else ""


def _running_lines(running: dict[str, Any], now_us: int) -> list[str]:
    started = parse_instant(running.get("started_at"))
    since = "" if started is None else f" for {duration((now_us - started) / 1e6)}"
    waits = " (waits for its share of cpus and memory)" if running.get("state") == "waiting" else ""
    if running.get("state") == "queued":
        waits = " (waits in Slurm)" if running.get("job_id") else " (waits to be submitted to Slurm)"
    lines = [f"now in step {visible(str(running.get('step')))}{since}{waits}"]
    if running.get("job_id"):
        lines.append(f"job: {running['job_id']}")
    if running.get("command"):
        lines.append(f"command: {visible(str(running['command']))}")
    if running.get("folder"):
        lines.append(f"folder: {running['folder']}")
    return lines


def _history_lines(found: Explanation) -> list[str]:
    shown: Sequence[Attempt] = found.attempts[-MOST_HISTORY:]
    lines = []
    if len(shown) < len(found.attempts):
        lines.append(f"  {len(found.attempts) - len(shown)} earlier ones are not shown (--json shows all)")
    for attempt in shown:
        took = duration((attempt.ended_us - attempt.started_us) / 1e6)
        error = f": {first_line(attempt.error)}" if attempt.error and attempt.outcome in ("failed", "expired") else ""
        lines.append(f"  {attempt.number}. {local_time(attempt.started_us)}  {attempt.outcome} after {took}{error}")
        folder = found.folder_of_failure(attempt)
        if folder is not None:
            lines += [f"     folder: {folder}", *(f"     | {line}" for line in last_lines(folder / "stderr.log", 1))]
    return lines


def _tries(view: View, seq: int) -> list[Try]:
    return [Try(*(*found[:4], view.root / found[6], *found[7:])) for found in view.query("report_jobs", seq=seq)]


def _failed_try(view: View, failure: Attempt | None, tries: Sequence[Try]) -> Try | None:
    if failure is None:
        return None
    named = failure.cause.get("folder")
    for each in reversed(tries):
        if named is not None and each.folder == view.root / named:
            return each
    if named is not None:
        return None
    return next(
        (each for each in reversed(tries)
         if each.task_attempt == failure.number and (each.state != "done" or each.exit_code not in (0, None))),
        None,
    )  # fmt: skip


def _running(view: View, row: PlanRow) -> dict[str, Any] | None:
    if view.source != "live" or not row.at_work:
        return None
    running = (view.snapshot or {}).get("running") or []
    return next((dict(item) for item in running if item.get("task_id") == row.task_id), None)
