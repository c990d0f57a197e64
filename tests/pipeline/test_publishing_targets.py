"""Publishing: names of results, and two that want one place."""

from __future__ import annotations

import os
import shutil
import threading

import pytest

from canard_pipe.errors import PublishError
from tests.pipeline.publishing_kit import Project, task


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "My Lab's data (2024) ü")  # BUGS 67


@pytest.fixture
def database(project):
    with project.open() as opened:
        yield opened


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", "", ".", "..", ".canard-staging", ".CANARD-staging", "a\nb", "\udcff", "x" * 256,
     "ü" * 128, "/".join(["d" * 200] * 25)],
)
def test_a_name_that_no_result_can_have_is_refused(project, database, name):
    with pytest.raises(PublishError) as refused:
        project.publish(task(database), {name: project.made("a.txt")}, subfolder="" if "staging" in name else "S")
    assert len(str(refused.value)) > 20
    assert not project.results.exists()


def test_the_longest_name_is_published(project, database):
    name = "ü" * 127 + "x"
    assert project.publish(task(database), {name: project.made("a.txt")})[name].read_text() == "made\n"


@pytest.mark.parametrize(("one", "other"), [("A.txt", "a.txt"), ("\u00e9", "e\u0301"), ("x/a", "X/A"), ("a//b", "a/b")])
def test_two_names_of_one_file_in_one_call_are_refused(project, database, one, other):
    files = {one: project.made("1"), other: project.made("2")}
    with pytest.raises(PublishError, match="same file"):
        project.publish(task(database), files)
    assert not project.results.exists()


def test_a_result_inside_another_result_is_refused(project, database):
    files = {"out": project.made_folder("out", a="a"), "out/b": project.made("b")}
    claim = task(database)
    with pytest.raises(PublishError, match="would lie inside"):
        project.publish(claim, files)
    project.publish(claim, {"out": files["out"]}, step="first")
    with pytest.raises(PublishError, match="would lie inside S/out"):
        project.publish(claim, {"Out/b": files["out/b"]}, step="second")
    assert project.result_files() == {"S/out/a": "a"}


# -- two that want one place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["x.txt", "X.TXT"])
def test_two_samples_with_one_target_are_an_error_that_names_both(project, database, target):
    first = task(database, "one")
    project.publish(first, {"x.txt": project.made("1", "one")})
    second = task(database, "two")
    with pytest.raises(PublishError) as refused:
        project.publish(second, {target: project.made("2", "two"), "other.txt": project.made("3")})
    assert first.id in str(refused.value)
    assert second.id in str(refused.value)
    assert refused.value.target == f"S/{target}"
    assert project.result_files() == {"S/x.txt": "one"}
    assert project.staging_files() == []


def test_of_many_tasks_that_accept_one_target_at_the_same_moment_one_wins(project, database):
    """They may be gathered into one transaction: one refused call must not take another along."""
    claims = [task(database, f"s{number}") for number in range(8)]
    barrier = threading.Barrier(len(claims))
    project.with_(at=lambda point: barrier.wait(20) if point == "staged" else None)
    errors: dict[str, Exception] = {}

    def run(number: int) -> None:
        files = {"x.txt": project.made(f"x{number}", str(number)), f"{number}.txt": project.made(f"own{number}")}
        if number >= 6:
            del files["x.txt"]
        try:
            project.publish(claims[number], files)
        except PublishError as error:
            errors[claims[number].id] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(claims))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 5
    (winner,) = [number for number in range(6) if claims[number].id not in errors]
    assert all(claims[winner].id in str(error) for error in errors.values())
    expected = {"S/x.txt": str(winner)} | {f"S/{number}.txt": "made\n" for number in (winner, 6, 7)}
    assert project.result_files() == dict(sorted(expected.items()))
    assert project.staging_files() == []


def test_of_calls_gathered_into_one_statement_the_first_gets_the_target_whole(database):
    """The engine commits what waits together; a refused call must leave none of its rows."""
    def row(call: str, key: str) -> dict[str, object]:
        return {"target_key": key, "target": key, "kind": "file", "source": "s", "staging": "t",
                "accept_id": f"{call}-{key}", "call": call, "replaces": None, "size": 1, "checksum": "c",
                "task_seq": 1, "attempt": 1}

    rows = [row("2", "x"), row("1", "x"), row("2", "own 2"), row("1", "own 1"), row("3", "own 3")]
    database.write("accept_outputs", rows)
    found = database.store.sql("SELECT accept_id FROM canard_absurd.outputs ORDER BY ALL")[1]
    assert found == [("1-own 1",), ("1-x",), ("3-own 3",)]


