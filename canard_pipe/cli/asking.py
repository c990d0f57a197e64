"""sql: any question to the state."""

from __future__ import annotations

import sys

import click

from canard_pipe.cli import output
from canard_pipe.cli.options import state_option
from canard_pipe.cli.session import Session


@click.command(short_help="Ask the state in SQL, also while a run is going.")
@click.argument("statement", metavar="STATEMENT")
@click.option("--write", is_flag=True, help="Also execute a statement that changes something.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a head line.")
@state_option
@click.pass_obj
def sql(session: Session, statement: str, write: bool, as_json: bool, as_csv: bool, state: str | None) -> int:
    """Execute one SQL STATEMENT on the state, read-only unless --write; - reads it from standard input.

    \b
    canard-pipe sql "select state, count(*) from canard_absurd.samples group by state"
    canard-pipe sql "select * from canard_absurd.steps where sample = 'A'"
    canard-pipe sql "show all tables"

    Exit status: 0; 2 the statement is wrong, or would write without --write; 3 the state cannot be reached.
    """
    from canard_pipe.errors import ConflictError, InputError, StorageError
    from canard_pipe.pipeline.access import living_owner, open_view

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    folders = session.use(state)
    text = sys.stdin.read() if statement == "-" else statement
    if write and living_owner(folders.state) is None:
        from canard_pipe.pipeline.access import require_state
        from canard_pipe.pipeline.steering import write_sql

        require_state(folders.state)
        columns, rows = write_sql(folders.state, folders.launch, text)
    else:
        with open_view(folders.state, folders.launch) as view:
            try:
                columns, rows = view.sql(text, write=write)
            except ConflictError:
                raise
            except StorageError as error:  # what DuckDB says of the statement: the caller's own
                raise InputError(str(error)) from error
    if as_json:
        output.as_json_list(dict(zip(columns, map(output.plain, row), strict=True)) for row in rows)
    elif as_csv:
        output.as_csv(columns, rows)
    elif columns:
        from canard_pipe.report.table import sql_table

        output.render(sql_table(columns, rows))
        output.line(f"({len(rows)} row{'s' * (len(rows) != 1)})", err=True)
    return 0
