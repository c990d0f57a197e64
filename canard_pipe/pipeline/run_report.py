"""How a run ended, or what a dry run would do: for the exit status, the summary and machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canard_pipe.pipeline.cohorts import SampleState
from canard_pipe.pipeline.planning import Plan

GOOD_ENDS = ("done", "skipped")
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended. ``exit_status`` is 0, 1 or 130; ``counts`` are of samples by state; ``samples`` have one
    object per row of the plan, with its ID as typed under ``sample``."""

    exit_status: int
    counts: dict[str, int]
    samples: list[dict[str, Any]]
    results: Path
    interrupted: bool


def report_of(states: Sequence[SampleState], results: Path, *, interrupted: bool) -> RunReport:
    """Return the report of a run that has ended with its rows in these states."""
    done = all(row.state in GOOD_ENDS for row in states if row.state != "retired")
    return RunReport(
        exit_status=INTERRUPTED if interrupted else 0 if done else 1,
        counts=dict(Counter(row.state for row in states if row.kind == "sample")),
        samples=[
            {
                "sample": row.key,
                "kind": row.kind,
                "state": row.state,
                "error": row.error,
                "skipped_because": row.skipped_because,
                "blocked_by": row.blocked_by,
                "attempt": row.attempt,
                "failures": row.failures,
                "line": row.line,
            }
            for row in states
        ],
        results=results,
        interrupted=interrupted,
    )


def report_of_plan(plan: Plan, states: Sequence[SampleState], results: Path) -> RunReport:
    """Return the report of a dry run: ``state`` is that of now, null for a new row; ``plan`` says what would be."""
    now = {(row.kind, row.key): row.state for row in states}
    samples = [
        {
            "sample": each.key,
            "kind": each.kind,
            "state": now.get((each.kind, each.key)),
            "plan": each.what,
            "because": each.because,
        }
        for each in plan.decisions
    ]
    return RunReport(0, plan.counts(), samples, results, interrupted=False)
