"""Publishing: what reaches the results folder, and what never does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from canard_pipe.errors import LeaseLost, PublishError
from canard_pipe.pipeline import placing, staging
from tests.pipeline.publishing_kit import Project, task


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "My Lab's data (2024) ü")  # BUGS 67


@pytest.fixture
def database(project):
    with project.open() as opened:
        yield opened


def test_a_published_file_is_in_its_place_and_recorded_and_nothing_else_is_left(project, database):
    claim = task(database)
    places = project.publish(claim, {"a b ü.txt": project.made("a.txt"), "qc/b.txt": project.made("b.txt", "b")})
    assert places == {"a b ü.txt": project.results / "S/a b ü.txt", "qc/b.txt": project.results / "S/qc/b.txt"}
    assert project.result_files() == {"S/a b ü.txt": "made\n", "S/qc/b.txt": "b"}
    assert project.rows(database) == [("S/a b ü.txt", "published"), ("S/qc/b.txt", "published")]
    assert project.staging_files() == []
    assert not (project.results / ".canard-staging").exists()


def test_paths_in_the_record_are_relative_to_the_launch_folder(project, database):
    project.publish(task(database), {"a.txt": project.made("a.txt")})
    ((source, staged),) = database.store.sql("SELECT source, staging FROM canard_absurd.outputs")[1]
    assert source == "work/attempt-1/a.txt"
    assert staged.startswith(".canard/staging/")


def test_size_and_checksum_are_those_of_the_file(project, database):
    project.publish(task(database), {"a.txt": project.made("a.txt", "abc")})
    row = database.store.sql("SELECT size, checksum FROM canard_absurd.outputs")[1]
    assert row == [(3, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")]


def test_a_link_is_published_as_the_file_it_stands_for(project, database):
    made = project.made("a.txt")
    link = made.with_name("link.txt")
    link.symlink_to("a.txt")
    place = project.publish(task(database), {"a.txt": link})["a.txt"]
    assert place.is_file()
    assert not place.is_symlink()


# -- hard links and copies ---------------------------------------------------------------------------------------


def test_a_copy_shares_nothing_with_the_try(project, database):
    made = project.made("a.txt")
    place = project.publish(task(database), {"a.txt": made})["a.txt"]
    made.write_text("written later by a process of the try")
    assert place.read_text() == "made\n"
    assert place.stat().st_mode & 0o200


def test_a_file_of_a_dead_try_is_linked_and_read_only(project, database, monkeypatch):
    monkeypatch.setattr(staging, "_reflink", lambda *_: False)
    made = project.made("a.txt")
    project.with_(work=project.folder / "work", alive=lambda _path: False)
    place = project.publish(task(database), {"a.txt": made})["a.txt"]
    assert place.samefile(made)
    assert place.stat().st_mode & 0o222 == 0


def test_a_file_that_a_hidden_process_has_open_for_writing_is_copied_and_never_changes_in_its_place(
    project, database, monkeypatch
):
    """A stale tool that goes on writing reaches its own file only."""
    monkeypatch.setattr(staging, "_reflink", lambda *_: False)
    made = project.made("a.txt")
    project.with_(work=project.folder / "work", alive=lambda _path: False)
    text = "import sys; f = open(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read(); f.write('more')"
    writer = subprocess.Popen(
        [sys.executable, "-c", text, made], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    place = project.publish(task(database), {"a.txt": made})["a.txt"]
    writer.communicate()
    assert made.read_text() == "made\nmore"
    assert place.read_text() == "made\n"
    assert project.publisher.verify(database, thorough=True) == []


def test_a_file_with_another_name_is_never_made_read_only(project, database):
    """A tool may have linked an input of the user into its try."""
    of_the_user = project.made("input.txt")
    made = of_the_user.with_name("a.txt")
    made.hardlink_to(of_the_user)
    project.with_(work=project.folder / "work", alive=lambda _path: False)
    place = project.publish(task(database), {"a.txt": made})["a.txt"]
    assert not place.samefile(made)
    assert of_the_user.stat().st_mode & 0o200


def test_an_input_of_the_user_is_never_made_read_only(project, database, tmp_path):
    reference = tmp_path / "reference.fa"
    reference.write_text(">chr1\n")
    project.with_(work=project.folder / "work", alive=lambda _path: False)
    place = project.publish(task(database), {"reference.fa": reference})["reference.fa"]
    assert not place.samefile(reference)
    assert reference.stat().st_mode & 0o200


def test_a_linked_file_can_be_published_again(project, database):
    """rename() does nothing and says so to nobody if both names are one file already."""
    made = project.made("a.txt")
    project.with_(work=project.folder / "work", alive=lambda _path: False)
    claim = task(database)
    project.publish(claim, {"a.txt": made})
    os.utime(made)  # so that it is not taken for done
    project.publish(claim, {"a.txt": made}, step="again")
    assert project.result_files() == {"S/a.txt": "made\n"}
    assert project.staging_files() == []


def test_times_are_kept_so_that_an_index_stays_newer_than_its_file(project, database):
    bam, bai = project.made("a.bam"), project.made("a.bam.bai")
    os.utime(bam, (1_000, 1_000))
    os.utime(bai, (2_000, 2_000))
    places = project.publish(task(database), {"a.bam.bai": bai, "a.bam": bam})
    assert places["a.bam"].stat().st_mtime == 1_000
    assert places["a.bam.bai"].stat().st_mtime == 2_000


def test_a_source_that_is_still_written_is_refused(project, database):
    made = project.made("big.bin", b"x" * 20_000_000)

    def grow() -> None:
        with made.open("ab") as file:
            file.write(b"y")

    with pytest.raises(PublishError, match="something still writes to it"):
        project.publish(task(database), {"big.bin": made}, keep_alive=grow)
    assert project.result_files() == {}
    assert project.staging_files() == []


def test_long_work_keeps_the_lease_alive_and_stops_when_it_is_lost(project, database):
    claim = task(database)
    made = project.made("big.bin", b"x" * 20_000_000)
    calls: list[int] = []

    def beat() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise LeaseLost(claim.id, claim.attempt, operation="heartbeat")

    with pytest.raises(LeaseLost):
        project.publish(claim, {"big.bin": made}, keep_alive=beat)
    assert project.result_files() == {}
    assert project.staging_files() == []


# -- folders -----------------------------------------------------------------------------------------------------


def test_a_folder_is_published_and_replaced_whole(project, database):
    claim = task(database)
    project.publish(claim, {"salmon": project.made_folder("one", **{"quant.sf": "1", "aux/meta.json": "{}"})})
    assert project.result_files() == {"S/salmon/aux/meta.json": "{}", "S/salmon/quant.sf": "1"}
    claim.complete()
    later = task(database, generation=2)
    project.publish(later, {"salmon": project.made_folder("two", **{"quant.sf": "2", "logs/x": "x"})})
    assert project.result_files() == {"S/salmon/logs/x": "x", "S/salmon/quant.sf": "2"}
    assert project.staging_files() == []


def test_a_folder_is_replaced_where_folders_cannot_be_exchanged(project, database, monkeypatch):
    def cannot(_one: Path, _other: Path, _flags: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(placing, "_renameat2", cannot)
    claim = task(database)
    project.publish(claim, {"out": project.made_folder("one", a="1")})
    claim.complete()
    project.publish(task(database, generation=2), {"out": project.made_folder("two", b="2")})
    assert project.result_files() == {"S/out/b": "2"}
    assert project.staging_files() == []


def test_a_folder_takes_the_place_of_a_file_and_the_other_way_round(project, database):
    claim = task(database)
    project.publish(claim, {"out": project.made("file", "1")})
    claim.complete()
    claim = task(database, generation=2)
    project.publish(claim, {"out": project.made_folder("folder", a="2")})
    assert project.result_files() == {"S/out/a": "2"}
    claim.complete()
    project.publish(task(database, generation=3), {"out": project.made("file3", "3")})
    assert project.result_files() == {"S/out": "3"}
    assert project.staging_files() == []


def test_a_link_inside_a_folder_stays_a_link(project, database):
    folder = project.made_folder("out", **{"a.txt": "a"})
    (folder / "b.txt").symlink_to("a.txt")
    place = project.publish(task(database), {"out": folder})["out"]
    assert (place / "b.txt").readlink() == Path("a.txt")


@pytest.mark.parametrize("leads_to", ["../outside.txt", "{absolute}", "nowhere.txt"])
def test_a_link_that_leaves_its_folder_is_refused(project, database, leads_to):
    outside = project.made("outside.txt")
    folder = project.made_folder("out", **{"a.txt": "a"})
    (folder / "b.txt").symlink_to(leads_to.format(absolute=outside))
    with pytest.raises(PublishError, match="symbolic link"):
        project.publish(task(database), {"out": folder})
    assert project.result_files() == {}
    assert project.staging_files() == []


def test_a_pipe_or_socket_is_refused(project, database, tmp_path):
    folder = project.made_folder("out", **{"a.txt": "a"})
    os.mkfifo(folder / "pipe")
    claim = task(database)
    with pytest.raises(PublishError, match="pipe, socket or device"):
        project.publish(claim, {"out": folder})
    with socket.socket(socket.AF_UNIX) as server:
        place = tmp_path / "socket"
        server.bind(str(place))
        with pytest.raises(PublishError, match="neither a file nor a folder"):
            project.publish(claim, {"out": place}, step="again")
    assert project.staging_files() == []


def test_a_file_that_appears_in_a_folder_meanwhile_is_noticed(project, database):
    folder = project.made_folder("out", **{"a.txt": "a" * 5_000_000})

    def appear() -> None:
        (folder / "late.txt").write_text("late")

    with pytest.raises(PublishError, match="something still writes"):
        project.publish(task(database), {"out": folder}, keep_alive=appear)
    assert project.staging_files() == []
