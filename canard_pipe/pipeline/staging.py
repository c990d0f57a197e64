"""Staging: a whole, synced copy of a result on the file system of the results folder, before anyone sees it.

A reflink costs nothing where the file system has them; a hard link is taken only from a folder of a try that no
process can still write to, and makes the file read-only; else the bytes are copied. Size and checksum are always
read from the staged bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.errors import PublishError
from canard_pipe.pipeline.targets import STAGING_IN_RESULTS

KeepAlive = Callable[[], None]
_CHUNK = 4 * 1024 * 1024
_FICLONE = 0x40049409  # linux/fs.h


@dataclass(frozen=True, slots=True)
class Content:
    """What bytes there are: ``kind`` is file, folder or other, ``size`` in bytes, ``checksum`` says its method."""

    kind: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Glance:
    """What can be told of a file or folder without reading it; ``newest_ns`` is the newest modification inside."""

    kind: str
    size: int
    newest_ns: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file or folder: where, which inode (it keeps it when renamed), what."""

    path: Path
    inode: int
    content: Content


def staging_folder(state: Path, results: Path) -> Path:
    """Return the folder to stage in: below ``state`` where a rename from there into ``results`` is possible."""
    if _mount(state) == _mount(results):
        return state / "staging"
    return results / STAGING_IN_RESULTS


def stage(source: Path, place: Path, *, target: str, link: bool, keep_alive: KeepAlive) -> Staged:
    """Stage ``source``, a file or folder, as ``place`` and sync it. ``link`` allows hard links.

    Raises PublishError for ``target`` if the source holds what cannot be published or changes meanwhile, OSError
    if the file system refuses. Whatever is raised, the caller removes ``place``.
    """
    before = glance(source)
    if before.kind == "file":
        _stage_file(source, place, target=target, link=link, keep_alive=keep_alive)
    elif before.kind == "folder":
        _stage_folder(source, source, place, target=target, link=link, keep_alive=keep_alive)
    else:
        raise PublishError(f"{source} is neither a file nor a folder", target)
    if glance(source) != before:
        raise _changed(source, target)
    content = measure(place, keep_alive)
    if content.size != before.size:
        raise _changed(source, target)
    return Staged(place, os.lstat(place).st_ino, content)


def measure(path: Path, keep_alive: KeepAlive) -> Content:
    """Read a file, or everything in a folder, and return what it holds. A symbolic link itself is 'other'."""
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode):
        size, digest = _digest(path, keep_alive)
        return Content("file", size, f"sha256:{digest}")
    if not stat.S_ISDIR(mode):
        return Content("other", 0, "none")
    total, whole = 0, hashlib.sha256()
    for inner in walk(path):
        name = os.fsencode(inner.relative_to(path))
        mode = os.lstat(inner).st_mode
        if stat.S_ISDIR(mode):
            whole.update(b"folder\0" + name + b"\0")
        elif stat.S_ISLNK(mode):
            whole.update(b"link\0" + name + b"\0" + os.fsencode(inner.readlink()) + b"\0")
        elif stat.S_ISREG(mode):
            size, digest = _digest(inner, keep_alive)
            total += size
            whole.update(b"file\0" + name + b"\0" + digest.encode() + b"\0")
        else:
            whole.update(b"other\0" + name + b"\0")
    return Content("folder", total, f"sha256-tree:{whole.hexdigest()}")


def glance(path: Path) -> Glance:
    """Return kind, size and newest modification without reading; raises FileNotFoundError."""
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode):
        return Glance("file", found.st_size, found.st_mtime_ns)
    if not stat.S_ISDIR(found.st_mode):
        return Glance("other", 0, found.st_mtime_ns)
    size, newest = 0, found.st_mtime_ns
    for inner in walk(path):
        seen = os.lstat(inner)
        newest = max(newest, seen.st_mtime_ns)
        size += seen.st_size if stat.S_ISREG(seen.st_mode) else 0
    return Glance("folder", size, newest)


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below ``folder``, a folder before its content, in the order of the names."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path))


def discard(path: Path) -> None:
    """Remove a file or a whole folder; nothing happens if it is not there."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            for inner in [path, *(inner for inner in walk(path) if inner.is_dir() and not inner.is_symlink())]:
                inner.chmod(0o700)
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return  # another process finishes the same record


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _mount(path: Path) -> tuple[int, str]:
    """Return what two paths must share for a rename: the device, and the mount it is seen through."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    descriptor = os.open(existing, os.O_RDONLY)
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}")
        lines = facts.read_text().splitlines() if facts.exists() else []
        mount = next((line for line in lines if line.startswith("mnt_id:")), "")
        return os.fstat(descriptor).st_dev, mount
    finally:
        os.close(descriptor)


