from __future__ import annotations

import os
from pathlib import Path

import pytest

from canard_pipe.pipeline import fingerprint
from canard_pipe.pipeline.fingerprint import Fingerprint

ROOT = Path("/launch")


def made(rows=({"sample": "A", "depth": 3},), params=None, files=((10, 20),)):
    return Fingerprint(fingerprint.of_rows(rows, ROOT), fingerprint.of_params(params or {}, ROOT), tuple(files))


def test_equal_values_give_equal_texts_whatever_their_order():
    assert made(({"a": 1, "b": "x"},)).text == made(({"b": "x", "a": 1},)).text
    assert made().changes_since(made().text, ["a.fastq"]) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (made(({"sample": "A", "depth": 4},)), ["column depth"]),
        (made(({"sample": "A", "depth": "3"},)), ["column depth"]),  # a text is not a number
        (made(({"sample": "A", "depth": 3, "extra": {"note": "x"}},)), ["column note"]),
        (made(({"sample": "A"},)), ["column depth"]),
        (made(({"sample": "A", "depth": 3}, {"sample": "A", "depth": 3})), ["2 rows, before 1"]),
        (made(params={"reference": "r.fa"}), ["parameter reference"]),
        (made(files=((11, 20),)), ["file a.fastq"]),
        (made(({"sample": "A", "depth": 4},), {"x": 1}, ((10, 21),)), ["column depth", "parameter x", "file a.fastq"]),
    ],
)
def test_what_differs_is_named(now, said):
    assert now.text != made().text
    assert now.changes_since(made().text, ["a.fastq"]) == said


@pytest.mark.parametrize("before", ["", "null", "{}", "5f2c"])
def test_an_earlier_text_that_cannot_be_read_names_nothing(before):
    assert made().changes_since(before, ["a.fastq"]) == []


def test_files_count_with_size_and_time_and_folders_by_being_there(tmp_path):
    file = tmp_path / "a"
    file.write_text("x")
    before = fingerprint.of_params({"a": file}, ROOT)
    os.utime(file, ns=(1, 1))
    assert fingerprint.of_params({"a": file}, ROOT) != before
    assert fingerprint.signature(tmp_path) == ()


def test_paths_below_the_launch_folder_are_relative(tmp_path):
    """A project can be moved."""
    one, two = (fingerprint.of_rows([{"f": base / "a"}], base) for base in (tmp_path / "x", tmp_path / "y"))
    assert one == two


def test_with_content_a_touched_file_is_the_same_and_other_bytes_are_not(tmp_path, monkeypatch):
    """A copy of a file has another time (BUGS 42, 45): its bytes tell by option, and are read only where needed."""
    file = tmp_path / "a.fq"
    file.write_text("ACGT")
    first = fingerprint.signature_since(file, None, content=True)
    assert len(first) == 3
    os.utime(file, (1, 1))
    assert fingerprint.signature_since(file, first, content=True) == first
    assert fingerprint.signature_since(file, first, content=False) == (4, 1_000_000_000)
    file.write_text("ACGA")
    assert fingerprint.signature_since(file, first, content=True) != first
    last = fingerprint.signature_since(file, first, content=True)
    monkeypatch.setattr(fingerprint, "_checksum", lambda _: pytest.fail("it was read"))
    assert fingerprint.signature_since(file, last, content=True) == last
    assert fingerprint.signature_since(file, last, content=False) == last  # a later run without the option
    assert fingerprint.signatures_in(made(files=(last,)).text) == [list(last)]
    assert fingerprint.signatures_in("damaged") == []
