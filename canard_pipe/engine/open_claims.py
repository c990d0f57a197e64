"""The claims that this process holds, so that they can be told of what happens to their leases."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canard_pipe.engine.claim import Claim
    from canard_pipe.engine.lease import Lease


class OpenClaims:
    """Claims by the ``seq`` of their task; one that nobody holds any more drops out by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: weakref.WeakValueDictionary[int, Claim] = weakref.WeakValueDictionary()

    def add(self, claims: Iterable[Claim]) -> None:
        """Register claims; an earlier claim of the same task is lost by that."""
        with self._lock:
            for claim in claims:
                before = self._claims.get(claim.seq)
                if before is not None:
                    before.lost.set()
                self._claims[claim.seq] = claim

    def remove(self, claim: Lease) -> None:
        """Drop a claim that has ended."""
        with self._lock:
            if self._claims.get(claim.seq) is claim:
                del self._claims[claim.seq]

    def lose(self, seq: int) -> None:
        """Tell the claim of task ``seq``, if there is one, that its lease is gone."""
        with self._lock:
            claim = self._claims.get(seq)
        if claim is not None:
            claim.lost.set()

    def all(self) -> list[Claim]:
        """Return the claims that are open now."""
        with self._lock:
            return list(self._claims.values())

    def shift(self, shift_us: int) -> None:
        """Move the deadlines in memory as those in the database were moved."""
        with self._lock:
            for claim in list(self._claims.values()):
                claim.shift_deadline(shift_us)
