"""A worker over a connection: each question that does not arrive, and each answer that does not come back.

G8, S25, S26: what was asked is carried out once or not at all, that is told, and it may be asked again.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.errors import LeaseLost, OwnerUnreachable, StorageError
from tests.engine.conftest import FakeClock, Served, attempts, row
from tests.laws.scenarios import SCENARIOS, Snapshot, Stage, snapshot

# What only the owner of a file does is in test_fault_matrix.py alone, and so is what needs the owner's own functions.
OWNERS = {
    "retry", "retry from a step", "interrupt", "the clock set forward", "the clock set back", "a worker",
}
GRANTS = {"claim", "take over", "sweep before a claim"}  # what is granted in an answer that is lost
NAMES = [name for name in SCENARIOS if name not in OWNERS | GRANTS]


class Line:
    """In the place of a connection's Asking: cuts one question off, before it arrives or after it was carried out."""

    def __init__(self, asking, cut: int = 0, moment: str = "") -> None:
        self.asking, self.cut, self.moment = asking, cut, moment
        self.armed, self.asked = False, 0

    def ask(self, text: str, operation: str) -> str:
        if not self.armed:
            return self.asking.ask(text, operation)
        self.asked += 1
        if self.asked == self.cut and self.moment == "before":
            raise OwnerUnreachable("the line is cut", operation=operation, sent=False)
        answer = self.asking.ask(text, operation)
        if self.asked == self.cut:
            raise OwnerUnreachable("the line is cut", operation=operation)
        return answer

    def close(self) -> None:
        self.asking.close()


class Connected(Stage):
    """The stage of a scenario whose database is a connection, by a line that can be cut."""

    def __init__(self, folder: Path, cut: int = 0, moment: str = "") -> None:
        self.folder, self.clock, self.claims = folder, FakeClock(), list[Claim]()
        self.owner = Database(None, root=folder, clock=self.clock, pulse_seconds=None, conflict_retries=0)
        self.served = Served(self.owner, self.clock)
        self.db = cast("Database", self.served)  # what both can do is all that is asked of it
        self.line = Line(self.served._asking, cut, moment)
        self.served._asking = self.line  # type: ignore[assignment]

    def close(self) -> None:
        self.line.armed = False
        self.served.close()
        self.owner.close()


def undisturbed(folder: Path, name: str) -> tuple[int, Snapshot, Snapshot]:
    """Return how many questions a scenario asks, and what is stored before and after it."""
    stage = Connected(folder)
    try:
        SCENARIOS[name].before(stage)
        before = snapshot(stage.owner)
        stage.line.armed = True
        SCENARIOS[name].act(stage)
        return stage.line.asked, before, snapshot(stage.owner)
    finally:
        stage.close()


@pytest.mark.parametrize("name", NAMES)
def test_what_was_asked_for_is_done_once_however_the_line_is_cut(tmp_path, name):
    """S25, S26: and a lost answer is no lost lease."""
    scenario = SCENARIOS[name]
    asked, before, after = undisturbed(tmp_path, name)
    assert asked >= 1
    assert before != after
    for cut in range(1, asked + 1):
        for moment in ("before", "after"):
            stage = Connected(tmp_path, cut, moment)
            scenario.before(stage)
            stage.line.armed = True
            try:
                scenario.act(stage)
            except LeaseLost:
                pytest.fail("a lost answer is no lost lease")
            except StorageError as error:
                told = str(error)
                assert "the line is cut" in told
                assert asked > 1 or snapshot(stage.owner) == (before if moment == "before" else after)
                if scenario.may_repeat:
                    scenario.act(stage)
                    assert snapshot(stage.owner) == after
            else:
                assert snapshot(stage.owner) == after
            stage.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_claim_whose_answer_was_lost_is_given_back_and_costs_nothing(tmp_path, moment):
    """S2: the owner knows who asked; nobody here works on it."""
    stage = Connected(tmp_path, 1, moment)
    stage.db.spawn("job", None, id="t")
    stage.line.armed = True
    with pytest.raises(OwnerUnreachable) as error:
        stage.db.claim()
    assert error.value.sent == (moment == "after")
    assert row(stage.owner)["state"] == ("running" if moment == "after" else "ready")
    assert stage.served.disown() == (1 if moment == "after" else 0)
    claim = stage.db.claim()
    assert claim is not None
    assert (claim.attempt, claim.failures) == (2 if moment == "after" else 1, 0)
    claim.complete()
    assert attempts(stage.owner)[-1][1] == "completed"
    stage.close()
