"""The tries that the launcher is running, and the tree of processes of each.

Loaded by the launcher only (see launcher.py): single-threaded, few imports.
"""

from __future__ import annotations

import json
import os
import signal
import time

TYPE_CHECKING = False  # typing is not imported: start-up
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from resource import struct_rusage
    from typing import Any

    from canard_pipe.execution import groups, procfs, spawning
else:
    import procfs

RUNNING, LINGERING, STOPPING = "running", "lingering", "stopping"
TIMEOUT, MEMORY = "timeout", "memory"  # why a try was ended
QUICK_SECONDS = 1.0  # so long pids have not come round since the try began
DURABLE_SECONDS = 1.0
MEMORY_TOLERANCE = 1.1
_KILLED = 128 + signal.SIGKILL
_BLOCK_BYTES = 512  # of the counters in rusage, whatever the disk


class Member:
    """One process of the command."""

    __slots__ = ("argv", "exit_code", "killed_by", "pid")

    def __init__(self, argv: list[str], pid: int) -> None:
        self.argv, self.pid = argv, pid
        self.exit_code: int | None = None
        self.killed_by: int | None = None


class Try:
    """One try of a command, from its start message to its record."""

    def __init__(self, message: dict[str, Any], newest_pid: int | None) -> None:
        self.message = message
        self.token: str = message["token"]
        self.grace: float = message["grace"]
        self.linger: float = message["linger"]
        self.newest_pid = newest_pid
        self.started, self.started_at = time.monotonic(), time.time()
        self.ended_at = self.started_at
        timeout = message["timeout"]
        self.deadline = None if timeout is None else self.started + timeout
        self.members: list[Member] = []
        self.alive: set[int] = set()
        self.stage = RUNNING
        self.ended_by: str | None = None
        self.failure: spawning.Failure | None = None
        self.kill_at = self.look_at = self.linger_until = 0.0
        self.memory_limit: int = message["memory"] or 0
        self.cpu_seconds, self.peak_bytes, self.left_over = 0.0, 0, 0
        self.read_bytes = self.written_bytes = 0
        self.lack_of_memory: str | None = None
        self.group: groups.Group | None = None

    def add(self, argv: list[str], pid: int) -> None:
        """Take in a member that has been started."""
        self.members.append(Member(argv, pid))
        self.alive.add(pid)

    def member_ended(self, pid: int, status: int, usage: struct_rusage) -> None:
        """Note how a member ended and what it used, children that it waited for included."""
        self.alive.discard(pid)
        self.ended_at = time.time()
        member = next(member for member in self.members if member.pid == pid)
        if os.WIFSIGNALED(status):
            member.killed_by = os.WTERMSIG(status)
        else:
            member.exit_code = os.WEXITSTATUS(status)
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss * 1024)  # KiB on Linux
        self.read_bytes += usage.ru_inblock * _BLOCK_BYTES
        self.written_bytes += usage.ru_oublock * _BLOCK_BYTES

    def members_killed(self) -> bool:
        """Tell whether a member looks killed from outside: by SIGKILL that was not ours, or 137 from a shell."""
        return self.stage == RUNNING and any(
            member.killed_by == signal.SIGKILL or member.exit_code == _KILLED for member in self.members
        )

    def killed_at_limit(self) -> bool:
        """Tell whether the kernel has ended a process of it at its limit of memory, and note that."""
        if self.group is None or not self.group.has_killed():
            return False
        self.lack_of_memory = f"the kernel has ended a process at its limit: it had asked for {self.memory_limit} bytes"
        self.peak_bytes = max(self.peak_bytes, self.memory_limit)
        return True

    def culprit(self) -> Member | None:
        """Return the member that says how the whole command ended.

        The first that failed; but a SIGPIPE is mostly the consequence of a later member's failure, so it counts
        only if nothing else did (and not at all with ``sigpipe_ok``, except for the last member).
        """
        failed = [member for member in self.members if member.killed_by or member.exit_code]
        piped = [member for member in failed if member.killed_by == signal.SIGPIPE and member is not self.members[-1]]
        others = [member for member in failed if member not in piped]
        if others:
            return others[0]
        return piped[0] if piped and not self.message["sigpipe_ok"] else None

    def record(self, undead: list[int]) -> dict[str, Any]:
        """Return what status.json says."""
        culprit = self.culprit()
        failure = self.failure
        code = failure.exit_code if failure else culprit.exit_code if culprit else 0
        killed_by = culprit.killed_by if culprit and not failure else None
        ended_by = self.ended_by or "itself"
        cut_short = ended_by in (TIMEOUT, MEMORY)  # how it ended is our doing
        well = ended_by == "itself" and code == 0 and killed_by is None
        return {
            "version": 1,
            "token": self.token,
            "digest": self.message["digest"],
            **self.message["identity"],
            "members": [
                {"argv": member.argv, "exit_code": member.exit_code, "signal": _name(member.killed_by)}
                for member in self.members
            ],
            "exit_code": code if killed_by is None and not cut_short else None,
            "signal": _name(killed_by) if not cut_short else None,
            "cause": failure.cause if failure else None,
            "error": failure.text if failure else None,
            "started_at": _iso(self.started_at),
            "ended_at": _iso(max(self.started_at, self.ended_at)),
            "host": os.uname().nodename,
            "boot_id": procfs.boot_id(),
            "peak_memory_bytes": self.peak_bytes,
            "cpu_seconds": round(self.cpu_seconds, 6),
            "ended_by": ended_by,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "oom": self.lack_of_memory is not None,
            "evidence": self.lack_of_memory,
            "left_over": self.left_over,
            "undead": undead,
            "outputs": {name: _size(f"{self.message['folder']}/{name}") for name in self.message["outputs"] if well},
        }

    def write(self, record: dict[str, Any]) -> str | None:
        """Put the record in its place by rename; return why it could not be.

        Flushed to the disk if the try was long enough for that to cost nothing: after a power loss a short one may
        run again (its outputs are not on the disk either).
        """
        target = f"{self.message['folder']}/status.json"
        try:
            descriptor = os.open(f"{target}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                content = json.dumps(record, indent=1).encode() + b"\n"
                while content:
                    content = content[os.write(descriptor, content) :]
                if time.monotonic() - self.started >= DURABLE_SECONDS:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(f"{target}.new", target)  # noqa: PTH105 (no pathlib here: start-up)
        except OSError as error:
            return str(error)
        return None


class Tree:
    """Which processes belong to which try.

    By parentage; a process that its parent has left becomes the launcher's child and is told by its session, by an
    earlier look, by CANARD_ATTEMPT in its environment, or by the folder of a try that it works in or has files of open.
    One that hides from all four is ended when no try is running any more that ran when it was first seen.
    """

    def __init__(self, tries: dict[str, Try], *, subreaper: bool) -> None:
        self._tries = tries
        self.subreaper = subreaper
        self.newest = procfs.NewestPid()
        self.cost = 0.0
        self._me = os.getpid()
        self._visible = self._me in procfs.table([self._me])
        self._owners: dict[int, tuple[int, str]] = {}
        self._strays: dict[int, set[str]] = {}
        self._undead: set[int] = set()
        self._explained = 0
        self._oom_kills = [(0.0, self._unexplained_kills())]

    def survivors(self, attempt: Try, now: float) -> set[int]:
        """Return the pids of a try that are alive. Without /proc: its process groups, as negative numbers."""
        if not self._visible:
            return {-member.pid for member in attempt.members if _group_lives(member.pid)}
        quick = self.newest.since(attempt.newest_pid) if now - attempt.started < QUICK_SECONDS else None
        return self._surely(quick, lambda processes: self._of(attempt, processes))

    def all(self) -> set[int]:
        """Return every descendant of the launcher that is alive."""
        if not self._visible:
            groups = (member.pid for attempt in self._tries.values() for member in attempt.members)
            return {-group for group in groups if _group_lives(group)}
        return self._surely(
            None,
            lambda processes: procfs.below(processes, {self._me}) - procfs.below(processes, self._undead)
            - self._undead - {self._me},
        )

    def sample(self) -> dict[str, int]:
        """Return the memory of each try's tree in bytes, and remember who belongs to whom."""
        self.look_at_kills()
        processes = self._table()
        memory = {}
        owners = {}
        for attempt in self._tries.values():
            pids = self._of(attempt, processes)
            owners.update({pid: (processes[pid].start, attempt.token) for pid in pids})
            memory[attempt.token] = sum(processes[pid].rss_bytes for pid in pids)
            attempt.peak_bytes = max(attempt.peak_bytes, memory[attempt.token])
        self._owners = owners
        return memory

    def over_memory(self, attempt: Try, bytes_: int) -> int | None:
        """Return how much memory a try uses if that is more than it asked for and a tolerance, else None.

        ``bytes_`` is what it uses at first sight: pages that processes share count in each, so a second look divides
        them.
        """
        limit = attempt.memory_limit * MEMORY_TOLERANCE
        if not limit or bytes_ <= limit:
            return None
        shared_out = sum(procfs.proportional_bytes(pid) for pid in self._of(attempt, self._table()))
        return shared_out if shared_out > limit else None

    def in_own_session(self, attempt: Try, pids: set[int]) -> bool:
        """Tell whether any of the pids is in a session that a member began: not a daemon."""
        sessions = {member.pid for member in attempt.members}
        return not self._visible or any(
            process.session in sessions for process in procfs.table(sorted(pids)).values()
        )

    def forget(self, attempt: Try) -> set[int]:
        """The try is over: return the pids of unknown origin that are to be ended with it."""
        for waiting in self._strays.values():
            waiting.discard(attempt.token)
        ended = {pid for pid, waiting in self._strays.items() if not waiting}
        for pid in ended:
            del self._strays[pid]
        children = {pid for pid, process in procfs.table(sorted(ended)).items() if process.parent == self._me}
        return procfs.below(self._table(), children) if children else set()

    def terminate(self, pids: Iterable[int]) -> None:
        """Ask processes to end; stopped ones are woken to hear it."""
        self.signal(pids, signal.SIGTERM)
        self.signal(pids, signal.SIGCONT)

    def signal(self, pids: Iterable[int], number: int) -> None:
        """Send a signal to processes, or groups (negative); those that are gone are gone."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except OSError:
                continue

    def look_at_kills(self, explained: int = 0) -> None:
        """Note how many processes the kernel has ended so far, but for those at the limit of a try, ``explained``."""
        self._explained += explained
        kills = self._unexplained_kills()
        if kills != self._oom_kills[-1][1]:
            self._oom_kills.append((time.monotonic(), kills))

    def _unexplained_kills(self) -> int | None:
        kills = procfs.oom_kills()
        return None if kills is None else kills - self._explained

    def lack_of_memory(self, attempt: Try) -> str | None:
        """Return what shows that a try that was killed from outside lacked memory, or None (BUGS 40).

        Where the kernel does not say whom it ends, lack of memory is taken for the usual reason of such a KILL.
        """
        before = next(kills for at, kills in reversed(self._oom_kills) if at <= attempt.started)
        now = self._unexplained_kills()
        if before is None or now is None:
            return "killed by nobody known, and this system does not say why: mostly it is lack of memory"
        if now > before:
            return "the kernel has ended a process for lack of memory"
        if 0 < attempt.memory_limit <= attempt.peak_bytes:
            return f"killed when it used {attempt.peak_bytes} bytes and had asked for {attempt.memory_limit}"
        return None

    def _surely(self, pids: range | None, choose: Callable[[dict[int, procfs.Process]], set[int]]) -> set[int]:
        """Return what ``choose`` finds among the pids (None: all); nothing only if nothing was started meanwhile.

        A look at many processes is not one moment: one may fork and end before its turn, its child after.
        """
        newest = self.newest() if pids is None else pids.stop - 1
        found = choose(self._table() if pids is None else procfs.table(pids))
        while not found and newest is not None:
            fresh = self.newest.since(newest)
            if fresh is not None and not fresh:
                break
            newest = self.newest() if fresh is None else fresh.stop - 1
            found = choose(self._table() if fresh is None else procfs.table(fresh))
        return found

    def _table(self) -> dict[int, procfs.Process]:
        began = time.monotonic()
        processes = procfs.table()
        self.cost = time.monotonic() - began
        return processes

    def _of(self, attempt: Try, processes: dict[int, procfs.Process]) -> set[int]:
        members = {pid for other in self._tries.values() for pid in other.alive}
        roots = set(attempt.alive)
        for process in processes.values():
            if process.parent == self._me and process.pid not in members and process.pid not in self._undead:
                owner = self._owner(process)
                if owner is None and process.pid not in self._strays and len(self._tries) > 1:
                    self._strays[process.pid] = set(self._tries)
                if owner == attempt.token or (owner is None and len(self._tries) == 1):
                    roots.add(process.pid)
        return procfs.below(processes, roots)

    def _owner(self, process: procfs.Process) -> str | None:
        start, token = self._owners.get(process.pid, (0, ""))
        if start == process.start and token in self._tries:
            return token
        for attempt in self._tries.values():
            if any(member.pid == process.session for member in attempt.members):
                return attempt.token
        named = procfs.variable(process.pid, "CANARD_ATTEMPT")
        if named in self._tries:
            return named
        places = procfs.places(process.pid)
        for attempt in self._tries.values():
            folder = os.path.realpath(attempt.message["folder"])  # not before: it costs every command some calls
            if any(f"{place}/".startswith(f"{folder}/") for place in places):
                return attempt.token
        return None

    def give_up(self, pids: Iterable[int]) -> None:
        """Leave processes alone that do not die, or must not."""
        self._undead.update(pids)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _iso(seconds: float) -> str:
    micros = round(seconds * 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(micros // 1_000_000))}.{micros % 1_000_000:06d}Z"


def _size(path: str) -> int | None:
    """Return the size of a file, or of all files of a folder together; None if it is not there."""
    if os.path.isdir(path):  # noqa: PTH112 (no pathlib here: start-up)
        files = (f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
        return sum(_size(file) or 0 for file in files)
    try:
        return os.stat(path).st_size  # noqa: PTH116 (as above)
    except OSError:
        return None
