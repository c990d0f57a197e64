"""Keep the leases of many claims alive with one call for all, from a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from canard_pipe.errors import InputError
from canard_pipe.execution.executor import Leaseholder

log = logging.getLogger(__name__)
Renew = Callable[[Sequence[Any]], object]
AGAIN_SECONDS = 0.25  # between renewals that fail
PAUSE_SECONDS = 1.0  # a gap that long between two looks means that this process stood still, not the database


def renew_in_their_databases(claims: Sequence[Any]) -> None:
    """Renew claims, one call for each database; those that are lost get their ``lost`` set."""
    for database in {id(claim.database): claim.database for claim in claims}.values():
        database.renew([claim for claim in claims if claim.database is database])


class _Kept:
    def __init__(self, claim: Leaseholder, every: float, now: float) -> None:
        self.claim, self.every = claim, every
        self.renewed = now  # decides when the next renewal is due
        self.confirmed = now  # decides when the lease must have run out


class Heartbeats:
    """Renews each claim in time while it is registered; the earliest that is due takes all others along.

    Its command counts as overdue ``margin_seconds`` before the lease must have run out, at most half of the lease.
    """

    def __init__(self, renew: Renew, monotonic: Callable[[], float], margin_seconds: float = 0.0) -> None:
        self._renew, self._monotonic, self._margin_seconds = renew, monotonic, margin_seconds
        self._changed = threading.Condition()
        self._kept: dict[int, _Kept] = {}
        self._closed = False
        self._looked = monotonic()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; waits for a renewal that is going on."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def keeping(self, claim: Leaseholder, every_seconds: float | None) -> Iterator[None]:
        """Renew ``claim`` meanwhile: each third of its lease, or each ``every_seconds``. Raises InputError."""
        every = claim.lease_seconds / 3 if every_seconds is None else every_seconds
        if not 0 < every < claim.lease_seconds:
            raise InputError(
                f"heartbeat_seconds must be more than 0 and less than the lease of {claim.lease_seconds:g} s, "
                f"not {every:g}"
            )
        kept = _Kept(claim, every, self._monotonic())
        with self._changed:
            if not self._kept:
                self._looked = kept.renewed
            self._kept[id(kept)] = kept
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._kept[id(kept)]

    def overdue(self) -> list[Leaseholder]:
        """Return the claims whose lease must have run out, since no renewal has come back for that long.

        Time during which this process stood still (SIGSTOP, a closed laptop) does not count: the owner of the
        database moves the deadlines then.
        """
        now = self._monotonic()
        with self._changed:
            gap, self._looked = now - self._looked, now
            if gap > PAUSE_SECONDS:
                for kept in self._kept.values():
                    kept.confirmed += gap
            return [kept.claim for kept in self._kept.values() if now - kept.confirmed >= self._longest(kept.claim)]

    def _longest(self, claim: Leaseholder) -> float:
        """Seconds without a confirmed renewal after which the claim's command has to end."""
        return max(claim.lease_seconds - self._margin_seconds, claim.lease_seconds / 2)

    def _run(self) -> None:
        failing = False  # said once
        while True:
            with self._changed:
                while not self._closed and (wait := self._due_in()) is not None and wait > 0:
                    self._changed.wait(wait)
                while not self._closed and not self._kept:
                    self._changed.wait()
                if self._closed:
                    return
                if (self._due_in() or 0) > 0:
                    continue
                due = [kept for kept in self._kept.values() if not kept.claim.lost.is_set()]
                began = self._monotonic()
            try:
                self._renew([kept.claim for kept in due])
            except Exception as error:
                log.log(logging.DEBUG if failing else logging.WARNING, "leases could not be renewed: %s", error)
                failing = True
                self._pause(AGAIN_SECONDS)
                continue
            failing = False
            with self._changed:
                for kept in due:
                    kept.renewed = began
                    kept.confirmed = max(kept.confirmed, began)
            if not due:
                self._pause(0.1)  # only lost ones are left; they will be gone soon

    def _due_in(self) -> float | None:
        """Seconds until the first renewal is due; None without claims. Call with the lock held."""
        if not self._kept:
            return None
        return min(kept.renewed + kept.every for kept in self._kept.values()) - self._monotonic()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._closed:
                self._changed.wait(seconds)
