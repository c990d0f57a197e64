"""What failed, grouped by why: with ten thousand samples there are few causes, and each needs one look."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.execution.folders import last_lines
from canard_pipe.pipeline.access import View
from canard_pipe.report.hints import hint
from canard_pipe.report.page.tries import Tried
from canard_pipe.report.rows import PlanRow
from canard_pipe.report.wording import exit_in_words, first_line, visible

MOST_GROUPS, MOST_NAMED = 40, 12
STDERR_LINES, LONGEST_LINE = 15, 400


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows that failed of the same: kind of cause, step, how the command ended. The example is the first of them."""

    kind: str
    step: str
    ended: str
    error: str
    advice: str
    names: tuple[str, ...]
    more: int
    folder: str
    stderr: tuple[str, ...] = field(default=())

    @property
    def count(self) -> int:
        """Return how many rows failed so."""
        return len(self.names) + self.more


def read_causes(view: View, pipeline: str) -> dict[int, tuple[dict[str, Any], str]]:
    """Return the facts and the text of the last failure of each failed row, by the ``seq`` of its task."""
    return {
        seq: (json.loads(cause) if cause else {}, error or "")
        for seq, cause, error in view.query("report_causes", pipeline=pipeline)
    }


def failures(
    rows: Sequence[PlanRow], causes: Mapping[int, tuple[dict[str, Any], str]], last_bad: Mapping[int, Tried], root: Path
) -> tuple[list[Failure], int]:
    """Return the groups, the largest first, and how many there are beyond those that are returned.

    ``last_bad``: the last try of each row that did not end well. ``root``: the launch folder.
    """
    groups: dict[tuple[str, str, str], list[PlanRow]] = {}
    for row in rows:
        if row.state == "failed" and row.seq is not None:
            facts, _ = causes.get(row.seq, ({}, ""))
            tried = last_bad.get(row.seq)
            kind = str(facts.get("kind") or (tried.cause if tried else None) or "unknown")
            step = tried.label if tried else ""
            groups.setdefault((kind, step, _ended(tried)), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    made = [_failure(*key, members, causes, last_bad, root) for key, members in ordered[:MOST_GROUPS]]
    return made, max(len(ordered) - MOST_GROUPS, 0)


def _failure(
    kind: str, step: str, ended: str, members: Sequence[PlanRow], causes: Mapping[int, tuple[dict[str, Any], str]],
    last_bad: Mapping[int, Tried], root: Path,
) -> Failure:
    first = members[0]
    facts, error = causes.get(first.seq or -1, ({}, ""))
    tried = last_bad.get(first.seq or -1)
    lines = last_lines(root / tried.folder / "stderr.log", STDERR_LINES) if tried else []
    return Failure(
        kind=kind,
        step=step,
        ended=ended,
        error=first_line(error or first.error, 300),
        advice=hint(facts, tried.exit_code if tried else None, tried.signal if tried else None) or "",
        names=tuple(row.label for row in members[:MOST_NAMED]),
        more=max(len(members) - MOST_NAMED, 0),
        folder=tried.folder if tried else "",
        stderr=tuple(visible(line)[:LONGEST_LINE] for line in lines),
    )


def _ended(tried: Tried | None) -> str:
    if tried is None:
        return ""
    if (tried.exit_code, tried.signal) == (None, None):
        return tried.cause or ""
    return exit_in_words(tried.exit_code, tried.signal)
