"""Which executor a run uses, and the end of jobs that nobody wants any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError
from canard_pipe.execution.executor import Executor
from canard_pipe.execution.jobs import live_jobs
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.slurm.client import SlurmClient
from canard_pipe.execution.slurm.executor import Rounds, SlurmExecutor, finish_cancelling
from canard_pipe.execution.slurm.settings import from_table
from canard_pipe.execution.suspending import SuspendingLocal
from canard_pipe.pipeline.stored_run import RunOptions


def start_executor(
    options: RunOptions, database: Database, local: LocalExecutor, stack: contextlib.ExitStack, *,
    environ: Mapping[str, str], changed: Callable[[], None], note: Callable[[str], None],
) -> Executor:
    """Start what runs commands beside ``local``, until ``stack`` ends, and return it.

    Jobs that an earlier run has left in Slurm are watched whatever the executor is now. Raises InputError where Slurm
    is needed and its programs are not there.
    """
    executor: Executor = local
    if options.suspend_always:
        executor = stack.enter_context(SuspendingLocal(local, database, changed))
    if options.executor != SlurmExecutor.name and not live_jobs(database, SlurmExecutor.name):
        return executor
    settings = from_table(options.slurm)
    client = SlurmClient(environ, cluster=settings.site.cluster)
    missing = client.missing()
    if missing:
        left = "" if options.executor == SlurmExecutor.name else ", which an earlier run has left jobs in"
        raise InputError(f"{', '.join(missing)} not found in PATH: this machine cannot use Slurm{left}")
    slurm = SlurmExecutor(
        database, client, settings, local=executor, environ=environ,
        changed=changed, note=note, clock=database.clock,
    )  # fmt: skip
    stack.enter_context(slurm)
    return slurm if options.executor == SlurmExecutor.name else executor


def see_jobs_out(
    database: Database, slurm: Mapping[str, Any], *, environ: Mapping[str, str], note: Callable[[str], None]
) -> None:
    """Cancel jobs in Slurm that nobody waits for, where no run does so. Waits a minute at most for them to be gone."""
    if not any(row.unwanted or row.to_cancel for row in live_jobs(database, SlurmExecutor.name)):
        return
    settings = from_table(slurm)
    client = SlurmClient(environ, cluster=settings.site.cluster)
    rounds = Rounds(database, client, settings, note=note, clock=database.clock)
    finish_cancelling(rounds, note=note, clock=database.clock)
