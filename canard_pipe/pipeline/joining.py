"""A worker that joins a served state from another process or machine and takes samples of its last run."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from canard_pipe.engine.attempt import Outcome, text_of
from canard_pipe.engine.owner_record import read_owner
from canard_pipe.engine.proxies import users_environment
from canard_pipe.engine.remote import RemoteDatabase
from canard_pipe.engine.values import Skipped
from canard_pipe.engine.worker import Worker
from canard_pipe.errors import CanardError, InputError, OwnerUnreachable, StorageError
from canard_pipe.execution.local import LocalExecutor
from canard_pipe.execution.resources import Budget, machine_cpus, machine_memory
from canard_pipe.pipeline import planning
from canard_pipe.pipeline.access import LOCK
from canard_pipe.pipeline.api import MARGIN_SECONDS
from canard_pipe.pipeline.checker import Checker
from canard_pipe.pipeline.context import RunSetting, context_factory, handlers
from canard_pipe.pipeline.gate import OnceFirst, with_items
from canard_pipe.pipeline.items import stored_types
from canard_pipe.pipeline.loading import LoadedPipeline, load_pipeline
from canard_pipe.pipeline.observer import Guarded, Observer
from canard_pipe.pipeline.params import parse_params
from canard_pipe.pipeline.policy import FailurePolicy
from canard_pipe.pipeline.publishing import Publisher
from canard_pipe.pipeline.step_code import StepCode
from canard_pipe.pipeline.stored_run import RunOptions, stored_options

LEASE_SECONDS, POLL_SECONDS = 30.0, 0.5
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.2, 5.0
ANEW_SECONDS = 5.0

Address = Callable[[], tuple[str, str] | None]


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Whom a worker works for. ``address`` gives URI and token, None when there is no owner (any more).

    ``pipeline_file`` and ``root``, the launch folder here, are the run's own unless named; ``names`` are functions,
    None for all. ``patience_seconds``: how long an owner may be away. ``tls``: see connect.
    """

    address: Address
    state: Path | None = None
    pipeline_file: Path | None = None
    root: Path | None = None
    slots: int | None = None
    queue: str | None = None
    names: tuple[str, ...] | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    patience_seconds: float = 60.0
    tls: bool | Path | None = None


def address_in(state: Path) -> Address:
    """Return what reads the owner's address from ``owner.json`` in a state folder."""

    def read() -> tuple[str, str] | None:
        record = read_owner(state / LOCK)
        if record is None or record.released or record.uri is None or record.token is None:
            return None
        return record.uri, record.token

    return read


def join_run(options: JoinOptions, shown: Observer) -> int:
    """Take samples until the owner has gone or a signal comes; return how many attempts were made.

    Raises InputError if there is no run to join or this worker cannot work for it, StorageError if the owner stays away
    without having given the state back.
    """
    observer = Guarded(shown)
    found = options.address()
    if found is None:
        raise InputError("no run or server listens for workers here")
    with contextlib.ExitStack() as stack:
        run = _read_run(found, options)
        loaded = _pipeline(options, run)
        setting = RunSetting(
            loaded.pipeline, parse_params(loaded.pipeline.params, run.options.params, run.options.folder),
            run.options.work, run.options.results, observer, users_environment(), StepCode(loaded.file.parent),
            loaded.module,
        )
        database = stack.enter_context(RemoteDatabase(
            *found, root=options.root, claim_type=context_factory(setting), types=stored_types(loaded.pipeline),
            tls=options.tls,
        ))
        checker = setting.checker = Checker()
        stack.callback(checker.close)
        cpus = options.cpus or machine_cpus()
        budget = Budget(
            cpus, options.memory_bytes or machine_memory(), dict(loaded.pipeline.limits),
            monotonic=database.clock.monotonic,
        )
        executor = stack.enter_context(LocalExecutor(budget, margin_seconds=MARGIN_SECONDS))
        setting.executor = executor
        setting.publisher = Publisher(
            run.options.results, run.options.state, checker.output, work=run.options.work,
            alive=lambda path: any(
                command.folder is not None and path.is_relative_to(command.folder) for command in executor.running()
            ),
        )
        contact = _Contact(database, options, observer)
        made: list[str] = []  # by many threads

        def told(outcome: Outcome) -> None:
            made.append(outcome.id)
            _tell(observer, outcome)

        worker = Worker(
            database, handlers(setting), queue=options.queue or loaded.pipeline.name,
            slots=options.slots or max(1, int(4 * cpus)), lease_seconds=LEASE_SECONDS, poll_seconds=POLL_SECONDS,
            names=_names(loaded, options, OnceFirst(database, loaded.pipeline)), away=contact.is_back,
            on_result=told, describe=FailurePolicy(random.Random().random),
        )
        contact.stopping = lambda: worker.stopping
        observer.note(f"working for {database.uri} on {loaded.pipeline.name}, {worker.slots} slots")
        with _signals(worker, executor):
            try:
                worker.work()
            except OwnerUnreachable:
                if not contact.has_ended:
                    raise
                observer.note("the owner has given the state back: nothing is left to work for")
            return len(made)


