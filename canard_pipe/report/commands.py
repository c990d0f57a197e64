"""What to type next, spelled so that it can be copied into a shell."""

from __future__ import annotations

import shlex


def typed(command: str, *names: str, state_option: str = "", options: str = "") -> str:
    """Return a call of canard-pipe. ``state_option`` is what every command needs to find this state, or nothing."""
    words = [f"canard-pipe {command}{state_option}", options, *(quoted(name) for name in names)]
    return " ".join(word for word in words if word)


def quoted(name: str) -> str:
    """Return a name as it has to be typed in a shell; one that begins with a dash after ``--``."""
    text = shlex.quote(name)
    return f"-- {text}" if name.startswith("-") else text
