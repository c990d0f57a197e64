"""Maintenance without a worker: a thread of the owner that sweeps all queues and wakes suspended tasks (F20-F22)."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canard_pipe.engine import arguments
from canard_pipe.errors import ConnectionClosed, MaintenanceError, StateHeld

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

log = logging.getLogger(__name__)
POLL_SECONDS, REAP_LIMIT = 1.0, 64
OWNERSHIP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """What the maintenance thread is doing (F21).

    ``state`` is idle (never started), running, stopped, or broken: it has ended by ``error``. The counts are of the
    present or last thread. ``error`` is the text of the last poll that failed; None after one that did not.
    """

    state: str
    poll_seconds: float
    reap_limit: int
    polls: int
    reaped: int
    woken: int
    error: str | None


class Coordinator:
    """The maintenance of one database; reach it as ``database.coordinator``.

    Each poll minds the clock, fails what has expired for the last time, in all queues (S45), and makes ready what is
    suspended and need not wait any more. A poll that fails is noted and the next one tries again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()  # for starting and stopping
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._closed = False
        self._next_renewal = float("-inf")
        self._status = CoordinatorStatus("idle", POLL_SECONDS, REAP_LIMIT, 0, 0, 0, None)

    def start(self, *, poll_seconds: float = POLL_SECONDS, reap_limit: int = REAP_LIMIT) -> bool:
        """Start the thread; False if it is running already, whose settings then stay (F20).

        It may be started again after :meth:`stop` (L18). Raises MaintenanceError if the database is closed.
        """
        arguments.seconds("poll_seconds", poll_seconds)
        arguments.whole("reap_limit", reap_limit, 1, 2**31 - 1)
        with self._mutex:
            if self._closed:
                raise MaintenanceError("the database is closed: maintenance cannot start")
            if self._thread is not None and self._thread.is_alive():
                return False
            self._over = threading.Event()
            self._status = CoordinatorStatus("running", poll_seconds, reap_limit, 0, 0, 0, None)
            self._thread = threading.Thread(target=self._run, args=(self._over,), name="coordinator", daemon=True)
            self._thread.start()
            return True

    def status(self) -> CoordinatorStatus:
        """Return what the thread is doing now (F21)."""
        return self._status

    def stop(self) -> bool:
        """End the thread after the poll that is going on; False if none is running (F22).

        Raises MaintenanceError when called by the thread itself.
        """
        with self._mutex:
            thread = self._thread
            if thread is threading.current_thread():
                raise MaintenanceError("maintenance cannot wait for its own end")
            self._over.set()
            if thread is None:
                return False
            was_alive = thread.is_alive()
            thread.join()
            self._thread = None
            if self._status.state == "running":
                self._note("stopped")
            return was_alive

    def restart(self) -> None:
        """Stop the thread if it runs, and start it with the same settings. Raises MaintenanceError."""
        self.stop()
        settings = self._status
        self.start(poll_seconds=settings.poll_seconds, reap_limit=settings.reap_limit)

    def close(self) -> None:
        """Stop for good; a second call does nothing."""
        with self._mutex:
            self._closed = True
        self.stop()

    def _run(self, over: threading.Event) -> None:
        try:
            with contextlib.ExitStack() as stack:
                beating = False
                while not over.is_set():
                    try:
                        if not beating:
                            stack.enter_context(self._database.pulse())
                            beating = True
                        self._poll()
                    except (ConnectionClosed, StateHeld):
                        raise
                    except Exception as error:
                        self._note("running", error=str(error) or type(error).__name__)
                        log.warning("a poll of the maintenance failed: %s", error)
                    over.wait(self._status.poll_seconds)
        except Exception as error:  # nothing more can be done with this database
            self._note("broken", error=str(error) or type(error).__name__)
            log.warning("the maintenance has ended: %s", error)

    def _poll(self) -> None:
        reaped = self._database.reap(limit=self._status.reap_limit)
        woken = self._database.wake()
        self._renew_ownership()
        self._note("running", polled=1, reaped=reaped, woken=woken)

    def _renew_ownership(self) -> None:
        ownership, now = self._database.ownership, self._database.clock.monotonic()
        if ownership is not None and now >= self._next_renewal:
            ownership.renew()
            self._next_renewal = now + OWNERSHIP_SECONDS

    def _note(self, state: str, *, polled: int = 0, reaped: int = 0, woken: int = 0, error: str | None = None) -> None:
        last = self._status
        self._status = CoordinatorStatus(
            state, last.poll_seconds, last.reap_limit, last.polls + polled, last.reaped + reaped, last.woken + woken,
            last.error if state == "stopped" else error,
        )
