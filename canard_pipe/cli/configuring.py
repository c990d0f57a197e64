"""config: the settings as they count here."""

from __future__ import annotations

from pathlib import Path

import click

from canard_pipe.cli import output
from canard_pipe.cli.options import profile_option
from canard_pipe.cli.session import Session


@click.command(short_help="Show every setting, its value and where it comes from.")
@profile_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per setting.")
@click.pass_obj
def config(session: Session, profile: str | None, as_json: bool) -> int:
    """Show every setting with the value that a run here would take, and where that comes from.

    From the weakest to the strongest: default, the site's file, the user's file, canard.toml in this folder, the
    chosen profile, the environment (CANARD_PIPE_...), the command line of run.

    Exit status: 0; 2 a settings file or variable is wrong: everything found is listed.
    """
    settings = session.settings(profile=profile)
    if as_json:
        output.as_json_list(setting.as_json() for setting in settings.by_name.values())
        return 0
    import os

    from canard_pipe.pipeline.settings.resolve import places
    from canard_pipe.report.settings import settings_table

    for path in places(Path.cwd(), os.environ):
        output.line(f"{'read' if path in settings.files else 'not there'}: {path}")
    output.lines([f"profile: {settings.profile or 'none'}", ""])
    output.render(settings_table(settings))
    return 0
