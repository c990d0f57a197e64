"""Names and contents of the folders of tries, their records, the checks of their outputs."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canard_pipe.execution import endings, folders, outputs, record
from canard_pipe.execution.command import command
from canard_pipe.execution.record import Identity

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(NAMES)
def test_folder_name_is_short_plain_and_stable(name):
    # BUGS 67, 68
    made = folders.safe_name(name)
    assert made == folders.safe_name(name)
    assert 1 <= len(made) <= 64
    assert made.isascii()
    assert not set(made) & set("/ '\"\\$*?\n;&|<>()")
    assert made[0] not in ".-"


@given(NAMES, NAMES)
def test_different_names_have_different_folders_also_where_case_does_not_count(one, other):
    if one != other:
        assert folders.safe_name(one).lower() != folders.safe_name(other).lower()


def test_names_that_only_differ_in_case_or_beyond_the_cut_are_kept_apart():
    assert folders.safe_name("Tumor").lower() != folders.safe_name("tumor").lower()
    assert folders.safe_name("x" * 300) != folders.safe_name("x" * 299)
    assert folders.safe_name("ü") == "%c3%bc"


def test_places_of_commands_never_coincide(tmp_path):
    places = [
        folders.place_of(tmp_path, "s", Identity("s", step, ordinal, "o"))
        for step, ordinal in [("", 1), ("", 2), ("+main", 1), ("align", 1), ("align", 2), ("align.2", 1), ("main", 1)]
    ]
    assert len(set(places)) == len(places)


def test_a_folder_is_never_taken_twice(tmp_path):
    # G28: also when many ask at once, as a stale and a new worker would
    made: list[folders.Attempt] = []
    threads = [
        threading.Thread(target=lambda: made.extend(folders.new(tmp_path / "a" / "b", 0) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(attempt.number for attempt in made) == list(range(1, 81))


def test_tries_are_found_by_number(tmp_path):
    for name in ("attempt-10", "attempt-9", "attempt-0", "attempt-x", "scratch"):
        (tmp_path / name).mkdir()
    assert [attempt.number for attempt in folders.attempts(tmp_path)] == [9, 10]
    assert folders.new(tmp_path, 8).number == 11
    assert folders.attempts(tmp_path / "absent") == []


@pytest.mark.parametrize("place", ["plain", "My Lab's data (2024) ü"])
def test_script_repeats_the_command_by_hand(tmp_path, place):
    # BUGS 67
    folder = tmp_path / place
    folder.mkdir()
    odd = "a 'b' \"c\" $(d) ü \n|"
    made = command([["printf", "%s\n%s\n%s\n%s", odd, "", "{x}", "-"], ["cat"]], {"stdout": "out put.txt"})
    variables = {"PATH": os.environ["PATH"], "ODD": odd, "TMPDIR": "/elsewhere"}
    folders.write_script(folder, made, made.members, variables, "task s1")
    subprocess.run([str(folder / "command.sh")], check=True, cwd="/", timeout=20)
    assert (folder / "out put.txt").read_text() == f"{odd}\n\n{{x}}\n-"


def test_script_holds_no_password_of_a_proxy(tmp_path):
    variables = {"https_proxy": "http://user:secret@proxy",
                 "APPTAINERENV_https_proxy": "http://user:secret@proxy", "HOME": "/home/me", "PATH": "/bin"}
    made = command([["true"]], {})
    folders.write_script(tmp_path, made, made.members, variables, "")
    text = (tmp_path / "command.sh").read_text()
    assert "secret" not in text
    assert 'https_proxy="${https_proxy-}"' in text


def test_last_lines_show_any_bytes_as_text(tmp_path):
    # BUGS 55
    log = tmp_path / "stderr.log"
    log.write_bytes(b"one\n\x1b[31mred\x1b[0m\x00\n10%\r50%\r100%\r\n\x90\xff bad\r\n\n" + "ü".encode())
    assert folders.last_lines(log) == ["one", "red", "100%", "\ufffd\ufffd bad", "ü"]
    assert folders.last_lines(log, 1) == ["ü"]
    assert folders.last_lines(tmp_path / "absent") == []


GOOD = {
    "version": 1, "token": "t", "digest": "d", "task": "s1", "step": "align", "ordinal": 1, "origin": "o", "attempt": 1,
    "members": [{"argv": ["a"], "exit_code": 0, "signal": None}], "exit_code": 0, "signal": None, "cause": None,
    "error": None, "started_at": "2026-11-30T10:00:00.000001Z", "ended_at": "2026-11-30T10:00:01.500000Z",
    "host": "h", "boot_id": "b", "peak_memory_bytes": 1, "cpu_seconds": 0.5, "ended_by": "itself", "oom": False,
    "left_over": 0, "outputs": {"x": 3},
}  # fmt: skip
IDENTITY = Identity("s1", "align", 1, "o")


def written(folder, content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "status.json").write_bytes(text)
    return record.read(folder, IDENTITY)


def test_record_is_read(tmp_path):
    found = written(tmp_path, GOOD)
    assert found is not None
    assert found.succeeded
    assert found.ended_us - found.started_us == 1_499_999
    assert found.outputs == (("x", 3),)


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"attempt"}))
def test_record_that_lacks_something_is_no_record(tmp_path, field):
    assert written(tmp_path, {name: value for name, value in GOOD.items() if name != field}) is None


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"token": ""}, {"digest": None}, {"exit_code": "0"}, {"exit_code": True}, {"members": None},
     {"ended_by": 3}, {"started_at": "yesterday"}, {"outputs": []},
     {"task": "s2"}, {"step": "sort"}, {"ordinal": 2}, {"origin": "p"}],
)  # fmt: skip
def test_record_that_is_broken_or_of_another_command_is_no_record(tmp_path, change):
    assert written(tmp_path, GOOD | change) is None


def test_torn_record_is_no_record(tmp_path):
    whole = json.dumps(GOOD).encode()
    for content in (b"", b"\0" * 100, b"[]", b"null", *(whole[:n] for n in range(1, len(whole), 7))):
        assert written(tmp_path, content) is None


def test_outputs_are_compared_with_what_was_recorded(tmp_path):
    found = record.parse(GOOD)
    assert not found.outputs_as_recorded(tmp_path)
    (tmp_path / "x").write_bytes(b"abc")
    assert found.outputs_as_recorded(tmp_path)
    (tmp_path / "x").write_bytes(b"ab")
    assert not found.outputs_as_recorded(tmp_path)
    assert not record.parse(GOOD | {"outputs": {}}).outputs_as_recorded(tmp_path), "another boot, and nothing to tell"


def problem(folder, name, content=None):
    if content is not None:
        (folder / name).write_bytes(content)
    found = outputs.problems(folder, [name])
    return found[0] if found else None


def test_outputs_that_are_whole_pass(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "quant.sf").write_text("x")
    (tmp_path / "link").symlink_to("folder/quant.sf")
    plain = gzip.compress(b"x", mtime=0)
    bgzf = plain[:3] + b"\x04" + plain[4:10] + b"\x06\x00BC\x02\x00" + b"rest"
    assert problem(tmp_path, "folder") is None
    assert problem(tmp_path, "link") is None
    assert problem(tmp_path, "x.json", b"[1]") is None
    assert problem(tmp_path, "x.bam", bgzf + endings.BGZF_END) is None
    assert problem(tmp_path, "empty.vcf.gz", endings.BGZF_END) is None
    assert outputs.problems(tmp_path, ["folder", "x.json"]) == []


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"", "is empty"),
        ("a.bam", endings.BGZF_END + b"data", "end block"),
        ("a.VCF.gz", endings.BGZF_END[:20], "end block"),
        ("a.bcf", gzip.compress(b"x", mtime=0), "not with bgzip"),
        ("a.bam", b"plain", "not compressed as its name says"),
        ("a.cram", b"CRAM\x03\x00 and more", "CRAM end container"),
        ("a.fq.gz", endings.BGZF_END + b"cut", "end block"),
        ("a.json", b'{"a": ', "not valid JSON"),
        ("a.json", b"\xff", "not valid JSON"),
        ("absent", None, "is missing"),
    ],
)
def test_stumps_are_found(tmp_path, name, content, says):
    # BUGS 20, 25
    assert says in problem(tmp_path, name, content)


def test_odd_outputs_are_found(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert "empty folder" in problem(tmp_path, "folder")
    assert "points to a file that is missing" in problem(tmp_path, "dangling")
    assert "neither a file nor a folder" in problem(tmp_path, "pipe")
