"""Who owns the state: a lock held for life, and a record beside it that says who holds it (G26).

The lock is ``flock`` on a file of its own, never on the database: DuckDB's POSIX lock falls when its process opens
and closes the database file by other means, so nothing here opens, copies or hashes that file. A child that inherits
the lock's descriptor keeps the state locked until it has ended too: so the launcher can end a dead run's commands
before a new owner starts its own.

The record (``owner.json`` beside ``owner.lock``, mode 0600, since it holds the server's token) names the holder, tells
a new owner which predecessor died, and is the only guard where the lock does not reach: on a network file system
another host refuses while the record's counter advances.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from canard_pipe.engine.clock import Clock, SystemClock
from canard_pipe.engine.owner_record import Identity, OwnerRecord, Staged, read_owner
from canard_pipe.errors import ConnectionClosed, StateHeld, StorageError

POLL_SECONDS = 0.05
WATCH_SECONDS = 1.0  # between two looks at another host's record


class Ownership:
    """The right to open the state for writing. Made by :meth:`take`; give it back with :meth:`release` or ``with``.

    ``predecessor`` is the record of an owner that died without giving the state back, else None: its attempts can be
    closed as interrupted. ``record`` is what others read now.
    """

    def __init__(
        self, path: Path, descriptor: int, record: OwnerRecord, predecessor: OwnerRecord | None, clock: Clock,
        renew_seconds: float,
    ) -> None:
        self.path, self.predecessor, self.record = path, predecessor, record
        self._descriptor: int | None = descriptor
        self._clock, self._renew_seconds = clock, renew_seconds
        self._mutex = threading.RLock()
        self._thief: OwnerRecord | None = None
        self._seen = self._now()
        self._write(record)

    @classmethod
    def take(
        cls,
        path: Path,
        *,
        wait_seconds: float = 5.0,
        clock: Clock | None = None,
        identity: Identity | None = None,
        renew_seconds: float = 5.0,
        silence_seconds: float = 60.0,
        watching: Callable[[OwnerRecord], None] | None = None,
    ) -> Ownership:
        """Take the lock file ``path`` (made if absent; its folder must be there) and write the record.

        A holder that is there is waited for, ``wait_seconds`` at most. A record left by a process of this host that
        is gone does not hinder. One of another host is watched: if it changes, the state is held there; after
        ``silence_seconds`` without a change it is taken over. ``watching`` is called once before such a watch.

        Raises StateHeld, which names the holder, and StorageError where files cannot be locked or written.
        """
        clock = clock or SystemClock()
        identity = identity or Identity.here()
        descriptor = _lock(path, wait_seconds, clock)
        try:
            predecessor = _previous(path, identity, clock, silence_seconds, watching)
            since = datetime.fromtimestamp(clock.now_us() // 1_000_000, UTC).isoformat()
            record = OwnerRecord(identity=identity, counter=0, since=since)
            Staged.sweep(path)
            return cls(path, descriptor, record, predecessor, clock, renew_seconds)
        except BaseException:
            os.close(descriptor)
            raise

    def __enter__(self) -> Ownership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def lock_fd(self) -> int:
        """The lock's descriptor, for ``pass_fds`` of a child that is to keep the state locked as long as it lives.

        That child must not hand it on. Raises ConnectionClosed after :meth:`release`.
        """
        if self._descriptor is None:
            raise ConnectionClosed(f"the state {state_of(self.path)} has been given back")
        return self._descriptor

    def publish(self, uri: str, token: str) -> None:
        """Tell others where this owner listens. Raises as :meth:`renew`."""
        with self._mutex:
            self._advance(replace(self.record, uri=uri, token=token))

    def withdraw(self) -> None:
        """Tell others that this owner no longer listens. Raises as :meth:`renew`."""
        with self._mutex:
            self._advance(replace(self.record, uri=None, token=None))

    def renew(self) -> None:
        """Advance the record's counter; due every ``renew_seconds``.

        Raises StateHeld if the record is another owner's by now (for good: nothing may be written any more), and
        StorageError if the record cannot be written (call again).
        """
        with self._mutex:
            self._advance(self.record)

    def check(self) -> None:
        """Raise StateHeld if the state is known to be another owner's; call before each write.

        In memory, unless renewals have stood still (this process was stopped, or the machine suspended): then the
        record is read first, since another host may have taken over meanwhile.
        """
        if self._thief is None:
            then, now = self._seen, self._now()
            # Of the two clocks, one stands still while the machine is suspended and the other can be set.
            if max(abs(now[0] - then[0]), abs(now[1] - then[1])) <= 2 * self._renew_seconds:
                return
            with self._mutex:
                self._look()
        else:
            raise _held(self.path, self._thief)

    def release(self) -> None:
        """Mark the record as given back and let go of the lock; a second call does nothing.

        The lock stays with children that inherited it. Raises StorageError, after letting go, if the record cannot
        be written.
        """
        with self._mutex:
            if self._descriptor is None:
                return
            try:
                if self._thief is None:
                    self._advance(replace(self.record, uri=None, token=None, released=True))
            except StateHeld:
                pass  # it is another's by now: nothing of ours to give back
            finally:
                descriptor, self._descriptor = self._descriptor, None
                # Closed, not unlocked: unlocking would take the lock from the children too.
                os.close(descriptor)

    def _now(self) -> tuple[float, float]:
        return self._clock.monotonic(), self._clock.now_us() / 1e6

    def _advance(self, record: OwnerRecord) -> None:
        _ = self.lock_fd  # raises if it has been given back
        self._write(replace(record, counter=self.record.counter + 1))

    def _write(self, record: OwnerRecord) -> None:
        # Staged first: making a file in the folder makes a network file system look the record up anew.
        with Staged(self.path, record) as staged:
            if record.counter:
                self._look()
            staged.put()
        self.record = record
        self._seen = self._now()

    def _look(self) -> None:
        if self._thief is None:
            now = self._now()
            found = read_owner(self.path)
            # A record that is missing or damaged was not written by an owner: one that gives back leaves it there.
            if found is None or found.identity == self.record.identity:
                self._seen = now
                return
            self._thief = found
        raise _held(self.path, self._thief)


def state_of(lock: Path) -> Path:
    """Return what the user knows the lock's state by: the folder of ``owner.lock``, else the file it is named after."""
    return lock.parent if lock.name == "owner.lock" else lock.with_suffix("")


