"""File systems are judged by what they do, on real folders; the bad ones are made by taking an ability away."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from canard_pipe.execution.health import filesystems


def levels(findings):
    return [finding.level for finding in findings]


def test_a_local_folder_is_well_and_nothing_stays_in_it(tmp_path):
    found = list(filesystems.check_state(tmp_path / "not" / "yet", "ext4"))
    assert "locks keep other processes out" in found[0].message
    assert "fail" not in levels(found)
    assert next(filesystems.check_folder("work", tmp_path, "ext4")).level == "ok"
    assert "linked" in filesystems.check_publishing(tmp_path, tmp_path / "results").message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "tmpfs"])
def test_a_state_on_the_network_or_in_memory_is_warned_about_by_name(tmp_path, kind):
    first = next(filesystems.check_state(tmp_path, kind))
    assert first.level == "warn"
    assert kind in first.message
    assert "--state DIR" in first.way_out


def test_a_file_system_that_has_no_locks_fails(tmp_path, monkeypatch):
    def no_locks(_file, _how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = [finding for finding in filesystems.check_state(tmp_path, "nfs") if finding.level == "fail"]
    assert [finding.message for finding in found] == [f"{tmp_path} (nfs) has no locks (flock: No locks available)"]


@pytest.mark.parametrize(("status", "which"), [(1, "(flock)"), (2, "(POSIX lock)"), (3, "neither")])
def test_locks_that_do_not_keep_another_process_out_fail(tmp_path, monkeypatch, status, which):
    monkeypatch.setattr(filesystems, "_OTHER", f"raise SystemExit({status})")
    (bad,) = [finding for finding in filesystems.check_state(tmp_path, "nfs") if finding.level == "fail"]
    assert "two processes hold one lock" in bad.message
    assert which in bad.message


def test_the_other_process_does_ask_for_both_locks(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"")
    free = subprocess.run([sys.executable, "-c", filesystems._OTHER, *map(str, paths)], check=False)
    assert free.returncode == 3


def test_writing_that_takes_long_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystems, "SLOW_SYNC_SECONDS", -1.0)
    assert "every saved step waits" in list(filesystems.check_state(tmp_path, "ext4"))[-1].message


def test_a_rename_that_does_not_replace_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.replace", lambda self, target: target)  # noqa: ARG005
    found = list(filesystems.check_folder("work", tmp_path, "odd"))
    assert levels(found) == ["fail"]
    assert "a rename does not replace" in found[0].message


def test_a_folder_that_cannot_be_written_to_fails(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    findings = [
        *filesystems.check_state(tmp_path, "ext4"), *filesystems.check_folder("work", tmp_path, "ext4"),
        filesystems.check_publishing(tmp_path, tmp_path), filesystems.check_server_clock(tmp_path),
    ]  # fmt: skip
    assert len(findings) == 4
    for found in findings:
        assert found.level == "fail"
        assert "Read-only" in found.message


def test_files_that_cannot_be_linked_are_copied(tmp_path, monkeypatch):
    def across(_self, _target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("pathlib.Path.hardlink_to", across)
    assert "copied" in filesystems.check_publishing(tmp_path, tmp_path).message


def test_the_type_of_a_file_system_is_the_one_of_its_mount():
    assert filesystems.kind_of(Path("/proc")) == "proc"


@pytest.mark.parametrize(
    ("free", "files", "level"),
    [(50e6, None, "fail"), (2e9, None, "warn"), (500e9, 100, "warn"), (500e9, None, "ok"), (500e9, 10**6, "ok")],
)
def test_space_is_judged(tmp_path, free, files, level):
    found = filesystems.space_finding(["state", "work"], tmp_path, free, files)
    assert found.level == level
    assert "state and work" in found.message


def test_folders_on_one_file_system_are_one_line(tmp_path):
    found = list(filesystems.check_space({"state": tmp_path / "a", "work": tmp_path, "results": tmp_path}))
    assert len(found) == 1
    assert "for state, work and results" in found[0].message


@pytest.mark.parametrize(("ahead", "words"), [(90, "behind"), (-90, "ahead of"), (0, None)])
def test_a_file_server_of_another_time_is_warned_about(tmp_path, ahead, words):
    """``ahead``: this machine's clock before the file server's."""
    found = filesystems.check_server_clock(tmp_path, wall=lambda: time.time() + ahead)
    assert found.level == ("ok" if words is None else "warn")
    assert words is None or f"90 s {words}" in found.message
