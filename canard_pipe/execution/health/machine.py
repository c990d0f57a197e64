"""The machine itself: its platform, its clock, what its processes may use."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from canard_pipe.execution.health import Finding, fail, ok, warn
from canard_pipe.execution.resources import machine_cpus, machine_memory

LEAST_FILES, LEAST_PROCESSES = 1024, 256
LOOK_SECONDS = 0.1
APART_SECONDS = 0.05
_LAUNCHER_FILES = Path(__file__).parents[1]
_ENFORCED = {
    True: "a limit that the kernel keeps",
    False: "watched, four times a second: no control groups can be made here (docs/commands.md, Resources)",
}
OLDEST = 1_764_547_200  # 2025-12-01: a clock before it has never been set


def check_platform(system: str | None = None) -> Finding:
    """Say whether commands are ended with all their processes here."""
    system = system or platform.system()
    text = f"{system} {platform.release()} {platform.machine()}"
    if system == "Linux":
        return ok("platform", text)
    if system == "Darwin":
        return warn("platform", f"{text}: after `kill -9` of a run, a process that has left its session may stay",
                    "look for such processes by hand, or use Linux")  # fmt: skip
    return fail("platform", f"{text} is not supported", "use Linux, or macOS")


def check_resources(cpus: float | None, memory_bytes: int | None) -> Iterator[Finding]:
    """Compare what the settings give to commands (None: all) with what is there."""
    has_cpus, has_memory = machine_cpus(), machine_memory()
    memory = f"{_gib(memory_bytes or has_memory)} of {_gib(has_memory)}"
    text = f"commands may use {cpus or has_cpus:g} of {has_cpus} cpus and {memory}"
    if (cpus or 0) > has_cpus or (memory_bytes or 0) > has_memory:
        yield warn("resources", f"{text}: more than there is", "lower the settings cpus and memory")
    else:
        yield ok("resources", text)
    yield ok("resources", f"memory= of a command is {_ENFORCED[memory_is_enforced()]}")
    available = psutil.virtual_memory().available
    if available < 256 << 20:
        yield warn("resources", f"only {_gib(available)} of memory are free now", "end what uses it")


def memory_is_enforced() -> bool:
    """Tell whether the launcher of a run could limit the memory of commands here: tried, in a process as it is one."""
    program = (
        f"import os, sys; sys.path.append({str(_LAUNCHER_FILES)!r}); import groups\n"
        "print(groups.find({os.getpid(), os.getppid()}) is not None)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"


def check_limits(
    limit: Callable[[int], tuple[int, int]] = resource.getrlimit, processes: Callable[[], int] | None = None
) -> Iterator[Finding]:
    """Look at the limits of this shell: open files, processes, address space."""
    files = limit(resource.RLIMIT_NOFILE)[0]
    most = limit(resource.RLIMIT_NPROC)[0]
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        yield warn("limits", f"a process may open {files} files", f"ulimit -n {LEAST_FILES * 4} before the run")
    else:
        yield ok("limits", f"a process may open {_amount(files)} files")
    if most != resource.RLIM_INFINITY:
        left = most - (processes or _own_processes)()
        if left < LEAST_PROCESSES:
            yield warn("limits", f"only {max(left, 0)} more processes may be started (limit {most})",
                       "end some, or raise the limit: ulimit -u")  # fmt: skip
        else:
            yield ok("limits", f"{left} more processes may be started")
    space = limit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        yield warn("limits", f"the address space of a process is limited to {_gib(space)}: tools that map files fail",
                   "ulimit -v unlimited before the run; memory= bounds commands by what they use")  # fmt: skip


def check_clock(
    wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Compare the clock that can be set with the one that only goes on."""
    begun, since = wall(), monotonic()
    sleep(LOOK_SECONDS)
    gap = (wall() - begun) - (monotonic() - since)
    if begun < OLDEST:
        return fail("clock", f"the clock shows {time.strftime('%Y-%m-%d', time.gmtime(begun))}", "set it: NTP")
    if abs(gap) > APART_SECONDS:
        return warn("clock", f"the clock was moved by {gap:+.2f} s within {LOOK_SECONDS} s: it is being set now",
                    "let it settle; have it set by NTP, slowly")  # fmt: skip
    return ok("clock", f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(begun))} UTC, and it goes evenly")


def _own_processes() -> int:
    user = psutil.Process().uids().real
    count = 0
    for process in psutil.process_iter():
        try:
            count += process.num_threads() if process.uids().real == user else 0
        except psutil.Error:  # gone meanwhile, or hidden
            continue
    return count


def _amount(value: int) -> str:
    return "any number of" if value == resource.RLIM_INFINITY else str(value)


def _gib(amount: float) -> str:
    return f"{amount / 1024**3:.1f} GiB"
