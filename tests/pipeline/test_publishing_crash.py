"""Publishing across a crash at each of its moments, and across file systems and full disks."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from canard_pipe.errors import PublishError
from canard_pipe.pipeline import placing, staging
from canard_pipe.pipeline.policy import cause_of
from canard_pipe.pipeline.publishing import POINTS
from tests.conftest import absent
from tests.pipeline.publishing_kit import Project, dies, task

SAVED_BEFORE = {"accepted", "aside", "renamed", "synced", "published"}


def finish_and_run_again(project: Project, files: dict[str, Path]) -> list[str]:
    """Do what the next run does: open, finish, sweep, claim, run the step; return the actions of finish()."""
    with project.open() as database:
        settled = project.publisher.finish(database)
        assert project.publisher.finish(database) == []  # it may be repeated
        if settled:
            assert project.staging_files() == []
        project.publisher.sweep(database)
        assert project.staging_files() == []
        claim = database.claim()
        assert claim is not None
        project.publish(claim, files)
        claim.complete()
        assert {state for _, state in project.rows(database)} == {"published"}
        assert len(project.rows(database)) == len(files)
        assert project.publisher.verify(database, thorough=True) == []
    assert project.staging_files() == []
    return [found.action for found in settled]


@pytest.mark.parametrize("hit", range(3))  # with the tests below, each point is hit at least five times
@pytest.mark.parametrize("point", [point for point in POINTS if point != "aside"])
def test_a_crash_leaves_a_whole_file_or_none_and_the_next_run_one(tmp_path, point, hit):
    project = Project(tmp_path / "p")
    made = project.made("a.txt", "whole")
    dies(project.folder, """
        project.with_(at=die_at(sys.argv[1]))
        database = project.open()
        project.publish(task(database), {"a.txt": Path(sys.argv[2])})
    """, point, str(made))
    at_once = project.result_files() if project.results.exists() else {}
    assert at_once == ({"S/a.txt": "whole"} if point in SAVED_BEFORE - {"accepted"} else {})
    actions = finish_and_run_again(project, {"a.txt": made})
    assert actions == ([] if point not in SAVED_BEFORE else ["placed"] if point == "accepted" else ["found"])
    assert project.result_files() == {"S/a.txt": "whole"}


@pytest.mark.parametrize(
    ("point", "how", "hit"),
    [(point, how, 0) for how in ("exchange", "aside") for point in POINTS if point != "aside"]
    + [("aside", "aside", hit) for hit in range(5)],
)
def test_a_crash_while_a_folder_is_replaced_leaves_the_old_or_the_new_one(tmp_path, point, how, hit):
    project = Project(tmp_path / "p")
    with project.open() as database:
        claim = task(database)
        project.publish(claim, {"out": project.made_folder("old", **{"a": "old", "only-old": "old"})})
        claim.complete()
    new = project.made_folder("new", **{"a": "new", "only-new": "new"})
    dies(project.folder, """
        if sys.argv[2] == "aside":
            def cannot(*_):
                raise OSError(22, "Invalid argument")
            placing._renameat2 = cannot
        project.with_(at=die_at(sys.argv[1]))
        database = project.open()
        project.publish(task(database, generation=2), {"out": Path(sys.argv[3])})
    """, point, how, str(new))
    whole = [{"S/out/a": "old", "S/out/only-old": "old"}, {"S/out/a": "new", "S/out/only-new": "new"}]
    assert project.result_files() in (whole if point != "aside" else [{}])
    finish_and_run_again(project, {"out": new})
    assert project.result_files() == whole[1]


@pytest.mark.parametrize("point", ["accepted", "renamed"])
def test_a_crash_between_two_files_of_one_call_is_finished(tmp_path, point):
    project = Project(tmp_path / "p")
    files = {name: project.made(name, name) for name in ("a.bam", "a.bam.bai")}
    dies(project.folder, """
        project.with_(at=die_at(sys.argv[1]))
        database = project.open()
        project.publish(task(database), {Path(path).name: Path(path) for path in sys.argv[2:]})
    """, point, *map(str, files.values()))
    finish_and_run_again(project, files)
    assert project.result_files() == {"S/a.bam": "a.bam", "S/a.bam.bai": "a.bam.bai"}


def test_the_next_attempt_finishes_what_was_accepted_without_finish(tmp_path):
    """A replay before the step was saved finds the acceptance and finishes it rather than failing."""
    project = Project(tmp_path / "p")
    made = project.made("a.txt", "whole")
    dies(project.folder, """
        project.with_(at=die_at("accepted"))
        database = project.open()
        project.publish(task(database), {"a.txt": Path(sys.argv[1])})
    """, str(made))
    with project.open() as database:
        claim = database.claim()
        assert claim is not None
        again = project.made("a.txt", "made again", attempt=2)
        project.publish(claim, {"a.txt": again})
        assert project.rows(database) == [("S/a.txt", "published")]
    assert project.result_files() == {"S/a.txt": "made again"}
    assert project.staging_files() == []


def test_an_acceptance_whose_staged_file_is_gone_is_dropped_and_made_again(tmp_path):
    project = Project(tmp_path / "p")
    made = project.made("a.txt", "whole")
    dies(project.folder, """
        project.with_(at=die_at("accepted"))
        database = project.open()
        project.publish(task(database), {"a.txt": Path(sys.argv[1])})
    """, str(made))
    for path in (project.folder / ".canard" / "staging").iterdir():
        path.unlink()
    assert finish_and_run_again(project, {"a.txt": made}) == ["dropped"]
    assert project.result_files() == {"S/a.txt": "whole"}


def test_sweep_leaves_what_is_accepted(tmp_path):
    project = Project(tmp_path / "p")
    made = project.made("a.txt", "whole")
    dies(project.folder, """
        project.with_(at=die_at("accepted"))
        database = project.open()
        project.publish(task(database), {"a.txt": Path(sys.argv[1])})
    """, str(made))
    with project.open() as database:
        assert project.publisher.sweep(database) == []
        assert [found.action for found in project.publisher.finish(database)] == ["placed"]


def test_a_cancel_finishes_what_was_accepted(tmp_path):
    project = Project(tmp_path / "p")
    with project.open() as database:
        claim = task(database)
        folder = project.made_folder("out", a="a")

        def cancel(point: str) -> None:
            if point == "accepted":
                database.cancel(claim.id)
                actions = [found.action for found in project.publisher.finish(database, claim.seq)]
                assert actions == ["placed"]

        other = Project(project.folder).with_(at=cancel)
        other.publisher.publish(claim, {"out": folder}, "S")  # finds that it was finished by another
        assert project.result_files() == {"S/out/a": "a"}
        assert project.rows(database) == [("S/out", "published")]
        assert project.staging_files() == []


def test_two_that_finish_one_folder_do_not_exchange_it_back(tmp_path):
    """The publisher stands still between record and move while the owner finishes the record, many times."""
    for number in range(10):
        project = Project(tmp_path / f"p{number}")
        with project.open() as database:
            claim = task(database)
            project.publish(claim, {"out": project.made_folder("old", a="old")})
            claim.complete()
            claim = task(database, generation=2)
            barrier = threading.Barrier(2)
            other = Project(project.folder).with_(at=lambda point, b=barrier: b.wait(30) if point == "accepted" else 0)
            new = project.made_folder("new", a="new")
            publisher = threading.Thread(target=other.publisher.publish, args=(claim, {"out": new}, "S"))
            publisher.start()
            barrier.wait(30)
            project.publisher.finish(database)
            publisher.join()
            claim.heartbeat()
            assert project.result_files() == {"S/out/a": "new"}
            assert project.rows(database) == [("S/out", "published")]
            assert project.staging_files() == []


def test_an_exchange_is_never_done_twice(tmp_path, monkeypatch):
    """The second one finds the first at work, waits for it, and sees that nothing is left to do."""
    project = Project(tmp_path / "p")
    exchange, entered, second = placing.exchange, threading.Event(), threading.Event()

    def slow(one: Path, other: Path) -> None:
        if entered.is_set():
            second.set()
        else:
            entered.set()
            second.wait(1)  # what it waits for must not happen
        exchange(one, other)

    with project.open() as database:
        claim = task(database)
        project.publish(claim, {"out": project.made_folder("old", a="old")})
        claim.complete()
        claim = task(database, generation=2)
        monkeypatch.setattr(placing, "exchange", slow)
        new = project.made_folder("new", a="new")
        publisher = threading.Thread(target=project.publisher.publish, args=(claim, {"out": new}, "S"))
        publisher.start()
        assert entered.wait(30)
        assert [found.action for found in project.publisher.finish(database)] == ["found"]
        publisher.join()
        assert not second.is_set()
    assert project.result_files() == {"S/out/a": "new"}


# -- other file systems ------------------------------------------------------------------------------------------


@pytest.fixture
def other_disk(tmp_path):
    """A folder on another file system than tmp_path."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev or not os.access(memory, os.W_OK):
        absent("a second file system")
    folder = memory / f"canard-pipe-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    staging.discard(folder)


