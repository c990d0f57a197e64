"""The machine's checks, with clocks and limits given."""

from __future__ import annotations

import resource

import pytest

from canard_pipe.execution.health import machine, programs

MANY = resource.RLIM_INFINITY


def limits(**given):
    by_number = {getattr(resource, f"RLIMIT_{name}"): value for name, value in given.items()}
    return lambda number: (by_number.get(number, MANY), MANY)


@pytest.mark.parametrize(
    ("given", "bad"),
    [
        ({}, []),
        ({"NOFILE": 4096, "NPROC": 5000}, []),
        ({"NOFILE": 256}, ["a process may open 256 files"]),
        ({"NPROC": 120}, ["only 20 more processes may be started (limit 120)"]),
        ({"AS": 8 << 30}, ["the address space of a process is limited to 8.0 GiB: tools that map files fail"]),
    ],
)
def test_limits_that_are_low_are_named(given, bad):
    found = machine.check_limits(limits(**given), lambda: 100)
    assert [finding.message for finding in found if finding.level == "warn"] == bad


def test_the_real_limits_can_be_read():
    assert next(iter(machine.check_limits())).topic == "limits"


class Clock:
    def __init__(self, *, start: float = 1.8e9, jump: float = 0.0):
        self.now, self.mono, self.jump = start, 0.0, jump

    def sleep(self, seconds):
        self.now += seconds + self.jump
        self.mono += seconds


@pytest.mark.parametrize(
    ("clock", "level"),
    [(Clock(), "ok"), (Clock(jump=-3600.0), "warn"), (Clock(jump=0.4), "warn"), (Clock(start=5.0), "fail")],
)
def test_a_clock_that_is_wrong_or_being_set_is_found(clock, level):
    assert machine.check_clock(lambda: clock.now, lambda: clock.mono, clock.sleep).level == level


def test_other_platforms_are_said():
    assert [machine.check_platform(name).level for name in ("Linux", "Darwin", "Windows")] == ["ok", "warn", "fail"]


def test_settings_beyond_the_machine_are_warned_about():
    assert next(machine.check_resources(None, None)).level == "ok"
    assert next(machine.check_resources(10_000, None)).level == "warn"
    assert next(machine.check_resources(None, 1 << 60)).level == "warn"


@pytest.fixture
def path(tmp_path):
    """A folder with programs; give their names and texts."""

    def make(**texts):
        for name, text in texts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    return make


def test_a_tool_tells_its_version_by_option_or_in_its_usage(path):
    environ = path(
        good='[ "$1" = --version ] && echo "good 1.2.3"',
        usage='[ -n "$1" ] && exit 1; echo "Program: usage 5.0 x"; echo "Version: 0.7.17" >&2; exit 1',
        silent="exit 0",
    )
    found = programs.check_tools(["good", "usage", "silent", "not-there"], environ)
    assert [finding.level for finding in found] == ["ok", "ok", "ok", "fail"]
    assert found[0].message.endswith("good 1.2.3")
    assert found[1].message.endswith("Version: 0.7.17")
    assert found[2].message.endswith("tells no version")
    assert found[3].message == "not-there is not on PATH"


def test_a_tool_that_hangs_is_left(path):
    environ = path(hangs="exec sleep 60")
    assert programs.version_of(f"{environ['PATH'].partition(':')[0]}/hangs", environ, seconds=0.2) is None
