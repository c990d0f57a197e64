"""What /proc tells about processes: parents, sessions, memory, environment.

Standard library only and few imports, since the launcher loads this file by itself (see launcher.py). Where there
is no /proc (macOS) every function finds nothing.
"""

from __future__ import annotations

import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES = 2048


class Process:
    """One line of /proc/PID/stat."""

    __slots__ = ("parent", "pid", "rss_bytes", "session", "start", "state")

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.start = int(fields[19])  # ticks since boot: tells a reused pid from the process that had it
        self.rss_bytes = int(fields[21]) * PAGE_BYTES


def read(path: str) -> bytes | None:
    """Return the first bytes of a small file of /proc, or None if it is gone or not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_whole(path: str) -> bytes | None:
    """Return the bytes of a file of the kernel's that may be longer, or None if it is gone or not ours."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (no pathlib: start-up)
            return file.read()
    except OSError:
        return None


def table(pids: list[int] | range | None = None) -> dict[int, Process]:
    """Return the processes that are alive (zombies are not), all or those among ``pids``."""
    found = {}
    for pid in _listing() if pids is None else pids:
        stat = read(f"/proc/{pid}/stat")
        if stat:
            process = Process(pid, stat)
            if process.state not in "ZX":
                found[pid] = process
    return found


def _listing() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 (no pathlib here: start-up)
    except OSError:
        return []


def below(processes: dict[int, Process], roots: set[int]) -> set[int]:
    """Return ``roots`` that are alive and all their descendants."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in found:
            continue
        if pid in processes:
            found.add(pid)
        waiting += children.get(pid, ())
    return found


def variable(pid: int, name: str) -> str | None:
    """Return a variable of the environment that a process was started with, or None."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 (as above)
            environment = file.read()
    except OSError:
        return None
    start = name.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(start):
            return os.fsdecode(entry[len(start) :])
    return None


def places(pid: int) -> list[str]:
    """Return the working folder of a process and the files that it has open, as far as they can be seen."""
    found = []
    try:
        descriptors = [f"fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208 (as above)
    except OSError:
        descriptors = []
    for name in ("cwd", *descriptors):
        try:
            found.append(os.readlink(f"/proc/{pid}/{name}"))  # noqa: PTH115 (as above)
        except OSError:
            continue
    return found


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process, pages shared with others divided among them; 0 if it is gone or not ours."""
    for line in (read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class NewestPid:
    """The pid given out last, from /proc/loadavg.

    Pids are given out upwards, so all processes started since an earlier look have pids after the earlier answer.
    That spares short commands a scan of the whole of /proc.
    """

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/loadavg", os.O_RDONLY)
        except OSError:
            self._descriptor = -1

    def __call__(self) -> int | None:
        try:
            return int(os.pread(self._descriptor, 200, 0).split()[4])
        except (OSError, ValueError, IndexError):
            return None

    def since(self, earlier: int | None, most: int = 500) -> range | None:
        """Return the pids given out after ``earlier``; None if that cannot be told or they are more than ``most``."""
        newest = self()
        if earlier is None or newest is None or not earlier <= newest <= earlier + most:
            return None
        return range(earlier + 1, newest + 1)


def boot_id() -> str:
    """Return what tells one boot of this machine from the next, or ``""``."""
    return (read("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def oom_kills() -> int | None:
    """Return how many processes the kernel has ended for lack of memory since boot; None where it does not say."""
    try:
        with open("/proc/vmstat", "rb") as file:  # noqa: PTH123 (as above)
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None
