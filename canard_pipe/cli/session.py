"""What one call of the command line knows of itself, and where the folders of a run are."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

DEFAULT_STATE = ".canard"


@dataclass(slots=True)
class Session:
    """``state`` is the state folder of the command, as soon as it is known: reports of faults go there."""

    state: Path | None = None

    def use(self, state: str) -> Folders:
        """Take the state folder that was asked for, and find the launch folder that belongs to it.

        That is the present folder, or the folder of ``.canard`` where such a state of another folder is named.
        """
        here = Path.cwd()
        self.state = Path(os.path.abspath(state))  # noqa: PTH100 - links are not followed
        elsewhere = self.state.name == DEFAULT_STATE and self.state.parent != here
        return Folders(launch=self.state.parent if elsewhere else here, state=self.state)


@dataclass(frozen=True, slots=True)
class Folders:
    """The launch folder, from which stored paths are told, and the state folder. Absolute."""

    launch: Path
    state: Path

    @property
    def state_option(self) -> str:
        """Return what has to follow commands typed here so that they find this state; nothing for the usual place."""
        here = Path.cwd()
        if self.state == here / DEFAULT_STATE:
            return ""
        relative = os.path.relpath(self.state, here)
        return f" --state {shlex.quote(str(self.state) if relative.startswith('..') else relative)}"
