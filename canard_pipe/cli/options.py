"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from canard_pipe.cli.session import DEFAULT_STATE

state_option = click.option(
    "--state", "state", metavar="DIR", default=DEFAULT_STATE, show_default=True, help="The folder of the state."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per sample.")
param_option = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, help="A parameter of the pipeline; may be repeated."
)


def pipeline_and_sheet(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments PIPELINE and SHEET."""
    command = click.argument("sheet", metavar="SHEET")(command)
    return click.argument("pipeline", metavar="PIPELINE")(command)
