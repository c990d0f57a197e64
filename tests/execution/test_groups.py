"""Memory that the kernel limits, with real control groups where this system lets us make them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from canard_pipe.errors import CommandFailed
from canard_pipe.execution import procfs
from canard_pipe.execution.health import machine
from canard_pipe.execution.resources import Escalate
from tests.conftest import wait_until

MIB = 1 << 20
GROUPS2 = Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")


def in_process(code: str, *arguments: str) -> str:
    """Run code that moves its own process between groups in a process of its own."""
    program = f"import os, sys; sys.path.insert(0, {str(Path(procfs.__file__).parent)!r}); import groups\n{code}"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def place() -> Path:
    """Where groups with a limit can be made here."""
    found = in_process("place = groups.find({os.getpid()}); print(place.parent if place else '')")
    if not found:
        pytest.skip("no control group of memory can be made here")
    return Path(found)


def left(place: Path, lab) -> list[str]:
    launcher = lab.executor._launcher.pid
    return [group.name for group in place.glob(f"canard-{launcher}-*")]


def test_what_grows_faster_than_anybody_looks_is_ended_by_the_kernel(lab, place):
    # watched, it would be gone before the first look
    grown = [sys.executable, "-c", "bytearray(400 << 20)"]
    with pytest.raises(CommandFailed) as caught:
        lab.claim().process(grown, memory="50M")
    error = caught.value
    assert (error.cause, error.facts["oom"], error.again.final) == ("oom", True, True)
    assert f"at its limit: it had asked for {50 * MIB} bytes" in str(error)
    assert error.facts["peak_memory_bytes"] >= 50 * MIB
    wait_until(lambda: not left(place, lab))


def test_more_memory_is_given_after_the_kernel_said_no(lab, place):
    grown = [sys.executable, "-c", "bytearray(100 << 20)"]
    context = lab.claim()
    with pytest.raises(CommandFailed) as caught:
        context.process(grown, memory=Escalate("50M", max="1G", factor=4))
    assert not caught.value.again.counted
    lab.again(context).process(grown, memory=Escalate("50M", max="1G", factor=4))
    wait_until(lambda: not left(place, lab))


def test_a_kill_at_the_limit_of_one_command_is_no_reason_for_the_end_of_another(lab, place, background):
    """The kernel counts both; only what nobody's limit explains is a lack of memory of the machine."""
    other = lab.claim("other")
    killed = background(lambda: other.process(["sh", "-c", "until [ -e go ]; do sleep 0.02; done; kill -KILL $$"]))
    with pytest.raises(CommandFailed):
        lab.claim().process([sys.executable, "-c", "bytearray(200 << 20)"], memory="50M")
    folder = lab.root / "work/other/+main/attempt-1"
    wait_until(folder.exists)
    (folder / "go").touch()
    error = killed.join().error
    assert isinstance(error, CommandFailed)
    assert (error.cause, error.signal) == ("signal", "SIGKILL")


def test_doctor_knows_whether_memory_is_enforced_here(place):
    assert machine.memory_is_enforced()
    assert any("kernel" in finding.message for finding in machine.check_resources(None, None))


def test_every_member_and_child_of_a_command_is_in_its_group_and_the_launcher_is_not(lab, place):
    script = "(cat /proc/self/cgroup) > child.txt; cat /proc/self/cgroup"
    folder = lab.claim().pipe(["sh", "-c", script], ["sh", "-c", "cat; cat /proc/self/cgroup > last.txt"], memory="1G")
    for text in ((folder / name).read_text() for name in ("child.txt", "stdout.log", "last.txt")):
        assert f"/canard-{lab.executor._launcher.pid}-" in text
    assert "/canard-" not in Path(f"/proc/{lab.executor._launcher.pid}/cgroup").read_text()
    without = lab.claim("s2").process(["cat", "/proc/self/cgroup"])
    assert "/canard-" not in (without / "stdout.log").read_text()


def test_a_tight_limit_is_no_reason_to_fail_for_what_is_only_cached(lab, place):
    folder = lab.claim().process(["sh", "-c", "head -c 80000000 /dev/zero > big; wc -c < big"], memory="30M")
    assert (folder / "stdout.log").read_text().strip() == "80000000"


def test_groups_of_launchers_that_were_killed_are_removed_by_the_next(place):
    dead = subprocess.Popen(["true"])
    dead.wait()
    (place / f"canard-{dead.pid}-1").mkdir()
    (place / f"canard-{os.getpid()}-999999").mkdir()
    in_process("groups.find({os.getpid()})")
    found = {group.name for group in place.glob("canard-*")}
    (place / f"canard-{os.getpid()}-999999").rmdir()
    assert f"canard-{dead.pid}-1" not in found
    assert f"canard-{os.getpid()}-999999" in found


# -- version 2 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def delegated(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A group of version 2, as it is handed to a user, and a controller that can limit something in it."""
    for top in GROUPS2:
        known = (procfs.read(f"{top}/cgroup.controllers") or b"").decode().split()
        folder = top / f"canard-test-{os.getpid()}"
        if not known:
            continue
        controller = "memory" if "memory" in known else known[0]
        try:
            (top / "cgroup.subtree_control").write_text(f"+{controller}")
            folder.mkdir()
        except OSError:
            continue
        yield folder, controller
        for group in (*folder.glob("*/"), folder):
            group.rmdir()
        return
    pytest.skip("no control group of version 2 can be made here")


ENTER = """
folder, controller = sys.argv[1:]
import subprocess
open(folder + "/cgroup.procs", "w").write("0")
child = subprocess.Popen(["sleep", "30"])
ours = {os.getpid()} if os.environ.get("OURS") else {child.pid}
home = groups.make_room(folder, controller, ours)
own = open("/proc/self/cgroup").read().split("0::")[1].split()[0]
print(home, own, open(folder + "/cgroup.subtree_control").read())
child.kill()
child.wait()
"""


def test_a_run_in_a_group_of_its_own_makes_room_for_groups_beside_it(delegated, monkeypatch):
    folder, controller = delegated
    monkeypatch.setenv("OURS", "1")
    home, own, control = in_process(ENTER, str(folder), controller).split()
    assert home.startswith(f"{folder}/canard-run-")
    assert home.endswith(own)
    assert control == controller


def test_a_group_that_others_are_in_too_is_left_alone(delegated):
    folder, controller = delegated
    home, own = in_process(ENTER, str(folder), controller).split()
    assert (home, own) == ("None", f"/{folder.name}")


@pytest.mark.parametrize(("events", "killed"), [
    ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n", True),
    ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", False),  # the machine as a whole had no memory
    ("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n", False),
])
def test_the_events_of_a_group_tell_who_has_killed(tmp_path, events, killed):
    code = """
group = groups.Place("cgroup2", sys.argv[1], sys.argv[1]).make()
open(group.folder + "/memory.events", "w").write(sys.argv[2])
print(group.has_killed())
"""
    assert in_process(code, str(tmp_path), events) == str(killed)
