"""Which rows of the plan are wanted, and in what order: filters, sort and page of ``status``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canard_pipe.report.wording import urgency

if TYPE_CHECKING:
    from canard_pipe.report.rows import PlanRow

EVERY = 2**31 - 1
SORTS = ("sheet", "state", "sample", "failures", "recent")
AT_WORK = ("running", "queued")
NEEDY = ("failed", "blocked", "cancelled", "changed", *AT_WORK)
"""States of rows that somebody wants to see without asking."""


@dataclass(frozen=True, slots=True)
class Selection:
    """``samples`` are names or patterns; ``step`` is where rows are at now, or have stopped; ``needy``: only rows that
    have not ended well, are at work, or have failed before, where there are more than ``limit``.

    ``sort`` is one of SORTS, None the order of the sheet unless the rows are more than ``limit``: then those that need
    somebody come first. ``offset`` rows are left out, then ``limit`` taken.
    """

    states: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    step: str | None = None
    needy: bool = False
    sort: str | None = None
    reverse: bool = False
    offset: int = 0
    limit: int = EVERY

    @property
    def filters(self) -> bool:
        """Whether somebody has asked for certain rows."""
        return bool(self.states or self.samples or self.step)

    def order(self, total: int) -> str:
        """Return the order of rows, of which there are ``total`` in all."""
        return self.sort or ("state" if total > self.limit and not self.filters else "sheet")

    def page(self, rows: Sequence[PlanRow]) -> tuple[PlanRow, ...]:
        """Return this page of rows that are filtered and sorted."""
        return tuple(rows[self.offset : self.offset + self.limit])

    def apply(self, rows: Sequence[PlanRow]) -> tuple[list[PlanRow], int]:
        """Filter, sort and cut rows that did not come from SQL; return them, and how many there were before the cut.

        ``samples`` are names here.
        """
        wanted = set(self.samples)
        found = [
            row for row in rows
            if (not self.states or row.state in self.states)
            and (not wanted or row.sample in wanted)
            and (self.step is None or row.now == self.step)
            and (not self.needy or row.state in NEEDY or row.failures)
        ]  # fmt: skip
        order = self.order(len(rows))
        if order == "state":
            found.sort(key=lambda row: urgency(row.state))
        elif order == "sample":
            found.sort(key=lambda row: row.sample)
        if self.reverse:
            found.reverse()
        return list(self.page(found)), len(found)


EVERYTHING = Selection()
