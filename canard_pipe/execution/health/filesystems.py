"""The file systems of a run's folders: which they are, what they can do (tried, not believed), how full they are."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from canard_pipe.execution.health import Finding, fail, ok, warn

NETWORK = frozenset({
    "nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "panfs",
    "orangefs", "pvfs2", "wekafs", "glusterfs", "ocfs2", "gfs2", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
    "fuse.s3fs", "fuse.rclone", "fuse.davfs2", "fuse.juicefs", "vboxsf", "afpfs",
})  # fmt: skip
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
SLOW_SYNC_SECONDS = 0.1
LEAST_FREE = {"state": 1 << 30, "work": 10 << 30, "results": 5 << 30}
NONE_FREE = 100 << 20
LEAST_FILES = 10_000
LOCK_SECONDS = 20.0
# Another process tries what this one holds. Its exit status: 1 if it got the first lock, plus 2 if it got the second.
_OTHER = """
import fcntl, sys
got = 0
for bit, path, lock in ((1, sys.argv[1], fcntl.flock), (2, sys.argv[2], fcntl.lockf)):
    try:
        lock(open(path, "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        got += bit
    except OSError:
        pass
sys.exit(got)
"""


def existing(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def kind_of(path: Path) -> str:
    """Return the type of the file system as the system names it (``ext4``, ``nfs4``); "" where it does not tell."""
    path = existing(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
        mount = next(line.split()[1] for line in facts.splitlines() if line.startswith("mnt_id:"))
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.split()[0] == mount:
                return line.partition(" - ")[2].split()[0]
    except (OSError, StopIteration):
        pass
    finally:
        os.close(descriptor)
    mounts = [part for part in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""


def check_state(folder: Path, kind: str) -> Iterator[Finding]:
    """Look at the place of the state: its file system by name, and whether locks and renames do what they must."""
    what = f"{folder} ({kind or 'unknown file system'})"
    if kind in NETWORK:
        yield warn(
            "state", f"{what} is on the network: a lock may not reach other hosts, and every saved step waits for it",
            "put the state, and only the state, on a local disk: --state DIR",
        )
    elif kind in IN_MEMORY:
        yield warn("state", f"{what} is in memory: the state is gone when the machine starts again",
                   "put the state on a disk: --state DIR")  # fmt: skip
    try:
        with _place(folder) as place:
            yield from _locks(place, what)
            yield from _renames("state", place, what)
            yield from _syncs(place, what)
    except OSError as error:
        yield _not_writable("state", what, error)


def check_folder(name: str, folder: Path, kind: str) -> Iterator[Finding]:
    """Look at the place of ``work`` or ``results``: written to, renamed in."""
    what = f"{folder} ({kind or 'unknown file system'})"
    try:
        with _place(folder) as place:
            wrong = list(_renames(name, place, what))
            yield from wrong
            if not wrong:
                yield ok(name, f"{what} can be written to; files are made and renamed there")
    except OSError as error:
        yield _not_writable(name, what, error)


def check_publishing(work: Path, results: Path) -> Finding:
    """Try how a file gets from work to results: by a link, or as a copy."""
    try:
        with _place(work) as source, _place(results) as target:
            (source / "file").write_bytes(b"canard")
            try:
                (target / "file").hardlink_to(source / "file")
            except OSError:
                return ok("results", "published files are copied, since work and results are not on one file system")
            return ok("results", "published files are linked from work, which costs no space")
    except OSError as error:
        return fail("results", f"nothing can be published from {work} to {results}: {error.strerror or error}",
                    "make both folders writable")  # fmt: skip


def check_space(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Yield how much is free, a line for each file system of the folders named state, work, results."""
    by_device: dict[int, list[str]] = {}
    for name, folder in folders.items():
        by_device.setdefault(existing(folder).stat().st_dev, []).append(name)
    for names in by_device.values():
        folder = existing(folders[names[0]])
        yield space_finding(names, folder, shutil.disk_usage(folder).free, _free_files(folder))


def space_finding(names: list[str], folder: Path, free: int, files: int | None) -> Finding:
    """Judge so many free bytes and files (None: not limited) of the file system that ``names`` share."""
    whom = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    text = f"{free / 1e9:.1f} GB free for {whom}"
    options = ", ".join(f"--{name}" for name in names)
    out = f"free some on the file system of {folder}, or name another folder: {options}"
    if free < NONE_FREE:
        return fail("space", text, out)
    if files is not None and files < LEAST_FILES:
        return warn("space", f"only {files} more files can be made for {whom}", out)
    if free < max(LEAST_FREE[name] for name in names):
        return warn("space", text, f"{out}; `canard-pipe clean` lists what may go from work")
    return ok("space", text)


def check_server_clock(folder: Path, *, wall: Callable[[], float] = time.time, apart: float = 2.0) -> Finding:
    """Compare the times that a file system gives to new files with this machine's clock, to ``apart`` seconds."""
    try:
        with _place(folder) as place:
            before = wall()
            (place / "clock").write_bytes(b".")
            stamp = (place / "clock").stat().st_mtime
            after = wall()
    except OSError as error:
        return fail("clock", f"no file can be made in {folder}: {error.strerror or error}", "make it writable")
    off = stamp - after if stamp > after else min(stamp - before, 0.0)
    if abs(off) > apart:
        which = "ahead of" if off > 0 else "behind"
        return warn("clock", f"files in {folder} are stamped {abs(off):.0f} s {which} this machine's clock",
                    "have both clocks set by NTP: files are known by size and time")  # fmt: skip
    return ok("clock", f"the file system of {folder} and this machine agree on the time")


def _not_writable(name: str, what: str, error: OSError) -> Finding:
    out = f"make the folder writable, or name another: --{name} DIR"
    return fail(name, f"{what}: {error.strerror or error}", out)


@contextmanager
def _place(folder: Path) -> Iterator[Path]:
    """Give a new folder in the nearest one that is there, and remove it."""
    place = Path(tempfile.mkdtemp(prefix=".canard-doctor-", dir=existing(folder)))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _locks(place: Path, what: str) -> Iterator[Finding]:
    paths = (place / "flock", place / "posix")
    out = "put the state, and only the state, on a local disk: --state DIR"
    with paths[0].open("w+b") as first, paths[1].open("w+b") as second:
        for name, lock, file in (("flock", fcntl.flock, first), ("POSIX lock", fcntl.lockf, second)):
            try:
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                yield fail("state", f"{what} has no locks ({name}: {error.strerror})", out)
                return
        try:
            other = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _OTHER, *map(str, paths)], timeout=LOCK_SECONDS, check=False,
                capture_output=True, stdin=subprocess.DEVNULL,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            yield fail("state", f"{what}: asking for a lock does not come back", out)
            return
    if other:
        which = {1: "flock", 2: "POSIX lock"}.get(other, "neither flock nor POSIX lock")
        yield fail("state", f"{what}: two processes hold one lock at once ({which}); two runs would write at once", out)
    else:
        yield ok("state", f"{what}: locks keep other processes out")


def _renames(name: str, place: Path, what: str) -> Iterator[Finding]:
    """Yield what does not work: exclusive creation, a rename over a file, links between names."""
    (place / "old").write_bytes(b"old")
    (place / "new").write_bytes(b"new")
    (place / "new").replace(place / "old")
    if (place / "old").read_bytes() != b"new" or (place / "new").exists():
        yield fail(name, f"{what}: a rename does not replace the file", f"name another folder: --{name} DIR")
    with suppress(FileExistsError):
        os.close(os.open(place / "old", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        yield fail(name, f"{what}: a file that is there can be made anew", f"name another folder: --{name} DIR")


def _syncs(place: Path, what: str) -> Iterator[Finding]:
    took = []
    with (place / "sync").open("wb") as file:
        for _ in range(3):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.monotonic()
            os.fsync(file.fileno())
            took.append(time.monotonic() - begun)
    middle = sorted(took)[1]
    if middle > SLOW_SYNC_SECONDS:
        yield warn("state", f"{what}: writing durably takes {middle * 1000:.0f} ms, and every saved step waits for it",
                   "put the state on a faster disk: --state DIR")  # fmt: skip
    else:
        yield ok("state", f"{what}: files are renamed in one step; writing durably takes {middle * 1000:.1f} ms")


def _free_files(folder: Path) -> int | None:
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None