def test_results_on_another_file_system_are_staged_there_and_copied(tmp_path, other_disk):
    project = Project(tmp_path / "p")
    project.with_(results=other_disk / "results", work=project.folder / "work", alive=lambda _path: False)
    seen: list[list[str]] = []
    project.with_(at=lambda point: seen.append(project.staging_files()) if point == "staged" else None)
    with project.open() as database:
        claim = task(database)
        files = {"a.txt": project.made("a.txt"), "out": project.made_folder("out", **{"x/b": "b"})}
        project.publish(claim, files)
        claim.complete()
        assert not (tmp_path / "p" / ".canard" / "staging").exists()
        assert len(seen[0]) == 2
        assert project.result_files() == {"S/a.txt": "made\n", "S/out/x/b": "b"}
        assert project.publisher.verify(database, thorough=True) == []
        project.publisher.sweep(database)
    assert sorted(path.name for path in project.results.iterdir()) == ["S"]


def test_a_crash_with_results_on_another_file_system_is_finished(tmp_path, other_disk):
    project = Project(tmp_path / "p").with_(results=other_disk / "results")
    made = project.made("a.txt", "whole")
    dies(project.folder, """
        project.with_(results=Path(sys.argv[1]), at=die_at("accepted"))
        database = project.open()
        project.publish(task(database), {"a.txt": Path(sys.argv[2])})
    """, str(project.results), str(made))
    assert finish_and_run_again(project, {"a.txt": made}) == ["placed"]
    assert project.result_files() == {"S/a.txt": "whole"}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    if os.geteuid() != 0:
        absent("the right to mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        absent("the right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, small_disk):
    project = Project(tmp_path / "p").with_(results=small_disk / "results")
    with project.open() as database:
        claim = task(database)
        big, small = project.made("big", b"x" * 3_000_000), project.made("small")
        with pytest.raises(PublishError, match="disk is full") as caught:
            project.publish(claim, {"small": small, "big": big})
        assert cause_of(caught.value) == {"kind": "disk_full", "target": "S/big"}
        assert project.result_files() == {}
        assert project.rows(database) == []
        project.publish(claim, {"small": small}, step="again")
        assert project.result_files() == {"S/small": "made\n"}


def test_a_read_only_file_system_is_said(tmp_path, small_disk):
    project = Project(tmp_path / "p").with_(results=small_disk / "results")
    project.results.mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with project.open() as database:
        with pytest.raises(PublishError, match="read-only"):
            project.publish(task(database), {"a": project.made("a")})
        assert project.rows(database) == []
