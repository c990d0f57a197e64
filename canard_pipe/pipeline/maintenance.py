"""What a run does beside its tasks: signals, requests from other terminals, status.json, ownership, the server."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from canard_pipe.engine.database import Database
from canard_pipe.engine.service import Offer
from canard_pipe.engine.worker import Worker
from canard_pipe.errors import CanardError, StateHeld
from canard_pipe.execution.executor import Executor
from canard_pipe.pipeline import requests, snapshot
from canard_pipe.pipeline.observer import Observer

log = logging.getLogger(__name__)
TICK_SECONDS = 0.25
SERVE_AFTER_SECONDS = 0.1  # a run with nothing to do is over by then, and numpy takes as long to load
SNAPSHOT_SECONDS = 2.0
FIRST_SNAPSHOTS_SECONDS, FIRST_SNAPSHOTS = 0.5, 8  # a run that dies early has said what was at work
SECOND_SIGNAL_SECONDS = 5.0
STUCK_SECONDS = 3.0  # after the second signal
INTERRUPTED = 130
OWNERSHIP_SECONDS = 5.0


class Maintenance:
    """The run's second thread. A context manager; at its end status.json says that the run is over.

    The first SIGINT or SIGTERM stops claiming, ends the commands (TERM, grace, KILL) and hands the tasks back; the
    second ends them at once, and the process soon after, whatever a handler does.
    """

    def __init__(
        self,
        database: Database,
        worker: Worker,
        executor: Executor,
        *,
        pipeline: str,
        state: Path,
        take_snapshot: Callable[[bool], dict[str, Any]],
        observer: Observer,
        join: Callable[[Collection[str]], None],
        offer: Offer | None = None,
        noticed: Callable[[], None] = lambda: None,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._database, self._worker, self._executor = database, worker, executor
        self._pipeline, self._state = pipeline, state
        self._take_snapshot, self._observer, self._join = take_snapshot, observer, join
        self._offer, self._noticed = offer, noticed
        self._signals = 0
        self._answered = 0
        self._ending = False
        self._leave_at: float | None = None
        self._leave = leave
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    @property
    def interrupted(self) -> bool:
        """Whether a signal has stopped the run."""
        return self._signals > 0

    def __enter__(self) -> Maintenance:
        requests.refuse_left_over(self._database)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._wake.set()
        self._thread.join()
        self._database.stop_serving()
        with contextlib.suppress(CanardError, OSError):
            self._publish_snapshot(finished=True)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Catch SIGINT, SIGTERM and SIGHUP within the block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # What is ignored stays so: nohup ignores SIGHUP, a shell SIGINT for what it runs in the background.
        heard = [number for number in caught if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def hear_second_signal(self) -> None:
        """After a first signal, wait a little for a second: it may ask for more than the end of the run."""
        clock = self._database.clock
        end = clock.monotonic() + SECOND_SIGNAL_SECONDS
        while 0 < self._answered < 2 and clock.monotonic() < end:
            clock.sleep(TICK_SECONDS / 5)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1  # no lock may be taken in a signal handler: the thread looks at every tick

    def _run(self) -> None:
        clock = self._database.clock
        next_snapshot = next_ownership = clock.monotonic()
        taken = 0
        self._guarded("status.json", lambda: self._publish_snapshot(finished=False))
        if not self._over.wait(SERVE_AFTER_SECONDS):
            self._guarded("serving", self._serve)
        while not self._over.is_set():
            self._guarded("signals", self._answer_signals)
            self._guarded("a broken slot", self._end_the_broken)
            self._guarded("the last resort", self._leave_if_stuck)
            self._guarded("requests", self._answer_requests)
            now = clock.monotonic()
            if now >= next_snapshot:
                taken += 1
                next_snapshot = now + (SNAPSHOT_SECONDS if taken > FIRST_SNAPSHOTS else FIRST_SNAPSHOTS_SECONDS)
                self._guarded("status.json", lambda: self._publish_snapshot(finished=False))
            if now >= next_ownership:
                next_ownership = now + OWNERSHIP_SECONDS
                self._guarded("ownership", self._renew_ownership)
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (CanardError, OSError) as error:  # the run goes on without it
            log.warning("%s: %s", what, error)
        except Exception:  # this thread hears the signals: it must not end
            log.exception("%s failed", what)

    def _answer_signals(self) -> None:
        signals = self._signals
        if signals == self._answered:
            return
        self._answered = signals
        if signals == 1:
            self._observer.note("stopping: commands are ended and tasks handed back; once more to end at once")
        self._worker.stop()
        self._executor.stop_all(None if signals == 1 else 0.0)
        if signals > 1:
            self._executor.stop_jobs()
        if signals > 1 and self._leave_at is None:
            self._leave_at = self._database.clock.monotonic() + STUCK_SECONDS

    def _end_the_broken(self) -> None:
        if self._worker.broken and not self._ending:
            self._ending = True
            self._executor.stop_all()  # else the other slots' commands would go on to their ends first

    def _leave_if_stuck(self) -> None:
        """End the process when a handler's own code does not: nothing can interrupt a thread."""
        if self._leave_at is None or self._database.clock.monotonic() < self._leave_at:
            return
        self._observer.note("a function of the pipeline does not end: the run is ended with it, its tasks handed back")
        try:
            self._database.hand_back_all()
            self._publish_snapshot(finished=True)
            self._database.close()
        finally:
            self._leave(INTERRUPTED)

    def _answer_requests(self) -> None:
        for text in requests.answer_open(self._database, self._pipeline, self._join):
            self._observer.note(text)
            self._worker.nudge()

    def _publish_snapshot(self, *, finished: bool) -> None:
        state = self._take_snapshot(finished)
        snapshot.write(self._state / "status.json", state)
        self._observer.snapshot(state)

    def _renew_ownership(self) -> None:
        ownership = self._database.ownership
        if ownership is None:
            return
        try:
            ownership.renew()
        except StateHeld as error:
            self._observer.note(f"this run stops before its next write: {error}")
            self._worker.stop()
            self._executor.stop_all(0.0)

    def _serve(self) -> None:
        try:
            self._database.serve(offer=self._offer, noticed=self._noticed, farewell=True)
        except CanardError as error:
            self._observer.note(f"other terminals see only status.json meanwhile: {error}")
