"""What the shell offers at the TAB key: files, samples of the state, and their steps. Click does the rest."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from canard_pipe.cli.session import Folders
    from canard_pipe.pipeline.access import View

VARIABLE = "_CANARD_PIPE_COMPLETE"
SECONDS = 1.5  # nobody waits longer for a key
MOST = 500
PATH = click.Path(readable=False)
"""A file or folder: only what the shell offers comes of it, not whether it is there."""


def samples(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Offer the samples of the state, and its once and cohort functions."""
    return _offered(ctx, begun, _samples)


def steps(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Offer the steps that samples of the state have saved or stopped in."""
    return _offered(ctx, begun, _steps)


def _offered(ctx: click.Context, begun: str, read: Callable[[Folders], list[str]]) -> list[CompletionItem]:
    """Return what begins like ``begun``; nothing where the state cannot be asked at once, and never a word on it."""
    from click.shell_completion import CompletionItem

    from canard_pipe.cli.session import Session

    if os.environ.get(VARIABLE):  # a process of the shell's; a state that does not answer must not hold it
        timer = threading.Timer(SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()
    try:
        found = read(Session().use(ctx.params.get("state")))
    except Exception:  # there is nobody to tell
        return []
    return [CompletionItem(_typed(name)) for name in found if name.startswith(begun)][:MOST]


def _samples(folders: Folders) -> list[str]:
    from canard_pipe.pipeline.access import open_view, read_snapshot

    snapshot = read_snapshot(folders.state)
    if snapshot is not None and snapshot.get("samples"):
        return [str(row["sample"]) for row in snapshot["samples"]]
    with open_view(folders.state, folders.launch) as view:
        return [row[0] for row in view.query("report_names", pipeline=_pipeline(view))]


def _steps(folders: Folders) -> list[str]:
    from canard_pipe.pipeline.access import open_view

    with open_view(folders.state, folders.launch) as view:
        return [row[0] for row in view.query("report_step_names", pipeline=_pipeline(view))]


def _pipeline(view: View) -> str:
    return str(view.query("latest_run")[0][1])


def _typed(name: str) -> str:
    """Return a name as it has to be typed: zsh and fish quote what they insert, bash does not."""
    return shlex.quote(name) if os.environ.get(VARIABLE, "").startswith("bash") else name
