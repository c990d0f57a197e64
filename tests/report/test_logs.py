"""logs: the latest try of each command; followed without loss while it grows."""

from __future__ import annotations

import pytest

from canard_pipe.errors import InputError
from canard_pipe.pipeline.access import open_view
from canard_pipe.report.logs import follow, latest_tries, whole
from tests.report.made import make


@pytest.fixture
def made(tmp_path):
    state = make(tmp_path)
    yield state
    state.database.close()


@pytest.fixture
def tried(made):
    """A sample with two tries of align and one of call, and a try that the database does not know yet."""
    made.plan("A")
    claim = made.claim()
    made.command(claim, "align", attempt=1, stderr="first try\n")
    second = made.command(claim, "align", attempt=2, stderr="second try\n")
    made.command(claim, "call", stderr="calling\n")
    third = second.with_name("attempt-3")
    third.mkdir()
    (third / "stderr.log").write_text("third try\n")
    claim.fail("no", fatal=True)
    made.database.close()
    return made


def tries_of(made, *arguments, **options):
    with open_view(made.folder, made.launch) as view:
        return latest_tries(view, *arguments, **options)[1]


def test_the_latest_try_of_each_command_is_shown_also_one_that_only_the_disk_knows(tried):
    folders = tries_of(tried, "A")
    assert {(folder.parent.name, folder.name) for folder in folders} == {("align", "attempt-3"), ("call", "attempt-1")}
    assert {piece.text for piece in whole(folders)} == {"third try\n", "calling\n"}


def test_a_step_can_be_chosen(tried):
    (folder,) = tries_of(tried, "A", "call")
    assert folder.parent.name == "call"


def test_an_unknown_step_is_refused_with_those_there_are(tried):
    with pytest.raises(InputError, match="align, call"):
        tries_of(tried, "A", "sort")
    assert tries_of(tried, "A", "sort", may_come=True) == []


def test_a_sample_without_commands_has_no_logs(made):
    made.plan("B")
    made.database.close()
    assert tries_of(made, "B") == []


def test_following_loses_and_repeats_nothing(tmp_path):
    """L23: also not half a character, and not what is written just before the end."""
    log = tmp_path / "stdout.log"
    content = "reads: ä日本 ok\n".encode() * 50
    log.write_bytes(b"")
    pieces = [content[at : at + 7] for at in range(0, len(content), 7)]
    written = 0

    def wait():
        nonlocal written
        if written < len(pieces):
            with log.open("ab") as file:
                file.write(pieces[written])
            written += 1

    found = follow(lambda: ([tmp_path], written == len(pieces)), wait, look_every=3)
    assert "".join(piece.text for piece in found).encode() == content


def test_following_takes_up_a_new_try(tmp_path):
    folders = [tmp_path / "attempt-1", tmp_path / "attempt-2"]
    for folder in folders:
        folder.mkdir()
        (folder / "stderr.log").write_text(folder.name)
    looks = iter([([folders[0]], False), ([folders[1]], True)])
    found = [piece.text for piece in follow(lambda: next(looks), lambda: None, look_every=1)]
    assert found == ["attempt-1", "attempt-2"]


def test_bytes_that_are_not_text_do_not_stop_the_log(tmp_path):
    (tmp_path / "stdout.log").write_bytes(b"\xff\xfe broken \xe6")
    assert "broken" in "".join(piece.text for piece in whole([tmp_path]))
