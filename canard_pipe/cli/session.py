"""What one call of the command line knows of itself, and where the folders of a run are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canard_pipe.pipeline.settings.resolve import Settings

DEFAULT_STATE = ".canard"


@dataclass(slots=True)
class Session:
    """``state`` is the state folder of the command, as soon as it is known: reports of faults go there."""

    state: Path | None = None

    def use(self, state: str | None) -> Folders:
        """Take the state folder that the command line names, else the one of the settings.

        The launch folder is the present one, or the folder of ``.canard`` where such a state elsewhere is named.
        Raises SettingsError.
        """
        return self.place(self.settings()["state"] if state is None else state, named=state is not None)

    def place(self, state: str, *, named: bool) -> Folders:
        """Take this state folder; ``named``: the command line names it, not a setting."""
        self.state = absolute(state)
        return Folders(launch=_launch(self.state), state=self.state, named=named)

    def settings(self, given: Mapping[str, Any] | None = None, profile: str | None = None) -> Settings:
        """Return the settings as they count, with what the command line says in ``given``. Raises SettingsError."""
        from canard_pipe.pipeline.settings.resolve import resolve

        state = (given or {}).get("state")
        launch = Path.cwd() if state is None else _launch(absolute(state))
        return resolve(launch, os.environ, given=given, profile=profile)


def absolute(path: str) -> Path:
    """Return the absolute path of what the user has named."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - links are not followed


def _launch(state: Path) -> Path:
    here = Path.cwd()
    return state.parent if state.name == DEFAULT_STATE and state.parent != here else here


@dataclass(frozen=True, slots=True)
class Folders:
    """The launch folder, from which stored paths are told, and the state folder. Absolute.

    ``named``: the state was named on the command line, so further commands have to name it too.
    """

    launch: Path
    state: Path
    named: bool = True

    @property
    def state_option(self) -> str:
        """Return what has to follow commands typed here so that they find this state; nothing for the usual place."""
        here = Path.cwd()
        if not self.named or self.state == here / DEFAULT_STATE:
            return ""
        relative = os.path.relpath(self.state, here)
        return f" --state {shlex.quote(str(self.state) if relative.startswith('..') else relative)}"
