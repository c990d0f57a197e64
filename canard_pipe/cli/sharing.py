"""serve and worker: one process owns the state, others work on it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from canard_pipe.cli import output
from canard_pipe.cli.completing import PATH
from canard_pipe.cli.options import events_option, state_option
from canard_pipe.cli.session import Session, absolute

TOKEN_VARIABLE = "CANARD_TOKEN"  # noqa: S105 - the name of a variable
GRANTS = (
    "whoever has the token can execute any SQL in this process: read, change and delete the state, and read and write "
    "every file that this user can. It goes over the network as it is: put TLS in front, or keep to a network you trust"
)
token_file_option = click.option(
    "--token-file", type=PATH, metavar="FILE",
    help=f"The file that holds the token; else the variable {TOKEN_VARIABLE}."
)


@click.command(short_help="Own the state and let workers of other processes and machines work on it.")
@state_option
@click.option("--bind", metavar="HOST:PORT", help="Where to listen; a free port of this machine by default.")
@click.option("--beyond-this-machine", is_flag=True, help="Allow --bind to listen for other machines.")
@token_file_option
@click.pass_obj
def serve(
    session: Session, /, state: str | None, bind: str | None, beyond_this_machine: bool, token_file: str | None
) -> int:
    """Own the state and answer others: workers, status, why, sql, cancel, retry. Runs no function of a pipeline itself.

    The token is random, or that of --token-file or CANARD_TOKEN; it stands in owner.json in the state folder, mode
    0600. Ends with Ctrl-C or SIGTERM.

    Exit status: 0 it was asked to end; 2 the call is wrong; 3 the state is held by another process, or nothing can
    listen there.
    """
    from canard_pipe.pipeline.serving import serve_state

    folders = session.use(state)
    uri = None
    if bind is not None:
        host, colon, port = bind.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise click.UsageError(f"--bind wants HOST:PORT, such as 127.0.0.1:9494, not {bind!r}.")
        uri = f"quack:{host}:{port}"
        if host not in ("127.0.0.1", "localhost"):
            if not beyond_this_machine:
                raise click.UsageError(
                    f"{host} can be reached from other machines; if that is meant, add --beyond-this-machine. "
                    f"Note: {GRANTS}."
                )
            output.line(f"warning: {GRANTS}", err=True)
    serve_state(
        folders.state, folders.launch, uri=uri, token=_token(token_file), told=lambda text: output.line(text)
    )
    return 0


@click.command(short_help="Take samples of a run that another process or machine owns.")
@click.argument("pipeline", type=PATH, metavar="[PIPELINE]", required=False)
@click.option("--connect", "uri", metavar="URI", help="Where the owner listens: quack:HOST:PORT.")
@token_file_option
@state_option
@click.option("--slots", type=click.IntRange(1, 10_000), help="How many samples may be in work here at once.")
@click.option("--queue", metavar="NAME", help="The queue to take from; the pipeline's own by default.")
@click.option("--names", metavar="A,B,…", help="Only tasks of these functions of the pipeline.")
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), help="How many cpus commands may use here.")
@click.option("--memory", metavar="SIZE", help="How much memory commands may ask for here, such as 8G.")
@click.option("--root", type=PATH, metavar="DIR",
              help="Where the run's launch folder is on this machine; as there by default.")
@click.option("--wait", "patience", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="How many seconds an owner may be away.")
@events_option
@click.option("--plain", is_flag=True, help="Speak HTTP without TLS to another machine.")
@click.option("--ca-file", metavar="FILE", help="Speak HTTPS, and trust the certificates in FILE (PEM).")
@click.pass_obj
def worker(
    session: Session, /, pipeline: str | None, uri: str | None, token_file: str | None, state: str | None,
    slots: int | None, queue: str | None, names: str | None, cpus: float | None, memory: str | None, root: str | None,
    patience: float, events: str | None, plain: bool, ca_file: str | None,
) -> int:
    """Take samples of a run that another process owns, until it has ended.

    Without --connect the owner is found by owner.json in the state folder. With it, the token comes from --token-file
    or the variable CANARD_TOKEN, never from the command line. PIPELINE is the run's own file by default; its folders
    work/ and results/ have to be shared with this machine.

    Exit status: 0 the run has ended or a signal came, whatever became of the samples; 2 there is no run to join, or
    this machine does not fit it; 3 the owner stayed away.
    """
    from canard_pipe.cli.running import observing
    from canard_pipe.execution.resources import parse_memory
    from canard_pipe.pipeline.joining import JoinOptions, address_in, join_run

    if plain and ca_file is not None:
        raise click.UsageError("--plain and --ca-file exclude each other.")
    where = None if uri is not None else session.use(state).state
    if uri is not None:
        token = _token(token_file)
        if token is None:
            raise click.UsageError(f"--connect needs a token: --token-file FILE, or the variable {TOKEN_VARIABLE}.")
        found = (uri, token)
    options = JoinOptions(
        address=(lambda: found) if where is None else address_in(where),
        state=where,
        pipeline_file=None if pipeline is None else absolute(pipeline),
        root=None if root is None else absolute(root),
        slots=slots,
        queue=queue,
        names=None if names is None else tuple(name.strip() for name in names.split(",")),
        cpus=cpus,
        memory_bytes=None if memory is None else parse_memory(memory),
        patience_seconds=patience,
        tls=False if plain else None if ca_file is None else absolute(ca_file),
    )
    with observing(events=events) as observer:
        count = join_run(options, observer)
    output.line(f"{count} attempts made", err=events == "-")
    return 0


def _token(file: str | None) -> str | None:
    if file is None:
        return os.environ.pop(TOKEN_VARIABLE, None)  # commands do not get it
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the token file {file} cannot be read: {error}") from error
    if not token:
        raise click.UsageError(f"the token file {file} is empty.")
    return token