def test_a_later_generation_replaces_its_own_result(project, database):
    claim = task(database)
    project.publish(claim, {"x.txt": project.made("1", "old")})
    claim.complete()
    project.publish(task(database, generation=2), {"x.txt": project.made("2", "new")})
    assert project.result_files() == {"S/x.txt": "new"}
    assert project.rows(database) == [("S/x.txt", "published")]


def test_an_earlier_generation_cannot_replace_a_later_result(project, database):
    old, new = task(database), task(database, generation=2)
    project.publish(new, {"x.txt": project.made("2", "new")})
    with pytest.raises(PublishError, match="later generation"):
        project.publish(old, {"x.txt": project.made("1", "old")})
    assert project.result_files() == {"S/x.txt": "new"}


def test_two_steps_of_one_task_with_one_target_and_other_content_are_an_error(project, database):
    """BUGS 23: reports of lanes under one name; never silent replacement."""
    claim = task(database)
    project.publish(claim, {"qc.txt": project.made("1", "lane 1")}, step="lane 1")
    with pytest.raises(PublishError, match="step 'lane 1'"):
        project.publish(claim, {"qc.txt": project.made("2", "lane 2")}, step="lane 2")
    project.publish(claim, {"qc.txt": project.made("3", "lane 1")}, step="the same content")
    assert project.result_files() == {"S/qc.txt": "lane 1"}


def test_a_file_of_somebody_else_is_never_overwritten(project, database):
    foreign = project.results / "S" / "x.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of the user")
    claim = task(database)
    with pytest.raises(PublishError, match=r"x\.txt is there already.*move it away"):
        project.publish(claim, {"x.txt": project.made("1")})
    assert foreign.read_text() == "of the user"
    assert project.rows(database) == []
    foreign.unlink()
    project.publish(claim, {"x.txt": project.made("1")}, step="again")
    assert project.result_files() == {"S/x.txt": "made\n"}


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_what_lies_there_already_and_is_the_same_is_taken_over(project, database, folder):
    """BUGS 22: after the state was lost, the same line makes it anew beside the results that it had published."""
    made = project.made("1")
    if folder:
        (made.parent / "d").mkdir()
        made = made.rename(made.parent / "d" / "x.txt").parent
    name = "d" if folder else "x.txt"
    there = project.results / "S" / name
    there.parent.mkdir(parents=True)
    shutil.copytree(made, there) if folder else shutil.copy(made, there)
    project.publish(task(database), {name: made})
    assert [row[0] for row in database.store.sql("SELECT state FROM canard_absurd.outputs")[1]] == ["published"]
    assert project.result_files() == {f"S/{name}/x.txt" if folder else "S/x.txt": "made\n"}
    assert project.staging_files() == []


def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(project, database):
    foreign = project.results / "S" / "x.txt"

    def appear(point: str) -> None:
        if point == "accepted":
            foreign.parent.mkdir(parents=True, exist_ok=True)
            foreign.write_text("of the user")

    project.with_(at=appear)
    with pytest.raises(PublishError, match="move it away"):
        project.publish(task(database), {"x.txt": project.made("1")})
    assert project.result_files() == {"S/x.txt": "of the user"}
    assert project.rows(database) == []
    assert project.staging_files() == []


def test_a_result_that_was_edited_by_hand_is_not_replaced_without_a_word(project, database):
    claim = task(database)
    place = project.publish(claim, {"x.txt": project.made("1", "old")})["x.txt"]
    claim.complete()
    place.write_text("mod")
    with pytest.raises(PublishError, match="was changed after"):
        project.publish(task(database, generation=2), {"x.txt": project.made("2", "new")})
    assert project.result_files() == {"S/x.txt": "mod"}


def test_a_result_that_was_only_touched_is_replaced(project, database):
    claim = task(database)
    place = project.publish(claim, {"x.txt": project.made("1", "old")})["x.txt"]
    claim.complete()
    os.utime(place)
    project.publish(task(database, generation=2), {"x.txt": project.made("2", "new")})
    assert project.result_files() == {"S/x.txt": "new"}
