"""What ``clean`` says: how much of what may go, then the folders, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canard_pipe.pipeline import cleaning
from canard_pipe.pipeline.cleaning import Removable
from canard_pipe.report.commands import typed
from canard_pipe.report.wording import counted, size, visible

MOST_ROWS = 40
WORDS = {
    cleaning.FINISHED: "tries of finished samples",
    cleaning.FAILED: "old failed tries",
    cleaning.ORPHAN: "tries of tasks that are gone",
    cleaning.STAGING: "left-overs of publishing",
}


def clean_lines(found: Sequence[Removable], launch: Path, freed: int | None, state_option: str = "") -> list[str]:
    """Return the lines of ``clean``; ``freed`` is how many bytes its removal has freed, None where it is a list."""
    if not found:
        return ["nothing may go"]
    lines = []
    for why, words in WORDS.items():
        of_kind = [each for each in found if each.why == why]
        if of_kind:
            lines.append(f"{size(sum(each.size for each in of_kind)):>8}  {words} ({counted(len(of_kind), 'folder')})")
    lines.append("")
    for each in sorted(found, key=lambda each: -each.size)[:MOST_ROWS]:
        shown = each.folder.relative_to(launch) if each.folder.is_relative_to(launch) else each.folder
        lines.append(f"{size(each.size):>8}  {visible(each.sample)}  {visible(str(shown))}")
    if len(found) > MOST_ROWS:
        lines.append(f"and {len(found) - MOST_ROWS} more (--json shows all)")
    if freed is None:
        lines += ["", f"nothing was removed; to do so: {typed('clean', state_option=state_option, options='--yes')}"]
    else:
        lines += ["", f"removed; {size(freed)} freed"]
    return lines
