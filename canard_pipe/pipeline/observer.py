"""What a run tells while it goes on, to whoever shows it: the live view, a log file, a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Observer(Protocol):
    """Told of a run's events, after they are durable. Called from several threads; must not raise and be quick.

    ``kind`` is once, sample or cohort; ``sample`` the sample's ID as typed, or the name of a once or cohort function.
    """

    def planned(self, lines: Sequence[str]) -> None:
        """The plan is made: what is new, changed, done, retired, a line each."""

    def step(self, kind: str, sample: str, step: str) -> None:
        """A step was saved."""

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        """A sample, once or cohort function has come to ``state``.

        ``state`` is an end state, or ``waiting`` after a failure that is tried again; ``detail`` says why, as with
        failed and skipped, and is empty otherwise.
        """

    def snapshot(self, state: dict[str, Any]) -> None:
        """The state as a whole, every few seconds: the content of status.json."""

    def note(self, text: str) -> None:
        """Something else that the user should know, one sentence."""


class Silent:
    """An observer that tells nobody."""

    def planned(self, lines: Sequence[str]) -> None:
        pass

    def step(self, kind: str, sample: str, step: str) -> None:
        pass

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        pass

    def snapshot(self, state: dict[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        pass
