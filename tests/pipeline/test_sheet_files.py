"""The files that a sheet names."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import zlib
from pathlib import Path
from typing import Annotated, Any

import pytest

from canard_pipe.errors import SheetError
from canard_pipe.pipeline.rows import FileCheck, InputFile, SampleRow
from canard_pipe.pipeline.sheet import Sheet, SheetOptions, read_sheet

BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


class Row(SampleRow):
    sample: str
    fastq_1: InputFile
    fastq_2: InputFile | None = None


def bgzf(text: bytes) -> bytes:
    """One BGZF block with ``text``, without the end mark."""
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(text) + packer.flush()
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(packed) + 25)
    return head + packed + struct.pack("<II", zlib.crc32(text), len(text))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "reads").mkdir()
    for name in "abcdefgh":
        (tmp_path / "reads" / f"{name}.fq").write_text(f"@{name}\nA\n+\nI\n")
    return tmp_path


def read(lab: Path, *rows: str, header: str = "sample,fastq_1,fastq_2", model: type[Any] = Row,
         **options: object) -> Sheet[Any]:
    file = lab / "samples.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return read_sheet(file, model, "sample", SheetOptions(**options))  # type: ignore[arg-type]


def problems(lab: Path, *rows: str, **options: object) -> list[str]:
    with pytest.raises(SheetError) as caught:
        read(lab, *rows, **options)  # type: ignore[arg-type]
    return [str(problem).removeprefix(f"{lab / 'samples.csv'}:") for problem in caught.value.problems]


def test_everything_that_is_wrong_with_files_is_told_at_once(lab):
    """BUGS 24 and SHEETS rule 14: missing, folder, unreadable (also for root, by its mode), dangling, empty, FIFO."""
    (lab / "shut.fq").write_text("x")
    (lab / "shut.fq").chmod(0)
    (lab / "dangling.fq").symlink_to(lab / "nowhere")
    (lab / "loop.fq").symlink_to(lab / "loop.fq")
    (lab / "empty.fq").touch()
    (lab / "empty.fq.gz").write_bytes(gzip.compress(b""))
    os.mkfifo(lab / "fifo.fq")
    found = problems(
        lab, "s1,reads/a.fq,", "s2,reads/none.fq,", "s3,reads,", "s4,shut.fq,", "s5,dangling.fq,", "s6,empty.fq,",
        "s7,empty.fq.gz,", "s8,fifo.fq,", "s9,loop.fq,", "s10,reads/a.fq/x,", "s11,s3://bucket/x.fq,",
        "s12,,reads/b.fq", "s13,elsewhere/deep/x.fq,", "s14,reads/b.fq,reads/gone.fq",
    )  # fmt: skip
    expected = [
        "3: column fastq_1: there is no such file: ", "4: column fastq_1: is a folder",
        "5: column fastq_1: nobody may read it (mode 000)", "6: column fastq_1: the link leads nowhere",
        "7: column fastq_1: the file is empty", "8: column fastq_1: the file is empty",
        "9: column fastq_1: is no regular file", "10: column fastq_1: cannot be read, ",
        "11: column fastq_1: there is no such file", "12: column fastq_1: 's3://bucket/x.fq' is an address",
        "13: column fastq_1: missing value", "14: column fastq_1: there is no such file",
        "15: column fastq_2: there is no such file",
    ]  # fmt: skip
    # Line 15 names the file of line 13 a second time, which is told as well.
    twice = [problem for problem in found if "is the same file as in line 13" in problem]
    assert len(twice) == 1
    found = [problem for problem in found if problem not in twice]
    assert len(found) == len(expected)
    for problem, start in zip(found, expected, strict=True):
        assert problem.startswith(start)
    assert f"there is no folder elsewhere in {lab}" in found[11]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else_is_refused(lab):
    (lab / "mine.fq").write_text("x")
    (lab / "mine.fq").chmod(0o040)
    assert "permission denied" in problems(lab, "A,mine.fq,")[0]


def test_paths_are_relative_to_the_sheet_and_absolute_for_the_pipeline(lab, monkeypatch):
    """SHEETS rule 13: wherever one stands; `..` is taken out where that is the same file."""
    elsewhere = lab / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    sheet = read(lab, "A,reads/a.fq,elsewhere/../reads/b.fq", f"B,{lab}/reads/c.fq,")
    assert sheet.samples[0].single.reads == [lab / "reads/a.fq", lab / "reads/b.fq"]
    assert sheet.samples[1].single.reads == [lab / "reads/c.fq"]
    (elsewhere / "d.fq").write_text("x")
    assert read(lab, "A,d.fq,", folder=elsewhere).samples[0].single.reads == [elsewhere / "d.fq"]


def test_dots_behind_a_linked_folder_lead_where_the_system_says(lab):
    (lab / "far/away").mkdir(parents=True)
    (lab / "far/x.fq").write_text("x")
    (lab / "near").symlink_to(lab / "far/away")
    (path,) = read(lab, "A,near/../x.fq,").samples[0].single.reads
    assert path.read_text() == "x"


def test_names_with_blanks_quotes_and_commas_are_files_too(lab):
    """BUGS 53."""
    (lab / 'file{1,2} "x" $HOME.fq').write_text("x")
    (path,) = read(lab, 'A,"file{1,2} ""x"" $HOME.fq",').samples[0].single.reads
    assert path.name == 'file{1,2} "x" $HOME.fq'


def test_variables_are_expanded_by_option_only(lab, monkeypatch):
    """SHEETS rule 13."""
    monkeypatch.setenv("LAB", str(lab))
    monkeypatch.setenv("HOME", str(lab))
    assert "taken as they are" in problems(lab, "A,~/reads/a.fq,")[0]
    sheet = read(lab, "A,~/reads/a.fq,$LAB/reads/b.fq", expand=True)
    assert sheet.samples[0].single.reads == [lab / "reads/a.fq", lab / "reads/b.fq"]
    assert "not set" in problems(lab, "A,$NO_SUCH_LAB/a.fq,", expand=True)[0]


def test_a_file_is_named_once_only_through_whatever_links(lab):
    """SHEETS rule 14: R1 != R2, not in two rows; a folder reached by two ways is one."""
    (lab / "link.fq").symlink_to("reads/a.fq")
    (lab / "more").symlink_to("reads")
    rows = ("A,reads/a.fq,reads/a.fq", "B,reads/b.fq,link.fq", "C,more/b.fq,", "D,reads/./c.fq,reads/d.fq")
    found = problems(lab, *rows)
    assert [problem.split(" (")[0] for problem in found] == [
        "2: column fastq_2: is the same file as fastq_1",
        "3: column fastq_2: is the same file as in line 2, column fastq_1",
        "4: column fastq_1: is the same file as in line 3, column fastq_1",
    ]


def test_the_same_name_in_two_folders_is_two_files(lab):
    (lab / "two").mkdir()
    (lab / "two/a.fq").write_text("y")
    assert len(read(lab, "A,reads/a.fq,two/a.fq").samples[0].single.reads) == 2


def test_files_are_shared_where_the_model_says_so(lab):
    class Tumour(SampleRow):
        sample: str
        bam: InputFile
        normal: Annotated[InputFile, FileCheck(shared=True)]

    rows = ("A,reads/a.fq,reads/c.fq", "B,reads/b.fq,reads/c.fq")
    assert len(read(lab, *rows, header="sample,bam,normal", model=Tumour).samples) == 2


def test_a_cut_bgzf_file_is_known_by_its_missing_end(lab):
    """SHEETS rule 15; plain gzip has no end mark and is read whole by the run."""
    (lab / "whole.fq.gz").write_bytes(bgzf(b"@r\nA\n+\nI\n" * 9) + BGZF_END)
    (lab / "cut.fq.gz").write_bytes(bgzf(b"@r\nA\n+\nI\n" * 9))
    (lab / "tiny.fq.gz").write_bytes(BGZF_END)
    (lab / "plain.fq.gz").write_bytes(gzip.compress(b"@r\nA\n+\nI\n"))
    found = problems(lab, "A,whole.fq.gz,", "B,cut.fq.gz,", "C,plain.fq.gz,", "D,tiny.fq.gz,")
    assert [problem.split(": /")[0] for problem in found] == [
        "3: column fastq_1: the file is cut: it is BGZF, but its end mark is not there",
        "5: column fastq_1: the file is empty",
    ]


def test_checks_are_what_the_model_says(lab):
    class Bam(SampleRow):
        sample: str
        bam: Annotated[InputFile, FileCheck(suffixes=(".bam",), end_mark=False, may_be_empty=True, beside=(".bai",))]
        run: Annotated[InputFile | None, FileCheck(folder=True, shared=True)] = None
        table: Annotated[InputFile, FileCheck(may_be_empty=True)] | None = None

    for name in ("one.bam", "two.BAM", "three.bam", "one.bam.bai", "two.bai"):
        (lab / name).touch()
    rows = ("A,one.bam,reads,", "B,two.BAM,,", "C,three.bam,reads/a.fq,", "D,reads/a.fq,,", "E,one.bam,none,three.bam")
    found = problems(lab, *rows, header="sample,bam,run,table", model=Bam)
    assert [problem.split(": /")[0].split(" (")[0] for problem in found if "same file" not in problem] == [
        "4: column bam: there is no .bai beside the file",
        "4: column run: is no folder",
        "5: column bam: 'a.fq' does not end in .bam",
        "6: column run: there is no such file",
    ]


def test_checksums_are_verified_by_option(lab):
    """SHEETS rule 15."""
    good = hashlib.md5(b"@a\nA\n+\nI\n", usedforsecurity=False).hexdigest()
    sha = hashlib.sha256(b"@b\nA\n+\nI\n").hexdigest().upper()
    header = "sample,fastq_1,fastq_2,fastq_1_md5,md5_2"
    rows = (f"A,reads/a.fq,reads/b.fq,{good},{sha}", f"B,reads/c.fq,,{good},", "C,reads/d.fq,,abc,", "D,reads/e.fq,,,")
    assert len(read(lab, *rows, header=header).samples) == 4
    found = problems(lab, *rows, header=header, checksums=True)
    assert [problem.split(":")[0] for problem in found] == ["3", "4"]
    assert f"not {good}" in found[0]
    assert "'abc' is neither an MD5 nor a SHA-256" in found[1]


def test_bad_rows_are_set_aside_by_option(lab):
    """SHEETS rule 14: the rest can run, and the count still adds up. A sample with one bad row is bad as a whole."""
    rows = ("A,reads/a.fq,", "B,reads/none.fq,", "C,reads/b.fq,", "C,reads/gone.fq,")
    sheet = read(lab, *rows, skip_bad_rows=True)
    assert [sample.key for sample in sheet.samples] == ["A"]
    assert [(sample.key, sample.lines, len(sample.problems)) for sample in sheet.refused] == [
        ("B", (3,), 1), ("C", (4, 5), 1),
    ]  # fmt: skip
    with pytest.raises(SheetError):
        read(lab, "A,reads/none.fq,", skip_bad_rows=True)
    with pytest.raises(SheetError, match="missing value"):
        read(lab, "A,reads/a.fq,", ",reads/b.fq,", skip_bad_rows=True)


def test_the_clean_copy_reads_as_the_sheet_and_has_absolute_paths(lab, tmp_path_factory):
    """SHEETS rule 24."""
    file = lab / "samples.csv"
    text = '\ufeffSample;fastq_1;fastq_2;note\n\n"A; 1";reads/a.fq;;"x, ""y"""\nB;reads/b.fq;reads/c.fq;\n'
    file.write_text(text, encoding="utf-8", newline="\r\n")
    sheet = read_sheet(file, Row, "sample")
    copy = tmp_path_factory.mktemp("record") / "samples.csv"
    copy.write_text(sheet.clean_copy(), encoding="utf-8", newline="")
    assert copy.read_text() == (
        f'Sample,fastq_1,fastq_2,note\nA; 1,{lab}/reads/a.fq,,"x, ""y"""\nB,{lab}/reads/b.fq,{lab}/reads/c.fq,\n'
    )
    again = read_sheet(copy, Row, "sample")
    assert [(sample.key, sample.rows) for sample in again.samples] == [(s.key, s.rows) for s in sheet.samples]


