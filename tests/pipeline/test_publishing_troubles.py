"""Publishing when the lease, the database or the file system fails, and looking after what is published."""

from __future__ import annotations

import os
import threading

import pytest

from canard_pipe.errors import LeaseLost, PublishError, StorageError
from canard_pipe.pipeline import placing
from tests.pipeline.publishing_kit import Project, task


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "My Lab's data (2024) ü")  # BUGS 67


@pytest.fixture
def database(project):
    with project.open() as opened:
        yield opened


# -- the lease ---------------------------------------------------------------------------------------------------


def test_a_cancelled_task_never_puts_a_byte_into_the_results(project, database):
    """L13."""
    claim = task(database)
    project.with_(at=lambda point: database.cancel(claim.id) if point == "staged" else None)
    with pytest.raises(LeaseLost):
        project.publish(claim, {"x.txt": project.made("1")})
    assert not project.results.exists()
    assert project.rows(database) == []
    assert project.staging_files() == []


def test_a_stale_worker_never_replaces_what_the_next_attempt_published(project, database):
    """BUGS 8: also while it publishes; its command was ended with its lease (test_leases.py)."""
    stale = task(database, lease_seconds=0.2)
    entered = threading.Event()
    done = threading.Event()
    others = Project(project.folder)

    def pause(point: str) -> None:
        if point == "staged":
            entered.set()
            assert done.wait(30)

    project.with_(at=pause)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            project.publisher.publish(stale, {"x.txt": project.made("1", "stale")}, "S")
        except LeaseLost as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(30)
    fresh = None
    while fresh is None:
        fresh = database.claim()
    others.publish(fresh, {"x.txt": project.made("2", "fresh")})
    done.set()
    thread.join()
    assert len(caught) == 1
    assert project.result_files() == {"S/x.txt": "fresh"}
    assert project.staging_files() == []


# -- what the database or the file system does ---------------------------------------------------------------------


def test_an_acceptance_whose_answer_is_lost_is_found(project):
    fail = threading.Event()

    def lose(name, execute):
        rows = execute()
        if name == "commit" and fail.is_set():
            fail.clear()
            raise StorageError("the connection broke", operation="commit")
        return rows

    with project.open(intercept=lose) as database:
        claim = task(database)
        project.with_(at=lambda point: fail.set() if point == "staged" else None)
        project.publish(claim, {"x.txt": project.made("1")})
        assert project.result_files() == {"S/x.txt": "made\n"}
        assert project.rows(database) == [("S/x.txt", "published")]


def test_an_acceptance_that_was_not_written_leaves_no_result(project):
    fail = threading.Event()

    def lose(name, execute):
        if name == "commit" and fail.is_set():
            fail.clear()
            raise StorageError("the connection broke", operation="commit")
        return execute()

    with project.open(intercept=lose) as database:
        claim = task(database)
        project.with_(at=lambda point: fail.set() if point == "staged" else None)
        with pytest.raises(StorageError, match="broke"):
            project.publish(claim, {"x.txt": project.made("1")})
        assert not project.results.exists()
        project.with_(at=lambda _point: None)
        project.publish(claim, {"x.txt": project.made("1")}, step="again")
        claim.complete()
        project.publisher.sweep(database)
        assert project.staging_files() == []


