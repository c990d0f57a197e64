"""The end of a run in words: every sample in a named state, where the results are, what to type next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canard_pipe.report.commands import quoted, typed
from canard_pipe.report.wording import ENDED_WELL, counted, first_line, states_in_words, urgency, visible

MOST_ROWS = 20
MOST_NAMES = 5


def summary_lines(
    rows: Sequence[dict[str, Any]],
    *,
    exit_status: int,
    results: Path,
    here: Path,
    interrupted: bool,
    state_option: str = "",
) -> list[str]:
    """Return the last lines of a run.

    ``rows`` are objects with kind, sample, state and error, for all rows of the plan. ``here`` is the folder that
    paths are told from. ``state_option`` is what has to follow commands so that they find this state.
    """
    samples = [row for row in rows if row.get("kind", "sample") == "sample"]
    counts: dict[str, int] = {}
    for row in samples:
        counts[str(row["state"])] = counts.get(str(row["state"]), 0) + 1
    lines = [f"{counted(len(samples), 'sample')}: {states_in_words(counts)}"]
    bad = [row for row in rows if row["state"] not in ENDED_WELL and row["state"] != "retired"]
    bad.sort(key=lambda row: urgency(str(row["state"])))
    lines += [_row_line(row) for row in bad[:MOST_ROWS]]
    if len(bad) > MOST_ROWS:
        more = typed("status", state_option=state_option, options="--limit 0")
        lines.append(f"  and {len(bad) - MOST_ROWS} more: {more}")
    skipped = [row for row in rows if row["state"] == "skipped"]
    lines += [_row_line(row) for row in skipped[:MOST_ROWS]]
    if any(row["state"] == "done" and row.get("kind") != "once" for row in rows):
        lines.append(f"results: {_from_here(results, here)}")
    lines.append(f"exit status {exit_status}: {_meaning(exit_status, interrupted)}")
    lines += [f"next: {line}" for line in _next(bad, interrupted, state_option)]
    return lines


def _row_line(row: dict[str, Any]) -> str:
    kind = row.get("kind", "sample")
    name = visible(str(row["sample"]))
    label = name if kind == "sample" or kind == name else f"{name} ({kind})"
    reason = first_line(row.get("error") or row.get("skipped_because"))
    if row["state"] == "blocked" and row.get("blocked_by"):
        reason = f"by {first_line(row['blocked_by'])}"
    return f"  {label}: {row['state']}" + (f": {reason}" if reason else "")


def _meaning(exit_status: int, interrupted: bool) -> str:
    if interrupted or exit_status == 130:
        return "interrupted; nothing is lost, the same line goes on"
    return {
        0: "every sample, once and cohort function is done or skipped",
        1: "not everything is done",
        2: "the call, the pipeline file or the sheet is wrong; nothing ran",
        3: "the run could not go on",
    }.get(exit_status, "")


def _next(bad: Sequence[dict[str, Any]], interrupted: bool, state_option: str) -> list[str]:
    lines = []
    failed = [row for row in bad if row["state"] == "failed"]
    if failed:
        first = str(failed[0]["sample"])
        lines.append(typed("why", first, state_option=state_option))
        again = {"options": "--failed"} if len(failed) > 1 else {}
        who = [] if again else [first]
        lines.append(f"{typed('retry', *who, state_option=state_option, **again)}    (after the cause is mended)")
    if any(row["state"] == "changed" for row in bad):
        lines.append("the same line with --rerun-changed, or with --accept-changed to keep the results as they are")
    if not failed and any(row["state"] == "cancelled" for row in bad):
        names = [quoted(str(row["sample"])) for row in bad if row["state"] == "cancelled"]
        shown = names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], "..."]
        lines.append(f"canard-pipe retry{state_option} {' '.join(shown)}    (to run after all what was cancelled)")
    if interrupted and not lines:
        lines.append("the same line again")
    return lines


def _from_here(path: Path, here: Path) -> str:
    relative = os.path.relpath(path, here)
    return f"{relative}/" if not relative.startswith("..") else f"{path}/"
