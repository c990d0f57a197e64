"""The status table: samples by steps, counts, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from canard_pipe.pipeline.access import View
from canard_pipe.report.commands import typed
from canard_pipe.report.items import by_map, progress
from canard_pipe.report.rows import PlanRow, Status
from canard_pipe.report.wording import (
    counted,
    duration,
    first_line,
    instant_text,
    local_time,
    parse_instant,
    states_in_words,
    urgency,
    visible,
)

STYLES = {
    "done": "green", "failed": "bold red", "blocked": "red", "cancelled": "yellow", "changed": "yellow",
    "running": "cyan", "queued": "cyan", "skipped": "dim", "retired": "dim",
}  # fmt: skip
MOST_STEP_COLUMNS = 8
MOST_REMARK = 100
MOST_STEPS_NAMED = 12
_STEP_STYLES = {"ok": "green", "running": "cyan", "failed": "bold red", "interrupted": "yellow"}


def head_lines(status: Status, view: View, now_us: int) -> list[str]:
    """Return the lines above the table: the pipeline, the counts, and whether a run is going on."""
    if not status.pipeline and view.source != "snapshot":
        return ["nothing was run here yet: start with `canard-pipe run PIPELINE SHEET`"]
    lines = [f"{status.pipeline}: {counts_line(status.counts)}", _run_line(status, view, now_us)]
    if status.steps and status.total > len(status.rows):
        lines.append(_steps_line(status.steps))
    if status.others:
        lines.append(f"this state also holds: {', '.join(status.others)} (--pipeline NAME)")
    return lines


def counts_line(counts: dict[str, dict[str, int]]) -> str:
    """Return the counts in words: ``3 samples: 1 failed, 2 done; cohort: 1 blocked``."""
    samples = counts.get("sample", {})
    parts = [f"{counted(sum(samples.values()), 'sample')}: {states_in_words(samples)}"]
    parts += [f"{kind}: {states_in_words(counts[kind])}" for kind in ("once", "cohort") if counts.get(kind)]
    return "; ".join(parts)


def status_table(rows: Sequence[PlanRow]) -> Table:
    """Return the table: one line a row, one column a step as long as the steps are few."""
    columns = _step_columns(rows)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("sample", no_wrap=True, overflow="fold")
    table.add_column("state", no_wrap=True)
    for step in columns:
        table.add_column(visible(step), no_wrap=True)
    if not columns:
        table.add_column("steps", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in rows:
        cells = [_cell(row, step) for step in columns] if columns else [Text(_progress(row))]
        table.add_row(
            Text(visible(row.label)), Text(row.state, style=STYLES.get(row.state, "")), *cells, Text(remark(row))
        )
    return table


def foot_lines(status: Status, state_option: str = "") -> list[str]:
    """Return the lines below the table: what is not shown, and what to type next."""
    lines = []
    selection = status.selection
    shown, after = len(status.rows), selection.offset + len(status.rows)
    if selection.offset and shown:
        lines.append(f"rows {selection.offset + 1} to {after} of {status.matching}")
    if after < status.matching or selection.needy:
        left = (status.total if selection.needy else status.matching) - after
        if left:
            rest = "" if selection.needy else f"--offset {after} shows the next ones, "
            order = "; those that need somebody come first" if _needy_first(status) else ""
            lines.append(f"{left} more are not shown{order} ({rest}--limit 0 all; --only STATE, --sample 'S1*' and "
                         "--step STEP choose)")  # fmt: skip
    if not shown and status.matching:
        lines.append(f"there are {status.matching} such rows: none from number {selection.offset + 1} on")
    elif not shown and selection.filters:
        lines.append("no row is like that")
    needy = [row for row in status.rows if row.state in ("failed", "blocked", "cancelled", "changed")]
    if needy:
        worst = min(needy, key=lambda row: urgency(row.state))
        lines.append(f"why: {typed('why', worst.sample, state_option=state_option)}")
    return lines


def summary_json(status: Status, view: View) -> dict[str, Any]:
    """Return the counts for machines: by kind and state, and of samples by saved step."""
    run = status.run
    return {
        "pipeline": status.pipeline or None,
        "source": view.source,
        "counts": status.counts,
        "steps": status.steps,
        "run": None if run is None else {
            "run_id": run.run_id, "host": run.host, "pid": run.pid, "started_at": instant_text(run.started_us),
            "ended_at": instant_text(run.ended_us), "exit_status": run.exit_status,
        },
        "going_on": view.source == "live",
    }  # fmt: skip


def _needy_first(status: Status) -> bool:
    selection = status.selection
    return selection.needy or (selection.order(status.total) == "state" and not selection.reverse)


def _steps_line(steps: dict[str, int]) -> str:
    shown = [f"{count} {visible(name)}" for name, count in list(steps.items())[:MOST_STEPS_NAMED]]
    more = [] if len(steps) <= len(shown) else [f"and {len(steps) - len(shown)} more steps"]
    return f"steps saved: {', '.join([*shown, *more])}"


def remark(row: PlanRow) -> str:
    """Return one sentence on why a row is where it is; empty where the state says it all."""
    if row.lost:
        return "its task is gone from the database: run the pipeline again"
    if row.state == "failed":
        return first_line(row.error, MOST_REMARK)
    if row.state == "blocked":
        return f"by {first_line(row.blocked_by, MOST_REMARK)}"
    if row.state == "skipped":
        return first_line(row.skipped_because, MOST_REMARK)
    if row.state == "changed":
        return f"changed after it was done: {first_line(row.changed_because, MOST_REMARK) or 'its input'}"
    if row.failures and row.state in ("waiting", "running"):
        return f"failed {counted(row.failures, 'time')} of {row.max_failures}: {first_line(row.error, MOST_REMARK)}"
    return ""


def _run_line(status: Status, view: View, now_us: int) -> str:
    snapshot, run = view.snapshot or {}, status.run
    if view.source == "snapshot":
        written = parse_instant(snapshot.get("written_at"))
        age = "of unknown age" if written is None else f"{duration((now_us - written) / 1e6)} old"
        whom = f"process {snapshot.get('pid')} on {snapshot.get('host')}"
        return f"a snapshot, {age}, written by {whom}; the state itself cannot be asked from here ({view.reason})"
    if view.source == "live" and run is not None:
        return f"running for {duration((now_us - run.started_us) / 1e6)} (process {run.pid} on {run.host})"
    if run is None:
        return "no run is recorded"
    if run.ended_us is None:
        return f"no run is going on; the last one, started {local_time(run.started_us)}, was interrupted"
    return f"no run is going on; the last one ended {local_time(run.ended_us)} with exit status {run.exit_status}"


def _step_columns(rows: Sequence[PlanRow]) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        if row.kind == "sample":
            found.update(dict.fromkeys(row.steps))
    for row in rows:  # a step that nobody has saved yet comes last
        if row.kind == "sample":
            found.update(dict.fromkeys(name for name in by_map(row.items) if name not in found))
            if row.now is not None:
                found.setdefault(row.now, None)
    return list(found) if len(found) <= MOST_STEP_COLUMNS else []


def _cell(row: PlanRow, step: str) -> Text:
    word = "ok" if step in row.steps else (row.now_state or "") if step == row.now else ""
    if row.kind != "sample":
        word = ""
    items = by_map(row.items).get(step, [])
    if items and word != "ok" and row.kind == "sample":
        bad = any(item.state in ("failed", "cancelled") for item in items)
        return Text(progress(items), style=_STEP_STYLES["failed" if bad else "running"])
    return Text(word, style=_STEP_STYLES.get(word, ""))


def _progress(row: PlanRow) -> str:
    saved = counted(len(row.steps), "step") if row.steps else ""
    now = f"{row.now_state or 'in'} {visible(row.now)}" if row.now else ""
    maps = [f"{visible(name)} {progress(items)}" for name, items in by_map(row.items).items() if name not in row.steps]
    return ", ".join(part for part in (saved, now, *maps) if part)
