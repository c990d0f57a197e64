"""One run: plan, run what is to be done, say how every row ended."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shlex
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.engine import mapping
from canard_pipe.engine.attempt import Outcome, text_of
from canard_pipe.engine.database import Database
from canard_pipe.engine.proxies import users_environment
from canard_pipe.engine.values import Codec, Skipped
from canard_pipe.engine.worker import Worker
from canard_pipe.errors import CanardError
from canard_pipe.execution.channel import end_processes_of_run
from canard_pipe.execution.executor import Executor
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget, machine_cpus, machine_memory
from canard_pipe.pipeline import cleaning, cohorts, maintenance, outlook, planning, retrying, snapshot
from canard_pipe.pipeline.access import FILE, open_view
from canard_pipe.pipeline.checker import Checker
from canard_pipe.pipeline.context import RunSetting, context_factory, handlers
from canard_pipe.pipeline.gate import Gate
from canard_pipe.pipeline.items import stored_types
from canard_pipe.pipeline.naming import named
from canard_pipe.pipeline.observer import Guarded, Observer
from canard_pipe.pipeline.opening import open_state
from canard_pipe.pipeline.overrides import Override, Overrides
from canard_pipe.pipeline.policy import FailurePolicy
from canard_pipe.pipeline.prepare import Prepared, param_values, prepare
from canard_pipe.pipeline.publishing import Publisher
from canard_pipe.pipeline.run_report import GOOD_ENDS, RunReport, report_of, report_of_plan
from canard_pipe.pipeline.scheduling import see_jobs_out, start_executor
from canard_pipe.pipeline.sheet import SheetOptions
from canard_pipe.pipeline.step_code import StepCode
from canard_pipe.pipeline.stored_run import RunOptions, run_row, stored_options

LEASE_SECONDS = 30.0
LEAST_SLOTS = 32
POLL_SECONDS = 0.5  # a slot that comes free looks at once


@dataclass(frozen=True, slots=True)
class Retry:
    """What to retry: named keys or every failed one, from a step on, with at least so much memory and time."""

    keys: tuple[str, ...] = ()
    failed: bool = False
    from_step: str | None = None
    override: Override = field(default_factory=Override)
    item: str | None = None


def run_pipeline(options: RunOptions, observer: Observer) -> RunReport:
    """Check, plan and run; return when every row has come to its end or the run was interrupted.

    Raises InputError and its kin before anything is touched, StateHeld if another process owns the state.
    """
    return _run(options, observer, None)


def retry_stored(state: Path, launch: Path, retry: Retry, observer: Observer) -> RunReport:
    """Retry samples of the last run of this state, in the foreground, and make what depends on them."""
    with open_state(state, launch) as database:
        options = stored_options(database, state)
    return _run(options, observer, retry)


def check_pipeline(
    pipeline_file: Path, sheet_file: Path, params: Sequence[str], sheet: SheetOptions | None = None
) -> Prepared:
    """Check pipeline, parameters, tools and sheet; nothing runs, nothing is written."""
    return prepare(pipeline_file, sheet_file, params, folder=Path.cwd(), sheet=sheet)


def _run(options: RunOptions, shown: Observer, retry: Retry | None) -> RunReport:
    observer = Guarded(shown)
    prepared = prepare(
        options.pipeline_file, options.sheet_file, options.params, folder=options.folder, sheet=options.sheet
    )
    only = set(named(options.only, [sample.key for sample in prepared.sheet.samples])) if options.only else None
    for note in prepared.notes():
        observer.note(note)
    setting = RunSetting(
        prepared.loaded.pipeline, prepared.params, options.work, options.results, observer, users_environment(),
        StepCode(prepared.loaded.file.parent), prepared.loaded.module,
    )
    types = stored_types(prepared.loaded.pipeline)
    if options.dry_run:
        return _dry_run(options, prepared, observer, only)
    with open_state(
        options.state, options.launch, claim_type=context_factory(setting), types=types
    ) as database:
        return _Run(options, prepared, observer, setting, database, retry).told()


def _dry_run(
    options: RunOptions, prepared: Prepared, observer: Observer, only: Collection[str] | None
) -> RunReport:
    """Say what would run; change nothing, also beside a living run."""
    types = stored_types(prepared.loaded.pipeline)
    with contextlib.ExitStack() as stack:
        reading: planning.Reading
        if (options.state / FILE).exists():
            view = stack.enter_context(open_view(options.state, options.launch))
            reading = outlook.FromOutside(view, Codec(options.launch, types))
        else:
            reading = stack.enter_context(Database(None, root=options.launch, types=types))
        ahead = outlook.look_ahead(reading, prepared, options, run_id="dry run")
        for note in ahead.notes:
            observer.note(note)
        details = outlook.details(reading, prepared, ahead, only)
        observer.planned([*ahead.plan.lines(), *details] or ["nothing to do"])
        states = cohorts.sample_states(reading, prepared.loaded.pipeline.name)
        return report_of_plan(ahead.plan, states, options.results)


@contextlib.contextmanager
def _one_run_at_work(file: Path, token: str) -> Iterator[None]:
    """End what a run that was killed together with its launcher has left alive; leave our own mark for the next."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        left_by = file.read_text(encoding="ascii")
        if len(left_by) == len(token):
            end_processes_of_run(left_by)
    file.write_text(token, encoding="ascii")
    yield
    file.unlink(missing_ok=True)