def _held(path: Path, record: OwnerRecord | None) -> StateHeld:
    # Naming a process that is gone would send people hunting for it: then a child of it still holds the lock, or the
    # new holder has not written its record yet.
    if record is None or record.released or (record.host == socket.gethostname() and not record.alive_here()):
        return StateHeld(state_of(path), pid=None, host=None)
    return StateHeld(state_of(path), pid=record.pid, host=record.host, since=record.since)


def _lock(path: Path, wait_seconds: float, clock: Clock) -> int:
    deadline = clock.monotonic() + wait_seconds
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open the lock file {path}: {error.strerror}", operation="own") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(descriptor, path):
                return descriptor
        except BlockingIOError:
            pass
        except OSError as error:
            os.close(descriptor)
            raise StorageError(
                f"cannot lock {path}: {error.strerror}; files cannot be locked there. Put the state, and only the "
                "state, on a local file system: --state DIR",
                operation="own",
            ) from error
        os.close(descriptor)
        if clock.monotonic() >= deadline:
            raise _held(path, read_owner(path))
        clock.sleep(POLL_SECONDS)


def _is_still_there(descriptor: int, path: Path) -> bool:
    # A lock on a file that somebody has removed meanwhile locks out nobody.
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _previous(
    path: Path, identity: Identity, clock: Clock, silence_seconds: float,
    watching: Callable[[OwnerRecord], None] | None,
) -> OwnerRecord | None:
    """Return the record of a dead predecessor; raise StateHeld if it may be alive although the lock is ours."""
    record = read_owner(path)
    if record is None or record.released or record.identity == identity:
        return None
    if record.identity.host == identity.host:
        if record.alive_here():  # its lock file was removed under it
            raise _held(path, record)
        return record
    if watching is not None:
        watching(record)
    deadline = clock.monotonic() + silence_seconds
    while clock.monotonic() < deadline:
        clock.sleep(WATCH_SECONDS)
        with Staged(path, record):  # for the folder's sake: see _write
            found = read_owner(path)
        if found is not None and found.released:
            return None
        if found is not None and found != record:
            raise _held(path, found)
    return record
