"""What a run tells while it goes on, to whoever shows it: the live view, a log file, a test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Observer(Protocol):
    """Told of a run's events, after they are durable. Called from several threads; must not raise and be quick.

    ``kind`` is once, sample, cohort or item; ``sample`` the sample's ID as typed, or the name of a once or cohort
    function, of an item that of its sample with its path, ``A/align/L1``.
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

    def event(self, name: str, facts: dict[str, Any]) -> None:
        """Something that only machines want to know, such as the start of a command; see docs/events.md."""


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

    def event(self, name: str, facts: dict[str, Any]) -> None:
        pass


class Several:
    """Tells several observers; one that fails is told no more, the others are."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = tuple(Guarded(observer) for observer in observers)

    def planned(self, lines: Sequence[str]) -> None:
        for observer in self._observers:
            observer.planned(lines)

    def step(self, kind: str, sample: str, step: str) -> None:
        for observer in self._observers:
            observer.step(kind, sample, step)

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        for observer in self._observers:
            observer.ended(kind, sample, state, detail)

    def snapshot(self, state: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.snapshot(state)

    def note(self, text: str) -> None:
        for observer in self._observers:
            observer.note(text)

    def event(self, name: str, facts: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.event(name, facts)


class Guarded:
    """An observer that never raises: after the first error of the one within, nobody is told any more.

    The reader of a run's output may go away (a closed terminal, ``| head``, a full disk): the run goes on.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer: Observer = observer

    def planned(self, lines: Sequence[str]) -> None:
        self._tell(lambda observer: observer.planned(lines))

    def step(self, kind: str, sample: str, step: str) -> None:
        self._tell(lambda observer: observer.step(kind, sample, step))

    def ended(self, kind: str, sample: str, state: str, detail: str) -> None:
        self._tell(lambda observer: observer.ended(kind, sample, state, detail))

    def snapshot(self, state: dict[str, Any]) -> None:
        self._tell(lambda observer: observer.snapshot(state))

    def note(self, text: str) -> None:
        self._tell(lambda observer: observer.note(text))

    def event(self, name: str, facts: dict[str, Any]) -> None:
        self._tell(lambda observer: observer.event(name, facts))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        try:
            tell(self._observer)
        except Exception as error:
            log.warning("the run's progress is no longer shown: %s", error)
            self._observer = Silent()