def test_a_rename_that_fails_leaves_nothing_and_the_old_result(project, database, monkeypatch):
    claim = task(database)
    project.publish(claim, {"x": project.made("1", "old")})
    claim.complete()

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    claim = task(database, generation=2)
    monkeypatch.setattr(placing, "_move", full)
    with pytest.raises(PublishError, match=r"disk is full.*retry"):
        project.publish(claim, {"x": project.made("2", "new")})
    monkeypatch.undo()
    assert project.result_files() == {"S/x": "old"}
    assert project.rows(database) == [("S/x", "published")]
    assert project.staging_files() == []
    assert project.publisher.verify(database, thorough=True) == []
    project.publish(claim, {"x": project.made("2", "new")}, step="again")
    assert project.result_files() == {"S/x": "new"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_results_without_permission_are_an_error_that_says_so(project, database):
    project.results.mkdir()
    project.results.chmod(0o555)
    with pytest.raises(PublishError, match="no permission to write"):
        project.publish(task(database), {"x": project.made("1")})
    project.results.chmod(0o755)
    assert project.staging_files() == []


def test_a_file_where_a_folder_is_needed_is_named(project, database):
    project.results.mkdir()
    (project.results / "S").write_text("a file")
    with pytest.raises(PublishError, match=r"results/S is not a folder"):
        project.publish(task(database), {"x": project.made("1")})


def test_a_folder_of_the_results_that_leads_elsewhere_is_refused(project, database, tmp_path):
    project.results.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (project.results / "S").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PublishError, match="symbolic link"):
        project.publish(task(database), {"x": project.made("1")})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_results_folder_that_is_a_link_is_used(project, database, tmp_path):
    (tmp_path / "big disk").mkdir()
    project.results.symlink_to(tmp_path / "big disk")
    project.publish(task(database), {"x": project.made("1")})
    assert (tmp_path / "big disk" / "S" / "x").read_text() == "made\n"


def test_a_missing_source_is_named(project, database):
    with pytest.raises(PublishError, match=r"nothing\.bam is not there"):
        project.publish(task(database), {"x.bam": project.folder / "nothing.bam"})


def test_what_the_check_finds_is_in_the_error_and_nothing_is_published(project, database):
    project.with_(check=lambda path, _keep_alive: [f"{path.name} is cut off"] if path.name == "b" else [])
    with pytest.raises(PublishError, match="b is cut off") as refused:
        project.publish(task(database), {"a.txt": project.made("a"), "b.txt": project.made("b")})
    assert refused.value.target == "S/b.txt"
    assert not project.results.exists()


# -- afterwards --------------------------------------------------------------------------------------------------


def test_results_deleted_or_changed_by_hand_are_noticed(project, database):
    claim = task(database)
    places = project.publish(claim, {name: project.made(name) for name in ("gone", "longer", "same size", "whole")})
    places["gone"].unlink()
    places["longer"].write_text("something longer")
    places["same size"].write_text("MADE\n")
    quick = {found.target: found.problem for found in project.publisher.verify(database)}
    assert quick == {"S/gone": "is gone", "S/longer": "differs in kind or size from what was published"}
    thorough = project.publisher.verify(database, thorough=True)
    assert {found.target for found in thorough} == {"S/gone", "S/longer", "S/same size"}
    assert {found.task_id for found in thorough} == {claim.id}


def test_a_deleted_result_is_published_again(project, database):
    claim = task(database)
    project.publish(claim, {"x": project.made("1", "old")})["x"].unlink()
    claim.complete()
    project.publish(task(database, generation=2), {"x": project.made("2", "new")})
    assert project.result_files() == {"S/x": "new"}


def test_publishing_the_same_again_reads_and_writes_nothing(project, database):
    """A crash after the rename and before the step was saved: the replay reuses what is there."""
    claim = task(database)
    made = project.made("1")
    os.utime(made, (1_000, 1_000))
    claim.step_name = "publish"
    place = project.publisher.publish(claim, {"x": made}, "S")["x"]
    claim.heartbeat()  # carries the row that says published
    inode = place.stat().st_ino
    points: list[str] = []
    project.with_(at=points.append)
    assert project.publisher.publish(claim, {"x": made}, "S") == {"x": place}
    assert place.stat().st_ino == inode
    assert "renamed" not in points


def test_sweep_leaves_what_a_running_attempt_stages(project, database):
    claim = task(database)
    folder = project.folder / ".canard" / "staging"
    folder.mkdir()
    running = folder / f"{claim.seq}-{claim.attempt}-0a1b2c3d-77"
    earlier = folder / f"{claim.seq}-{claim.attempt + 7}-0a1b2c3d-77.old"
    of_others = folder / "notes.txt"
    for path in (running, of_others):
        path.write_text("x")
    (earlier / "inner").mkdir(parents=True)
    (earlier / "inner").chmod(0o500)
    assert project.publisher.sweep(database) == [earlier]
    assert sorted(folder.iterdir()) == sorted([running, of_others])
