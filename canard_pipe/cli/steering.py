"""retry, cancel and backup: asked of the living run, else done here."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH, samples, steps
from canard_pipe.cli.options import events_option, json_option, state_option
from canard_pipe.cli.session import Folders, Session, absolute

if TYPE_CHECKING:
    from canard_pipe.pipeline.access import Answer

BACKUP_SECONDS = 600.0


@click.command(short_help="Run failed or cancelled samples again, and what depends on them.")
@click.argument("samples", metavar="SAMPLE...", nargs=-1, shell_complete=samples)
@click.option("--failed", is_flag=True, help="Every sample, once and cohort function that failed.")
@click.option(
    "--from", "from_step", metavar="STEP", shell_complete=steps,
    help="Make this step and those after it anew; earlier ones are kept."
)
@click.option(
    "--item", metavar="ITEM", help="One item of a map of SAMPLE: its key, or MAP/KEY. --from MAP makes a done one anew."
)
@click.option("--memory", metavar="SIZE", help="Let their commands ask for at least so much memory, such as 16G.")
@click.option("--time", "time_limit", metavar="TIME", help="Let their commands run at least so long, such as 12h.")
@events_option
@state_option
@json_option
@click.pass_obj
def retry(
    session: Session,
    samples: tuple[str, ...],
    failed: bool,
    from_step: str | None,
    item: str | None,
    memory: str | None,
    time_limit: str | None,
    events: str | None,
    state: str | None,
    as_json: bool,
) -> int:
    """Run each SAMPLE again with its failures forgotten and its saved steps kept, and then what depends on it.

    A run that is going on takes them over; else they run here, with the pipeline, sheet and parameters of the last
    run. SAMPLE may also be the name of a once or cohort function. Items of its maps that failed run again, the others
    are kept; with --item only the one named. What --memory and --time say is kept with the sample, also for later
    retries, until its input changes.

    Events (--events) are those of a retry that runs here; a run that is going on has its own.

    Exit status: as that of run; 0 when a run that is going on has taken them over; 2 if none of those named can be
    retried.
    """
    from canard_pipe.pipeline.access import require_state
    from canard_pipe.pipeline.overrides import parse_override

    if bool(samples) == failed:
        raise click.UsageError("Name the samples to retry, or give --failed.")
    if item is not None and len(samples) != 1:
        raise click.UsageError("--item is for one sample: name it, and only it.")
    override = parse_override(memory, time_limit)
    folders = session.use(state)
    require_state(folders.state)
    asking = {"keys": list(samples), "failed": failed, "from_step": from_step, "item": item}
    answer = _asked(folders, "retry", asking | {"memory": memory, "time": time_limit})
    if answer is not None:
        return _tell(answer, as_json)
    from canard_pipe.cli.running import finish, observing
    from canard_pipe.pipeline.run import Retry, retry_stored

    asked = Retry(samples, failed, from_step, override, item)
    events = events or session.settings()["events"]
    with observing(as_json=as_json, events=events) as observer:
        report = retry_stored(folders.state, folders.launch, asked, observer)
    return finish(report, folders, as_json=as_json, quiet=events == "-")


@click.command(short_help="Cancel samples and end their commands.")
@click.argument("samples", metavar="SAMPLE...", nargs=-1, shell_complete=samples)
@click.option("--all", "every", is_flag=True, help="Everything that has not come to its end.")
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ok, message.")
@click.pass_obj
def cancel(session: Session, samples: tuple[str, ...], every: bool, state: str | None, as_json: bool) -> int:
    """Cancel each SAMPLE: its commands are ended, nothing of it is published any more, saved steps are kept.

    Exit status: 0 it is done; 2 there is no such sample; 3 the state cannot be reached.
    """
    from canard_pipe.pipeline.access import Answer, require_state

    if bool(samples) == every:
        raise click.UsageError("Name the samples to cancel, or give --all.")
    folders = session.use(state)
    require_state(folders.state)
    answer = _asked(folders, "cancel", {"keys": list(samples), "all": every})
    if answer is None:
        from canard_pipe.pipeline.steering import cancel_stored

        answer = Answer(True, cancel_stored(folders.state, folders.launch, samples, every=every))
    return _tell(answer, as_json)


@click.command(short_help="Copy the state to a new file, also while a run is going.")
@click.argument("file", type=PATH, metavar="FILE")
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ok, message.")
@click.pass_obj
def backup(session: Session, file: str, state: str | None, as_json: bool) -> int:
    """Write the state as it is now to the new FILE, a DuckDB database of its own; work goes on meanwhile.

    To go back to it while no run is going: put it in the place of state.duckdb in the state folder, and remove
    state.duckdb.wal if there is one. Work and results are not in it.

    Exit status: 0 it is there; 2 FILE exists or its folder does not; 3 the state cannot be reached, or the disk is
    full.
    """
    from canard_pipe.pipeline.access import Answer, require_state

    folders = session.use(state)
    require_state(folders.state)
    path = absolute(file)
    answer = _asked(folders, "backup", {"path": str(path)}, seconds=BACKUP_SECONDS)
    if answer is None:
        from canard_pipe.pipeline.steering import backup_stored

        answer = Answer(True, backup_stored(folders.state, folders.launch, path))
    return _tell(answer, as_json)


def _asked(
    folders: Folders, kind: str, arguments: dict[str, object], *, seconds: float = 10.0
) -> Answer | None:
    """Ask the living run; None if there is none, or if it has ended before it could answer."""
    from canard_pipe.errors import StorageError
    from canard_pipe.pipeline.access import answer_of, ask, living_owner, open_view

    request_id = str(uuid.uuid4())
    if living_owner(folders.state) is None:
        return None
    try:
        with open_view(folders.state, folders.launch) as view:
            if view.source == "file":
                return None
            return ask(
                view, kind, arguments, now_us=time.time_ns() // 1000, request_id=request_id, seconds=seconds
            )
    except StorageError:
        if not _ends(folders.state):
            raise
        # The run has ended just now: perhaps by doing what it was asked.
        with open_view(folders.state, folders.launch) as view:
            return answer_of(view, request_id)


def _ends(state: Path, seconds: float = 5.0) -> bool:
    """Tell whether the owner of the state has ended, or ends within ``seconds``."""
    from canard_pipe.pipeline.access import living_owner

    deadline = time.monotonic() + seconds
    while living_owner(state) is not None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _tell(answer: Answer, as_json: bool) -> int:
    from canard_pipe.cli.exits import DONE, WRONG

    if as_json:
        output.as_json({"ok": answer.ok, "message": answer.message})
    else:
        output.line(answer.message if answer.ok else f"canard-pipe: {answer.message}", err=not answer.ok)
    return DONE if answer.ok else WRONG
