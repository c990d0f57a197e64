"""Control groups of memory: where the system lets us make them, no command gets more memory than it has asked for.

Loaded by the launcher only (see launcher.py): single-threaded, few imports. Groups can be made by root, in a container
that may write to its own, and where a group was handed to the user (``systemd-run --user --scope -p Delegate=yes``).
Everywhere else :func:`find` returns None, and memory is watched (see tries.py).

A try's group is entered by the launcher itself for as long as it starts the members, so that nothing of the try is ever
outside; the limit is set when the launcher has left again.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing is not imported: start-up
if TYPE_CHECKING:
    from canard_pipe.execution import procfs
else:
    import procfs

_TRIES = 3
_NEARLY = 0.99  # pages are given out by the handful
_V1, _V2 = "cgroup", "cgroup2"
_KILLS = {_V1: "memory.oom_control", _V2: "memory.events"}
_LIMITS = {_V1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), _V2: ("memory.max", "")}


class Place:
    """A group below which others can be made. ``home`` is where the launcher is."""

    def __init__(self, version: str, parent: str, home: str) -> None:
        self.version, self.parent, self.home = version, parent, home
        self._left: list[Group] = []
        self._count = 0

    def make(self) -> Group | None:
        """Return a new group; None if the system refuses."""
        self._count += 1
        group = Group(self, f"{self.parent}/canard-{os.getpid()}-{self._count}")
        try:
            os.mkdir(group.folder)  # noqa: PTH102 (no pathlib here: start-up)
        except OSError:
            return None
        return group

    def remove(self, group: Group | None = None) -> None:
        """Remove a group whose processes have ended, and those that could not be removed before."""
        self._left = [each for each in [*self._left, *([group] if group else [])] if not each.remove()]


class Group:
    """The group of one try."""

    def __init__(self, place: Place, folder: str) -> None:
        self.folder = folder
        self._place, self._limit = place, 0

    def enter(self) -> bool:
        """Take the launcher, and whatever it starts from now on, into the group; tell whether that could be done."""
        return _write(f"{self.folder}/cgroup.procs", "0")

    def leave(self, limit_bytes: int) -> bool:
        """Take the launcher out again and limit what is in the group. If False, nothing is limited."""
        if not _write(f"{self._place.home}/cgroup.procs", "0"):
            return False
        self._limit = limit_bytes
        limit, limit_with_swap = _LIMITS[self._place.version]
        done = _write(f"{self.folder}/{limit}", str(limit_bytes))
        if self._place.version == _V2:
            _write(f"{self.folder}/memory.swap.max", "0")
            _write(f"{self.folder}/memory.oom.group", "1")
        else:
            _write(f"{self.folder}/{limit_with_swap}", str(limit_bytes))
        return done

    def kills(self) -> int:
        """Return how many processes of the group the kernel has ended for lack of memory, here or anywhere."""
        return _number(f"{self.folder}/{_KILLS[self._place.version]}", b"oom_kill")

    def has_killed(self) -> bool:
        """Tell whether the kernel has ended a process of the group since the group was at its own limit."""
        if self.kills() == 0:
            return False
        if self._place.version == _V2:
            return _number(f"{self.folder}/memory.events", b"oom") > 0
        most = int(procfs.read(f"{self.folder}/memory.max_usage_in_bytes") or 0)
        return most > self._limit * _NEARLY

    def remove(self) -> bool:
        """Remove the group; False while a process is in it."""
        try:
            os.rmdir(self.folder)  # noqa: PTH106 (as above)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def find(ours: set[int]) -> Place | None:
    """Return where groups with a limit of memory can be made, or None. ``ours``: this process and its run."""
    for version, options, root, mount in _mounts():
        own, above = _own(version), root.rstrip("/")
        if own is None or (version == _V1 and "memory" not in options.split(",")) or not own.startswith(above):
            continue
        folder = f"{mount}/{own[len(above) :].strip('/')}".rstrip("/")
        home: str | None = folder
        if version == _V2:
            home = make_room(folder, "memory", ours)
        if home is not None and _can_limit(version, folder, home):
            _remove_those_of_the_dead(folder)
            return Place(version, folder, home)
    return None


def make_room(folder: str, controller: str, ours: set[int]) -> str | None:
    """Let groups below ``folder`` (version 2) be limited by ``controller``; return where this process is then.

    Such a group must hold no process itself, but for the root. If those in it are ``ours`` and their children, they go
    into a group of their own beside the tries; if others are in it, it is left alone: None.
    """
    if controller.encode() not in (procfs.read(f"{folder}/cgroup.controllers") or b"").split():
        return None
    switch = f"{folder}/cgroup.subtree_control"
    if controller.encode() in (procfs.read(switch) or b"").split() or _write(switch, f"+{controller}"):
        return folder
    inside = f"{folder}/canard-run-{os.getpid()}"
    for _ in range(_TRIES):  # a child may be born meanwhile
        pids = {int(pid) for pid in (procfs.read_whole(f"{folder}/cgroup.procs") or b"").split()}
        if not pids <= procfs.below(procfs.table(), ours):
            return None
        try:
            os.makedirs(inside, exist_ok=True)  # noqa: PTH103 (as above)
        except OSError:
            return None
        for pid in pids:
            _write(f"{inside}/cgroup.procs", str(pid))
        if _write(switch, f"+{controller}"):
            return inside
    return None


def _remove_those_of_the_dead(folder: str) -> None:
    """Remove groups that launchers have left which were killed."""
    for name in os.listdir(folder):  # noqa: PTH208 (as above)
        pid = name.removeprefix("canard-").removeprefix("run-").partition("-")[0] if name.startswith("canard-") else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110 (as above)
            Group(Place("", folder, folder), f"{folder}/{name}").remove()


def _can_limit(version: str, folder: str, home: str) -> bool:
    """Try it: what counts is what the system lets us do."""
    place = Place(version, folder, home)
    group = place.make()
    if group is None:
        return False
    try:
        return group.enter() and group.leave(1 << 40)
    finally:
        place.remove(group)


def _mounts() -> list[tuple[str, str, str, str]]:
    """Return version, options, root and place of each mount of control groups."""
    found = []
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape", encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                left, _, right = line.partition(" - ")
                kind, _, options = right.split()[:3]
                if kind in (_V1, _V2):
                    found.append((kind, options, left.split()[3], left.split()[4]))
    except (OSError, ValueError, IndexError):
        return []
    return found


def _own(version: str) -> str | None:
    """Return the path of this process's group in the hierarchy of memory, as the kernel tells it."""
    for line in (procfs.read_whole("/proc/self/cgroup") or b"").decode(errors="surrogateescape").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (version == _V2 and number == "0") or (version == _V1 and "memory" in controllers.split(",")):
            return path
    return None


def _number(file: str, name: bytes) -> int:
    for line in (procfs.read(file) or b"").splitlines():
        if line.split()[:1] == [name]:
            return int(line.split()[1])
    return 0


def _write(file: str, text: str) -> bool:
    try:
        descriptor = os.open(file, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True
