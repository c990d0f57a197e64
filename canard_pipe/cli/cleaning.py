"""clean: what may go from the work folder, first as a list."""

from __future__ import annotations

import time

import click

from canard_pipe.cli import output
from canard_pipe.cli.options import state_option
from canard_pipe.cli.session import Session


@click.command(short_help="List what may go from the work folder; remove it with --yes.")
@click.option("--yes", is_flag=True, help="Remove what is listed.")
@click.option(
    "--older-than", metavar="TIME", default="30d", show_default=True, help="Failed tries that ended so long ago."
)
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per folder.")
@click.pass_obj
def clean(session: Session, yes: bool, older_than: str, state: str | None, as_json: bool) -> int:
    """List the tries of finished samples, old failed tries, orphans and left-overs of publishing, with their sizes.

    Kept always: what a sample that is not finished could go on from, what a later function is given, results that
    are not in their place yet, and the latest try of a failed command. Results are never touched. A retry that goes
    back to what was removed makes it again. With --yes no run may be going on; the list works beside one.

    Exit status: 0; 2 there is no state here; 3 with --yes, a run is going on.
    """
    from canard_pipe.execution.resources import parse_seconds
    from canard_pipe.pipeline import cleaning
    from canard_pipe.pipeline.access import open_view, require_state
    from canard_pipe.report.cleaning import clean_lines

    folders = session.use(state)
    require_state(folders.state)
    before_us = time.time_ns() // 1000 - round(parse_seconds(older_than) * 1e6)
    freed = None
    if yes:
        from canard_pipe.pipeline.steering import clean_stored

        found, freed = clean_stored(folders.state, folders.launch, older_than_us=before_us)
    else:
        with open_view(folders.state, folders.launch) as view:
            where = cleaning.places(view, folders.launch, folders.state)
            found = cleaning.everything(view, where, older_than_us=before_us)
    if as_json:
        output.as_json_list(
            {"why": each.why, "sample": each.sample, "folder": str(each.folder), "bytes": each.size, "removed": yes}
            for each in found
        )
    else:
        output.lines(clean_lines(found, folders.launch, freed, folders.state_option))
    return 0
