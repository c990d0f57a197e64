"""What the doctor has found, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from canard_pipe.execution.health import FAIL, WARN, Finding
from canard_pipe.report.wording import counted, visible

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def finding_line(finding: Finding) -> str:
    """Return ``level  topic: message -> way out``."""
    out = f" -> {visible(finding.way_out)}" if finding.way_out else ""
    return f"{finding.level:<4}  {finding.topic}: {visible(finding.message)}{out}"


def verdict_line(findings: Sequence[Finding]) -> str:
    """Return the last line: how many of which level, and what that means."""
    bad = sum(finding.level == FAIL for finding in findings)
    odd = sum(finding.level == WARN for finding in findings)
    if bad:
        return f"{counted(bad, 'failure')}, {counted(odd, 'warning')}: mend the failures before a run"
    return f"{counted(odd, 'warning')}: a run can start" if odd else "all is well: a run can start"
