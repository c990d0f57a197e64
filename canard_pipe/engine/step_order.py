"""The order of a handler's steps: what is replayed is asked for as it was saved (docs/engine.md, "Changed steps").

Each step has a place in its handler: how many different steps were asked for before it. A saved step keeps the place
that it had when it was saved. On replay places only go up, and a step that is not saved cannot stand where a saved one
stood. So steps that were swapped, put in before saved ones or given another name are found before they run; a saved
step that is not asked for any more is passed over. A step that failed and whose failure the handler caught has its
place too, and may succeed there later. Steps within steps have none: their outer step is what is replayed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from canard_pipe.engine.grants import Saved
from canard_pipe.errors import ReplayError

NOWHERE = -1  # the place of a step within a step


class StepOrder:
    """The places of one attempt at ``task_id``. ``saved`` is the claim's own: what leaves it counts no more."""

    def __init__(self, task_id: str, saved: Mapping[str, Saved]) -> None:
        self._task_id, self._saved = task_id, saved
        self._holders = {found.place: name for name, found in saved.items() if found.place != NOWHERE}
        self._places: dict[str, int] = {}
        self._next = 0
        self._last = ""  # the saved step that was replayed last

    def enter(self, name: str, *, nested: bool) -> int:
        """Return the place of the step ``name``, which is asked for now. Raises ReplayError if it is another's."""
        if name in self._places:
            return self._places[name]
        saved = self._saved.get(name)
        if nested or (saved is not None and saved.place == NOWHERE):
            return NOWHERE
        place = self._next if saved is None else saved.place
        if saved is None:
            holder = self._holders.get(place)
            if holder is not None and holder in self._saved and holder not in self._places:
                raise self._changed(name, holder, f"it was not there when {holder!r}, which stood there, was saved")
        else:
            if place < self._next:
                raise self._changed(name, name, f"it was saved before {self._last!r} and is asked for after it")
            self._last = name
        self._places[name] = place
        self._next = place + 1
        return place

    def _changed(self, name: str, first: str, how: str) -> ReplayError:
        return ReplayError(
            self._task_id, name, expected="the saved order of steps", actual="another one",
            message=(
                f"task {self._task_id}: the order of its steps has changed at {name!r}: {how}. Either put the steps "
                f"back into the order in which they were saved, or run those from {first!r} on anew "
                f"(canard-pipe retry SAMPLE --from {shlex.quote(first)})"
            ),
        )
