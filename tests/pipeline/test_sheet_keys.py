"""What names a sample: keys as typed, groups of rows, twins, and folder names."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canard_pipe.errors import InputError, SheetError
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheet import Sheet, SheetOptions, read_sheet
from canard_pipe.pipeline.sheets.folders import LONGEST, assign_folders, decode_folder
from canard_pipe.pipeline.sheets.keys import check_part, twins

NASTY = ["007", "1e5", "1.10", "TRUE", "NA", "nan", "a b", "a.b", "a-b", "ä", "x" * 200, "=1+1"]
MORE = [
    "0000012.122204", "1_000", "2024-01-01", "12 345", "<b>", "$(id)", "A;B", "*", "%41", "~", "a+b", "None", "0", "a.",
]  # fmt: skip


class Row(SampleRow):
    sample: str
    note: str | None = None


class Pair(SampleRow):
    patient: str
    sample: str


def read(folder: Path, rows: Sequence[tuple[str, ...]], key: object = "sample", model: type[Any] = Row,
         **options: object) -> Sheet[Any]:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    file = folder / "samples.csv"
    file.write_text(out.getvalue(), newline="")
    return read_sheet(file, model, key, SheetOptions(**options))  # type: ignore[arg-type]


def problems(folder: Path, rows: Sequence[tuple[str, ...]], *args: object, **options: object) -> list[str]:
    with pytest.raises(SheetError) as caught:
        read(folder, rows, *args, **options)  # type: ignore[arg-type]
    return [str(problem).rpartition("samples.csv:")[2] for problem in caught.value.problems]


def distinct(names: list[str]) -> bool:
    return len({name.casefold() for name in names}) == len(names)


def test_nasty_names_come_back_as_typed_and_have_safe_folders(tmp_path):
    """SHEETS rules 7, 8, 11 and the test matrix; BUGS 19, 28."""
    names = NASTY + MORE
    sheet = read(tmp_path, [("sample", "note"), *((name, "0") for name in names)])
    assert [sample.key for sample in sheet.samples] == names
    assert [sample.single.sample for sample in sheet.samples] == names
    assert {sample.single.note for sample in sheet.samples} == {"0"}
    folders = [sample.folder for sample in sheet.samples]
    assert distinct(folders)
    for name, folder in zip(names, folders, strict=True):
        assert len(folder.encode()) <= LONGEST
        assert not folder.startswith((".", "-", "~"))
        (tmp_path / "made" / folder).mkdir(parents=True)
        assert decode_folder(folder) == (name if len(name) <= 80 else None)
    plain = ["007", "1e5", "1.10", "TRUE", "NA", "nan", "a.b", "a-b", "1_000", "2024-01-01"]
    assert [folders[names.index(name)] for name in plain] == plain


def test_007_and_7_are_two_samples(tmp_path):
    """BUGS 19."""
    sheet = read(tmp_path, [("sample",), ("007",), ("7",)])
    assert [(sample.key, sample.folder) for sample in sheet.samples] == [("007", "007"), ("7", "7")]
    assert any("'007' (line 2), '7' (line 3)" in note for note in sheet.notes)


def test_names_are_never_split_and_rows_of_one_name_stay_together(tmp_path):
    """BUGS 5 and 23: CONTROL_1 and CONTROL_2 are two samples, the two rows of PE one, in the order of the sheet."""
    sheet = read(tmp_path, [("sample", "note"), ("PE", "b"), ("CONTROL_1", "x"), ("PE", "a"), ("CONTROL_2", "x")])
    assert [(sample.key, sample.lines) for sample in sheet.samples] == [
        ("PE", (2, 4)), ("CONTROL_1", (3,)), ("CONTROL_2", (5,)),
    ]  # fmt: skip
    assert [row.note for row in sheet.samples[0].rows] == ["b", "a"]
    assert any("PE (2 rows)" in note for note in sheet.notes)
    with pytest.raises(InputError, match=r"sample PE has 2 rows \(lines 2, 4\)"):
        _ = sheet.samples[0].single


def test_two_patients_never_become_one_sample(tmp_path):
    """BUGS 4: refused by the name alone, two samples with the declared key; also when the model ignores the column."""
    rows = [("patient", "sample"), ("5perc", "normal"), ("10perc", "normal")]
    for model in (Pair, Row):
        (found,) = problems(tmp_path, rows, "sample", model)
        assert found.startswith("3: column patient: sample 'normal' is of '5perc' in line 2 and of '10perc' here")
        assert 'key=("patient", "sample")' in found
    sheet = read(tmp_path, rows, ("patient", "sample"), Pair)
    assert [(sample.key, sample.parts, sample.folder) for sample in sheet.samples] == [
        ("5perc/normal", ("5perc", "normal"), "5perc+normal"),
        ("10perc/normal", ("10perc", "normal"), "10perc+normal"),
    ]


def test_the_key_is_the_first_known_column_when_none_is_declared(tmp_path):
    """SHEETS rule 9, and it is said which."""
    for header, expected in (
        (("batch", "Sample_ID", "sample_name"), "B"), (("batch", "id", "sample"), "C"), (("batch", "x", "y"), "A"),
    ):  # fmt: skip
        sheet = read(tmp_path, [header, ("A", "B", "C")], None, SampleRow)
        assert [sample.key for sample in sheet.samples] == [expected]
        assert any(note.startswith("samples are named by the column") for note in sheet.notes)


def test_a_declared_key_without_a_column_is_told(tmp_path):
    assert "did you mean 'Sample'?" in problems(tmp_path, [("Sample ", "x"), ("A", "b")], "sampel", SampleRow)[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a/b", "cannot hold /"), (".a", "begin with a dot"), ("-a", "begin with a dash"), ("a\nb", "U+000A"),
        ("a\u00a0b", "U+00A0 (NO-BREAK SPACE)"), ("a\u200bb", "U+200B (ZERO WIDTH SPACE)"), ("a\tb", "U+0009"),
        ("ä" * 128, "256 bytes, 255"), ("x" * 201, "201 characters, 200"), ("", "missing value"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_used_is_refused(tmp_path, name, message):
    """SHEETS rule 11."""
    found = problems(tmp_path, [("sample", "note"), (name, "x"), ("B", "y")])
    assert len(found) == 1
    assert found[0].startswith("2: column sample: ")
    assert message in found[0]


def test_names_too_long_for_task_ids_are_refused_with_the_rest(tmp_path):
    """DESIGN section 3, identity."""
    found = problems(tmp_path, [("sample", "note"), ("x" * 11, ""), ("x" * 10, ""), ("", "y")], max_key_length=10)
    assert [problem.split(":")[0] for problem in found] == ["2", "4"]


def test_rows_that_are_the_same_are_refused(tmp_path):
    found = problems(tmp_path, [("sample", "note"), ("A", "x"), ("B", "x"), ("A", "x"), ("A", "x")])
    assert [problem.split(" (")[0] for problem in found] == [
        "4: this row is the same as line 2", "5: this row is the same as line 2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "pair", [("A", "a"), ("a b", "ab"), ("a-b", "a_b"), ("S01", "S1"), ("é", "e\u0301"), ("1", "\uff11")]
)
def test_twins_are_noted_or_refused(tmp_path, pair):
    """SHEETS rule 12."""
    rows = [("sample", "note"), (pair[0], "x"), ("other", "x"), (pair[1], "x")]
    sheet = read(tmp_path, rows)
    assert [sample.key for sample in sheet.samples] == [pair[0], "other", pair[1]]
    assert sum("easily mistaken" in note for note in sheet.notes) == 1
    (found,) = problems(tmp_path, rows, twins="refuse")
    assert found.startswith("4: column sample: ")


def test_what_differs_in_more_is_no_twin():
    assert twins(["1.05", "1.5", "10", "100", "a.b", "a-b", "NA", "nan", "S10", "S1"]) == []


def test_rows_of_a_sample_that_differ_beyond_lanes_are_noted(tmp_path):
    class Strand(SampleRow):
        sample: str
        lane: str
        strandedness: str

    sheet = read(
        tmp_path, [("sample", "lane", "strandedness"), ("A", "1", "auto"), ("A", "2", "forward"), ("B", "1", "auto")],
        "sample", Strand,
    )  # fmt: skip
    assert "the rows of a sample differ in strandedness: A" in sheet.notes
    assert not any("lane" in note for note in sheet.notes)


def test_plain_keys_are_their_own_folders():
    keys = ["A", "sample_1", "S-1.2", "007"]
    assert assign_folders(keys) == {key: key for key in keys}


def test_keys_that_differ_in_case_have_folders_of_their_own_in_any_order():
    """SHEETS rule 11: unique without regard to case."""
    one, two = assign_folders(["A", "a", "B"]), assign_folders(["B", "a", "A"])
    assert one == two
    assert one["B"] == "B"
    assert distinct(list(one.values()))
    assert {decode_folder(folder) for folder in one.values()} == {"A", "a", "B"}


def test_folders_given_by_earlier_runs_are_kept():
    """A new sample named a must not move the results of A."""
    folders = assign_folders(["a", "A", "b"], {"A": "A", "gone": "B"})
    assert folders["A"] == "A"
    assert distinct([*folders.values(), "B"])


def test_a_sample_named_cohort_does_not_meet_the_cohort_folder():
    for name in ("cohort", "Cohort"):
        folder = assign_folders([name])[name]
        assert folder.casefold() != "cohort"
        assert decode_folder(folder) == name


KEY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=120).filter(lambda key: check_part(key) is None)
KEYS = st.lists(st.one_of(KEY, st.text("aAbB+%~/.-_", min_size=1, max_size=90)), max_size=12, unique=True)


@given(keys=KEYS, order=st.randoms())
def test_folders_are_distinct_bounded_reversible_and_blind_to_order(keys, order):
    """SHEETS rule 11, for any printable keys."""
    folders = assign_folders(keys)
    shuffled = list(keys)
    order.shuffle(shuffled)
    assert assign_folders(shuffled) == folders
    assert distinct(list(folders.values()))
    for key, folder in folders.items():
        assert folder.isascii()
        assert "/" not in folder
        assert 0 < len(folder) <= LONGEST
        assert decode_folder(folder) in (key, None)
        if len(folder) < 80 or "~" not in folder:
            assert decode_folder(folder) == key


@given(known=KEYS, keys=KEYS)
def test_new_folders_keep_clear_of_known_ones(known, keys):
    earlier = assign_folders(known)
    folders = earlier | assign_folders(keys, earlier)
    assert all(folders[key] == earlier[key] for key in known)
    assert distinct(list(folders.values()))


@given(keys=st.lists(KEY, min_size=1, max_size=6, unique_by=str.strip))
def test_every_possible_name_comes_back_from_a_sheet(tmp_path_factory, keys):
    """SHEETS rule 7: only outer blanks are removed."""
    keys = [key.strip() for key in keys]
    keys = [key for key in keys if check_part(key) is None and key]
    if not keys:
        return
    sheet = read(tmp_path_factory.mktemp("keys"), [("sample", "note"), *((key, str(n)) for n, key in enumerate(keys))])
    assert [sample.key for sample in sheet.samples] == keys


def test_names_that_cannot_be_used_are_mapped_if_asked(tmp_path):
    """Rule 11: said in a note, and what the pipeline sees is what names the sample."""
    file = tmp_path / "s.csv"
    file.write_text("sample,note\nrun7/A,1\n-x,2\n.y,3\nrun7/A,4\nplain,5\n")
    with pytest.raises(SheetError) as refused:
        read_sheet(file, Row)
    assert len(refused.value.problems) == 4
    sheet = read_sheet(file, Row, options=SheetOptions(map_names=True))
    assert [sample.key for sample in sheet.samples] == ["run7_A", "_x", "_y", "plain"]
    assert [row.sample for row in sheet.samples[0].rows] == ["run7_A", "run7_A"]
    (note,) = [note for note in sheet.notes if "could not be used" in note]
    assert "'run7/A' is called 'run7_A'" in note


@pytest.mark.parametrize("names", [["a/b", "a_b"], ["a_b", "a/b"], ["-x", ".x"]])
def test_no_two_names_are_mapped_to_one(tmp_path, names):
    """Rule 11: two samples stay two, or nothing runs."""
    file = tmp_path / "s.csv"
    file.write_text("sample,note\n" + "".join(f"{name},{at}\n" for at, name in enumerate(names)))
    with pytest.raises(SheetError, match="would both be called"):
        read_sheet(file, Row, options=SheetOptions(map_names=True))