def test_the_shared_sheets_are_read_or_refused_for_the_right_reason(shared_data):
    """The public data's own sheets, and the odd ones beside them."""
    for name, count in (("yeast-chrI", 3), ("sarscov2", 3), ("yeast-rnaseq", 3)):
        assert len(read_sheet(shared_data / name / "samples.csv", Row, "sample").samples) == count
    odd = {path.name: path for path in (shared_data / "odd/sheets").iterdir()}
    for name, keys in {
        "yeast_crlf.csv": ["A", "B", "C"], "yeast_bom_crlf.csv": ["A", "B", "C"], "yeast.tsv": ["A", "B"],
        "yeast_quoted.csv": ["A, tumour 1", 'B "control"'], "numeric_like_ids.csv": ["007", "1e5", "NA"],
        "duplicate_id.csv": ["A"],
    }.items():  # fmt: skip
        assert [sample.key for sample in read_sheet(odd[name], Row, "sample").samples] == keys
    for name, lines in {"ragged_rows.csv": [2, 3], "missing_file.csv": [3], "header_only.csv": [1]}.items():
        with pytest.raises(SheetError) as caught:
            read_sheet(odd[name], Row, "sample")
        assert [problem.line for problem in caught.value.problems] == lines
    with pytest.raises(SheetError) as caught:
        read_sheet(shared_data / "odd/broken/samples.csv", Row, "sample")
    assert [problem.line for problem in caught.value.problems] == [5, 6]