@dataclass(frozen=True, slots=True)
class _StoredRun:
    options: RunOptions
    pipeline: str
    digest: str


def _read_run(found: tuple[str, str], options: JoinOptions) -> _StoredRun:
    with RemoteDatabase(*found, root=options.root, tls=options.tls) as database:
        stored = stored_options(database, options.state or database.root / ".canard")
        name = str(database.query("latest_run")[0][1])
        digest = str(database.query("latest_run_of", pipeline=name)[0][0])
    if stored.executor != "local":
        raise InputError(f"this run's commands run under {stored.executor}: its owner needs no workers")
    return _StoredRun(stored, name, digest)


def _pipeline(options: JoinOptions, run: _StoredRun) -> LoadedPipeline:
    file = options.pipeline_file or run.options.pipeline_file
    loaded = load_pipeline(file)
    missing = loaded.pipeline.missing_tools()
    if missing:
        raise InputError(f"{file} needs {', '.join(missing)}, not found on PATH of this worker")
    if loaded.digest != run.digest:
        raise InputError(
            f"{file} is not the pipeline file of the run: its content differs. Give the worker the same file, or start "
            "the run again with this one"
        )
    return loaded


def _names(loaded: LoadedPipeline, options: JoinOptions, first: OnceFirst) -> Callable[[], frozenset[str]]:
    if options.names is None:
        return first.names
    unknown = set(options.names) - set(loaded.pipeline.functions)
    if unknown:
        known = ", ".join(sorted(loaded.pipeline.functions))
        raise InputError(f"the pipeline has no function {min(unknown)}; it has {known}")
    wanted = with_items(options.names)
    return lambda: first.names() & wanted


class _Contact:
    """Waits for an owner that is away, with growing and bounded delays, and finds one that was started anew."""

    def __init__(self, database: RemoteDatabase, options: JoinOptions, observer: Observer) -> None:
        self._database, self._options, self._observer = database, options, observer
        self._pause = threading.Event()
        self.stopping: Callable[[], bool] = lambda: False
        self.has_ended = False

    def is_back(self, error: OwnerUnreachable) -> bool:
        """Wait until the owner answers; False if it does not in time, has given up the state, or the worker stops."""
        self._observer.note(f"waiting for the owner, {self._options.patience_seconds:g} s at most: {error}")
        clock, delay = self._database.clock, FIRST_DELAY_SECONDS
        deadline = clock.monotonic() + self._options.patience_seconds
        while not self.stopping() and clock.monotonic() < deadline:
            self._pause.wait(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)
            with contextlib.suppress(StorageError):
                found = self._options.address()
                if (found is None or error.closing) and not self.has_ended:  # perhaps to be started anew at once
                    self.has_ended = True
                    deadline = min(deadline, clock.monotonic() + ANEW_SECONDS)
                if found is not None:
                    self._database.reconnect(*found)
                    self._observer.note(f"the owner at {self._database.uri} answers again")
                    self.has_ended = False
                    return True
        return False


def _tell(observer: Observer, outcome: Outcome) -> None:
    kind, sample = planning.label_of_id(outcome.id)
    if outcome.status == "completed":
        reason = outcome.result.reason if isinstance(outcome.result, Skipped) else None
        observer.ended(kind, sample, "done" if reason is None else "skipped", reason or "")
    elif outcome.status == "lost":
        observer.ended(kind, sample, "waiting", "its attempt lost its lease, and another one is made")
    elif outcome.status == "failed":
        state = "failed" if outcome.state == "failed" else "waiting"
        observer.ended(kind, sample, state, "" if outcome.error is None else text_of(outcome.error))


@contextlib.contextmanager
def _signals(worker: Worker, executor: LocalExecutor) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the commands and hands the tasks back; the second does so at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = threading.Semaphore(0)
    over = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        heard.release()  # no lock that the interrupted code could hold may be taken here

    def listen() -> None:
        grace: float | None = None
        while True:
            heard.acquire()
            if over.is_set():
                return
            worker.stop()
            with contextlib.suppress(CanardError):
                executor.stop_all(grace)
            grace = 0.0

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        heard.release()
        thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)
