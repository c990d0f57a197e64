"""The moves that bring a staged result into its place, one atomic rename each.

A file is renamed over its predecessor. A folder cannot be (docs/design.md, publishing): the two are exchanged, or,
where the file system cannot exchange, the old one is first moved aside under a name derived from the staging name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from canard_pipe.pipeline.staging import discard, sync_folder

At = Callable[[str], None]
_AT_FDCWD = -100
_NOREPLACE, _EXCHANGE = 1, 2  # linux/fs.h
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class _FinishedByAnother(FileNotFoundError):
    """What was staged has been put in its place meanwhile."""


def aside_of(staged: Path) -> Path:
    """Return where the predecessor of ``staged`` is moved if it cannot be exchanged."""
    return staged.with_name(staged.name + ".old")


def place(staged: Path, target: Path, *, replace: bool, is_new: Callable[[], bool], at: At) -> bool:
    """Bring ``staged`` to ``target`` and remove what it replaces; the caller syncs the target's folder.

    Return False, with nothing done, if ``staged`` is not there: another process has finished it. ``is_new`` tells
    whether what lies at ``staged`` is the new content: after an exchange it is the old one. Raises FileExistsError
    if the target is there and ``replace`` is False, BlockingIOError if another process is at it.
    """
    make_folders(target.parent)
    try:
        placed = _move(staged, target, replace=replace, is_new=is_new, at=at)
    except _FinishedByAnother:  # what lies at ``staged`` by now is the predecessor, for the other to remove
        return False
    except (FileExistsError, FileNotFoundError):
        if not os.path.lexists(staged):
            return False
        raise
    if placed:
        at("renamed")
        with contextlib.suppress(OSError):  # the result is in its place; what is left over is swept later
            discard(staged)  # the predecessor; or the second name of a file that was linked to its target already
            discard(aside_of(staged))
    return placed


def make_folders(folder: Path) -> None:
    """Create ``folder`` and what is missing above it, durably."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    sync_folder(folder.parent)


def exchange(one: Path, other: Path) -> None:
    """Let two paths change places in one step. Raises OSError with ENOSYS or EINVAL where that cannot be done."""
    _renameat2(one, other, _EXCHANGE)


def _move(staged: Path, target: Path, *, replace: bool, is_new: Callable[[], bool], at: At) -> bool:
    try:
        _rename_to_nothing(staged, target)
        return True
    except FileExistsError:
        if not replace:
            raise
    if not _is_folder(staged) and not _is_folder(target):
        staged.replace(target)
        return True
    with _locked(staged):
        if not is_new():
            return False
        try:
            exchange(staged, target)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            _move_aside(staged, target, at)
    return True


def _move_aside(staged: Path, target: Path, at: At) -> None:
    aside = aside_of(staged)
    discard(aside)
    target.rename(aside)
    at("aside")
    try:
        staged.rename(target)
    except OSError:
        aside.rename(target)
        raise


def _rename_to_nothing(staged: Path, target: Path) -> None:
    try:
        _renameat2(staged, target, _NOREPLACE)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        staged.rename(target)


def _renameat2(one: Path, other: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


@contextlib.contextmanager
def _locked(staged: Path, patience_seconds: float = 10.0) -> Iterator[None]:
    """Hold the staged inode, so that two that finish one record do not exchange it back. Dies with its process."""
    descriptor = os.open(staged, os.O_RDONLY)
    try:
        give_up = time.monotonic() + patience_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
            except OSError:
                break  # no locks on this file system: the comparison by content is what remains
        if os.fstat(descriptor).st_ino != os.lstat(staged).st_ino:
            raise _FinishedByAnother(errno.ENOENT, "finished by another process", str(staged))
        yield
    finally:
        os.close(descriptor)