def _nothing_to_do(report: RunReport) -> str:
    open_ends = Counter(row["state"] for row in report.samples if row["state"] not in (*GOOD_ENDS, "retired"))
    if not open_ends:
        return "nothing to do: every row has come to its end"
    left = ", ".join(f"{count} {state}" for state, count in sorted(open_ends.items()))
    return f"nothing to do: {left}"


@dataclass(slots=True)
class _Run:
    options: RunOptions
    prepared: Prepared
    observer: Observer
    setting: RunSetting
    database: Database
    retry: Retry | None
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def pipeline_name(self) -> str:
        return self.prepared.loaded.pipeline.name

    def told(self) -> RunReport:
        """Go, and tell those who watch from outside that it has begun and how it has ended."""
        options = self.options
        self.observer.event("run_started", {
            "run_id": self.run_id, "pipeline": self.pipeline_name, "pipeline_file": options.pipeline_file,
            "sheet": options.sheet_file, "executor": options.executor, "launch": options.launch,
            "host": socket.gethostname(), "pid": os.getpid(), "interrupted_tasks": self.database.interrupted or 0,
        })  # fmt: skip
        try:
            report = self.go()
        except BaseException as error:
            self.observer.event("run_ended", {"exit_status": None, "interrupted": True, "error": str(error)})
            raise
        self.observer.event("run_ended", {
            "exit_status": report.exit_status, "interrupted": report.interrupted, "error": None, "counts": report.counts
        })  # fmt: skip
        return report

    def go(self) -> RunReport:
        """Plan, run and report."""
        if self.database.interrupted:
            count = self.database.interrupted
            tasks = "1 task goes" if count == 1 else f"{count} tasks go"
            self.observer.note(f"an earlier run died: {tasks} on, nothing is counted")
        checker = self.setting.checker = Checker()
        publisher = self.setting.publisher = Publisher(
            self.options.results, self.options.state, checker.output, work=self.options.work, alive=self._may_be_written
        )
        for settled in publisher.finish(self.database):
            self.observer.note(f"{settled.target}: {settled.detail}")
        publisher.sweep(self.database)
        self._retire(publisher)
        asked = self._asked(self.retry) if self.retry else None
        ahead = outlook.look_ahead(self.database, self.prepared, self.options, self.run_id)
        plan, known = ahead.plan, ahead.known
        for note in ahead.notes:
            self.observer.note(note)
        if not planning.unchanged(plan, known):
            planning.apply_plan(self.database, plan)
        only = self._only() if self.retry is None or asked is None else self._retry(self.retry, asked)
        cohorts.refresh(
            self.database, self.prepared.loaded.pipeline, param_values(self.prepared.params), self.run_id, spawn=False
        )
        gate = Gate(self.database, self.prepared.loaded.pipeline, param_values(self.prepared.params), self.run_id, only)
        self.observer.planned(plan.lines())
        self.observer.event("planned", {"samples": plan.counts(), "lines": plan.lines()})
        self._say_which_results_are_gone(publisher)
        if gate.finished():
            see_jobs_out(
                self.database, self.options.slurm, environ=self.setting.environ, note=self.observer.note
            )
            report = self._report(interrupted=False)
            self.observer.note(_nothing_to_do(report))
            return report
        self.database.write("insert_run", [run_row(self.database, self.run_id, self.options, self.prepared)])
        interrupted = self._work(gate)
        self._retire(publisher)
        report = self._report(interrupted=interrupted)
        self.database.write("end_run", [{"run_id": self.run_id, "exit_status": report.exit_status}])
        return report

    def _retire(self, publisher: Publisher) -> None:
        for settled in publisher.retire(self.database):
            self.observer.note(f"{self.options.results / settled.target} {settled.detail}")

    def _say_which_results_are_gone(self, publisher: Publisher) -> None:
        for deviation in publisher.verify(self.database):
            where = self.options.results / deviation.target
            _, sample, _ = planning.parts_of_id(deviation.task_id or "")
            item = mapping.path_of(deviation.task_id or "")
            who = shlex.quote(sample) + (f" --item {shlex.quote(item)}" if item else "")
            self.observer.note(f"{where} {deviation.problem}; retry {who} --from publish puts it back")

    def _may_be_written(self, path: Path) -> bool:
        """Tell whether a command is at work in the folder of a try that holds ``path``."""
        executor = self.setting.executor
        running = executor.running() if executor is not None else ()
        return any(command.folder is not None and path.is_relative_to(command.folder) for command in running)

    def _only(self) -> set[str] | None:
        """Return the tasks that this run is about, None for all: chosen samples need the once functions too."""
        if not self.options.only:
            return None
        rows = cohorts.sample_states(self.database, self.pipeline_name)
        samples = [row.key for row in rows if row.kind == "sample" and row.state != "retired"]
        chosen = set(named(self.options.only, samples))
        self.observer.note(f"only {len(chosen)} of {len(samples)} samples; the others are left as they are")
        return {
            row.task_id for row in rows
            if row.task_id is not None and (row.kind == "once" or (row.kind == "sample" and row.key in chosen))
        }  # fmt: skip

    def _asked(self, retry: Retry) -> list[str]:
        """Return the keys that a retry is about: those named, or every failed one."""
        if retry.item is not None:
            return list(retry.keys)
        states = cohorts.sample_states(self.database, self.pipeline_name)
        chosen = retrying.choose_for_retry(states, retry.keys, failed=retry.failed, from_step=retry.from_step)
        for why in chosen.refused:
            self.observer.note(f"not retried: {why}; --from STEP makes it anew from a step on")
        return [row.key for row in chosen.rows]

    def _retry(self, retry: Retry, asked: list[str]) -> set[str] | None:
        """Make the asked tasks ready, unless the plan has: a changed row or file has given them a new start.

        Return the tasks that this run is about, None for all: everything depends on a once function.
        """
        wanted = set(asked)
        rows = [row for row in cohorts.sample_states(self.database, self.pipeline_name) if row.key in wanted]
        left = [row.key for row in rows if retry.item or row.state in retrying.retryable(retry.from_step)]
        if left:
            retrying.retry(
                self.database, self.pipeline_name, left,
                from_step=retry.from_step, item=retry.item, override=retry.override,
            )
        if asked:
            self.observer.note(f"will run again: {', '.join(asked)}" + (f", item {retry.item}" if retry.item else ""))
        if any(row.kind == "once" for row in rows):
            return None
        return {row.task_id for row in rows if row.task_id is not None}

    def _work(self, gate: Gate) -> bool:
        options = self.options
        cpus = options.cpus or machine_cpus()
        budget = Budget(
            cpus,
            options.memory_bytes or machine_memory(),
            {**self.prepared.loaded.pipeline.limits, **options.limits},
            monotonic=self.database.clock.monotonic,
        )
        ownership = self.database.ownership
        with contextlib.ExitStack() as stack:
            if self.setting.checker is not None:
                stack.callback(self.setting.checker.close)
            local = stack.enter_context(
                LocalExecutor(budget, keep_open=lambda: [ownership.lock_fd] if ownership else [])
            )
            stack.enter_context(_one_run_at_work(options.state / "run.token", local.run_token))
            executor = start_executor(
                options, self.database, local, stack, environ=self.setting.environ,
                changed=lambda: self._wake(worker), note=self.observer.note,
            )
            self.setting.executor = executor
            overrides = self.setting.overrides = Overrides(self.database)

            def join(ids: Collection[str]) -> None:
                overrides.reload()
                gate.join(ids)

            worker = Worker(
                self.database,
                handlers(self.setting),
                queue=self.pipeline_name,
                slots=options.slots or max(LEAST_SLOTS, int(4 * cpus)),
                lease_seconds=LEASE_SECONDS,
                poll_seconds=POLL_SECONDS,
                names=gate.names,
                ids=gate.ids,
                finished=gate.finished,
                on_result=lambda outcome: self._tell(outcome, gate),
                describe=FailurePolicy(random.Random().random),
                succeed=not options.drop_intermediates,
            )
            keeper = stack.enter_context(
                maintenance.Maintenance(
                    self.database,
                    worker,
                    executor,
                    pipeline=self.pipeline_name,
                    state=options.state,
                    take_snapshot=lambda finished: self._snapshot(executor, finished=finished),
                    observer=self.observer,
                    join=join,
                    offer=lambda: (gate.names(), gate.ids()),
                    noticed=gate.look_again,
                )
            )
            with keeper.signals():
                worker.work()
                if options.slurm.get("cancel_jobs"):
                    keeper.hear_second_signal()
            return keeper.interrupted

    def _wake(self, worker: Worker) -> None:
        """Let tasks go on at once whose commands have ended; the worker would find them at its next poll."""
        with contextlib.suppress(CanardError):
            self.database.wake()
        worker.nudge()

    def _tell(self, outcome: Outcome, gate: Gate) -> None:
        gate.look_again()
        kind, sample = planning.label_of_id(outcome.id)
        if outcome.status == "completed":
            skipped = isinstance(outcome.result, Skipped)
            self.observer.ended(
                kind, sample, "skipped" if skipped else "done", outcome.result.reason if skipped else ""
            )
            if self.options.drop_intermediates and kind == "sample":
                self.database.writer.flush()  # the rows of the last commands may still wait for a ride
                cleaning.drop(self.database, self.options.launch, self.options.work, outcome.id)
        elif outcome.status == "failed":
            state = "failed" if outcome.state == "failed" else "waiting"
            self.observer.ended(kind, sample, state, "" if outcome.error is None else text_of(outcome.error))
        elif outcome.status == "lost":
            self.observer.event("attempt_lost", {"kind": kind, "sample": sample})
            self._tell_what_became_of(outcome.id, kind, sample)

    def _tell_what_became_of(self, id: str, kind: str, sample: str) -> None:
        """An attempt has lost its lease: somebody has cancelled its task, or it ran past its deadline."""
        rows = self.database.tasks(id=id)
        if rows and rows[0].state in ("cancelled", "failed"):
            self.observer.ended(kind, sample, rows[0].state, rows[0].error or "")
        else:
            self.observer.ended(kind, sample, "waiting", "its attempt lost its lease, and another one is made")

    def _snapshot(self, executor: Executor, *, finished: bool) -> dict[str, Any]:
        return snapshot.snapshot(
            pipeline=self.pipeline_name,
            run_id=self.run_id,
            now_us=self.database.clock.now_us(),
            states=cohorts.sample_states(self.database, self.pipeline_name),
            running=snapshot.described(executor.running()),
            finished=finished,
        )

    def _report(self, *, interrupted: bool) -> RunReport:
        states = cohorts.sample_states(self.database, self.pipeline_name)
        return report_of(states, self.options.results, interrupted=interrupted)


__all__ = ["Retry", "RunOptions", "RunReport", "check_pipeline", "retry_stored", "run_pipeline"]
