"""The record of the owner: who may read it, what damage means, and how a process is known."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from canard_pipe.engine import owner_record
from canard_pipe.engine.owner_record import process_start, read_owner, record_path
from canard_pipe.engine.ownership import Ownership
from tests.conftest import wait_until


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "owner.lock"


def test_a_damaged_record_does_not_hinder(lock):
    for text in ("", "{", "[]", '{"host": 1}', "\udcff"):
        record_path(lock).write_bytes(text.encode("utf-8", "surrogateescape"))
        assert read_owner(lock) is None
    with Ownership.take(lock, wait_seconds=0) as ownership:
        assert ownership.predecessor is None


def test_what_a_killed_writer_left_is_removed(lock):
    left = record_path(lock).with_name("owner.json.this-host.1.new")
    left.touch()
    with Ownership.take(lock):
        assert not left.exists()


def test_the_record_is_for_the_user_only(lock):
    """It holds the token."""
    before = os.umask(0)
    try:
        with Ownership.take(lock) as ownership:
            ownership.publish("quack:127.0.0.1:1", "secret")
            ownership.renew()
            assert stat.S_IMODE(record_path(lock).stat().st_mode) == 0o600
            assert [path.name for path in lock.parent.iterdir() if path.name.endswith(".new")] == []
    finally:
        os.umask(before)


def test_a_process_is_known_by_its_start_also_without_proc(monkeypatch, require_tool):
    """macOS: ps tells it."""
    require_tool("ps")
    monkeypatch.setattr(owner_record, "_PROC", Path("/absent"))
    child = subprocess.Popen(["sleep", "600"])
    try:
        started = process_start(child.pid)
        assert started
        assert started == process_start(child.pid)
    finally:
        child.kill()
        wait_until(lambda: process_start(child.pid) is None)  # a zombie
        child.wait()
    assert process_start(child.pid) is None