def _stage_folder(
    top: Path, source: Path, place: Path, *, target: str, link: bool, keep_alive: KeepAlive
) -> None:
    found = source.stat()
    place.mkdir(mode=0o700)
    with os.scandir(source) as listing:
        names = sorted(entry.name for entry in listing)
    for name in names:
        inner, copy = source / name, place / name
        mode = os.lstat(inner).st_mode
        if stat.S_ISLNK(mode):
            copy.symlink_to(_inside(top, inner, target))
        elif stat.S_ISDIR(mode):
            _stage_folder(top, inner, copy, target=target, link=link, keep_alive=keep_alive)
        elif stat.S_ISREG(mode):
            _stage_file(inner, copy, target=target, link=link, keep_alive=keep_alive)
        else:
            raise PublishError(f"{inner} is a pipe, socket or device and cannot be published", target)
    place.chmod(stat.S_IMODE(found.st_mode) & 0o777 | 0o700)
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))
    sync_folder(place)


def _inside(top: Path, link: Path, target: str) -> str:
    """Return what a link of a folder says, if it stays in the folder wherever that lies."""
    says = str(link.readlink())
    leads_to = Path(os.path.normpath(link.parent / says))
    if Path(says).is_absolute() or not leads_to.is_relative_to(top) or not link.exists():
        raise PublishError(
            f"{link} is a symbolic link to {says}, which does not stay in the folder; publish a copy instead", target
        )
    if not link.resolve().is_relative_to(top.resolve()):
        raise PublishError(f"{link} leads out of the folder through another link; publish a copy instead", target)
    return says


def _stage_file(source: Path, place: Path, *, target: str, link: bool, keep_alive: KeepAlive) -> None:
    with source.open("rb") as reader:
        before = os.fstat(reader.fileno())
        if not (link and not _is_being_written(reader.fileno()) and _hard_link(source, place, before)):
            with place.open("xb") as writer:
                if not _reflink(reader.fileno(), writer.fileno()):
                    _copy(reader.fileno(), writer.fileno(), before.st_size, keep_alive)
                os.fchmod(writer.fileno(), stat.S_IMODE(before.st_mode) & 0o777 | 0o400)
                os.utime(writer.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
        after = source.stat()
    if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
        raise _changed(source, target)
    if os.lstat(place).st_size != before.st_size:
        raise _changed(source, target)
    _sync_file(place)


def _is_being_written(descriptor: int) -> bool:
    """Tell whether any process of this machine has the file open for writing, where the system can say so.

    A lease for reading is refused then. Who opens the file for writing while we hold it waits for a moment, and we are
    told by a signal: one that does nothing.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # other errors: this file system has no leases, or the file is not ours
    return False


def _hard_link(source: Path, place: Path, found: os.stat_result) -> bool:
    # A file with further names, or of another owner, is not the try's own: making it read-only would reach too far.
    if found.st_nlink != 1 or found.st_uid != os.geteuid():
        return False
    try:
        os.link(source, place, follow_symlinks=False)
    except OSError:
        return False  # no hard links here; a copy says what else is wrong
    place.chmod(stat.S_IMODE(found.st_mode) & 0o555 | 0o400)
    return True


def _reflink(source: int, place: int) -> bool:
    try:
        fcntl.ioctl(place, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy(source: int, place: int, size: int, keep_alive: KeepAlive) -> None:
    # No further than the size it had: a file that grows as fast as it is copied has no end.
    while size > 0 and (chunk := os.read(source, min(_CHUNK, size))):
        size -= len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(place, view) :]
        keep_alive()


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path, keep_alive: KeepAlive) -> tuple[int, str]:
    digest, size, buffer = hashlib.sha256(), 0, memoryview(bytearray(_CHUNK))
    with contextlib.closing(path.open("rb", buffering=0)) as reader:
        while count := reader.readinto(buffer):
            digest.update(buffer[:count])  # releases the GIL
            size += count
            keep_alive()
    return size, digest.hexdigest()


def _changed(source: Path, target: str) -> PublishError:
    return PublishError(
        f"{source} changed while it was published: something still writes to it; publish it when its command has ended",
        target,
    )
