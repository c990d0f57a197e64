"""Reading the text of a sheet: encodings, line ends, delimiters, quoting, blank lines, headers."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canard_pipe.errors import InputError, Problem, SheetError
from canard_pipe.pipeline.rows import SampleRow
from canard_pipe.pipeline.sheet import Sheet, SheetOptions, read_sheet


class Row(SampleRow):
    sample: str
    note: str | None = None


class Three(SampleRow):
    sample: str
    fastq_1: str
    note: str


def sheet(path: Path, content: bytes | str, name: str = "samples.csv") -> Path:
    file = path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def pairs(read: Sheet[Row]) -> list[tuple[str, str | None]]:
    return [(sample.key, row.note) for sample in read.samples for row in sample.rows]


def problems(path: Path, rows: type[SampleRow] = Row, **options: object) -> list[str]:
    with pytest.raises(SheetError) as caught:
        read_sheet(path, rows, "sample", SheetOptions(**options))  # type: ignore[arg-type]
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


TABLE = [["sample", "note"], ["007", "one, two; three\tfour"], ["1e5", 'say "yes"'], ["NA", ""]]
ALIKE = [("007", "one, two; three\tfour"), ("1e5", 'say "yes"'), ("NA", None)]


def written(delimiter: str, quoting: int, blank: int | None, blank_line: str) -> str:
    lines = []
    for row in TABLE:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerow(row)  # type: ignore[arg-type]
        lines.append(out.getvalue())
    if blank is not None:
        lines.insert(blank, blank_line)
    return "".join(lines)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
@pytest.mark.parametrize(("delimiter", "name"), [(",", "s.csv"), ("\t", "s.tsv"), ("\t", "s.csv"), (";", "s.csv"),
                                                 (",", "s.tsv"), (";", "s.txt"), (",", "s.txt"), ("\t", "s.txt")])
def test_every_spelling_of_a_sheet_gives_the_same_samples(tmp_path, end, mark, delimiter, name):
    """SHEETS rules 1-4 and 7, BUGS 51, 52, 53, 66: the whole matrix."""
    for quoting, blank, blank_line in itertools.product(
        (csv.QUOTE_MINIMAL, csv.QUOTE_ALL), (None, 0, 2, 4), ("\n", delimiter * 3 + "\n", " \t \n")
    ):
        text = written(delimiter, quoting, blank, blank_line)
        for last in (text, text.rstrip("\n")):
            data = mark + last.replace("\n", end).encode()
            read = read_sheet(sheet(tmp_path, data, name), Row, "sample")
            assert pairs(read) == ALIKE


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_its_mark_is_read(tmp_path, encoding):
    """SHEETS rule 1, BUGS 51."""
    data = "\ufeffsample,note\r\nä,b\r\n".encode(encoding)
    assert pairs(read_sheet(sheet(tmp_path, data), Row, "sample")) == [("ä", "b")]


def test_bytes_of_another_encoding_are_named_by_line_and_column(tmp_path):
    """SHEETS rule 1: each line of them, and Latin-1 by option."""
    file = sheet(tmp_path, "sample,note\nA,x\nB,für\nC,y\nD,é\n".encode("latin-1"))
    found = problems(file)
    assert len(found) == 2
    assert found[0].startswith("3: character 4 of the line (byte 0xFC) is not UTF-8")
    assert "--encoding latin-1" in found[0]
    assert found[1].startswith("5: character 3")
    assert pairs(read_sheet(file, Row, "sample", SheetOptions(encoding="latin-1")))[1] == ("B", "für")


def test_utf_16_without_its_mark_and_other_nul_are_refused(tmp_path):
    (problem,) = problems(sheet(tmp_path, "sample,note\nA,b\n".encode("utf-16-le")))
    assert problem.startswith("1: character 2 of the line is NUL")


def test_an_unknown_encoding_is_told(tmp_path):
    assert "unknown encoding 'klingon'" in problems(sheet(tmp_path, "sample\nA\n"), encoding="klingon")[0]


def test_line_numbers_are_those_of_the_file(tmp_path):
    """SHEETS rule 4, BUGS 52: after comments, blank lines and line breaks in quotes, also with CR only."""
    text = '# made by hand\n\nsample,note\nA,"one\ntwo\n\nthree"\nC,x,y\n,,\nB\n\n,x\n'
    for end in ("\n", "\r\n", "\r"):
        found = problems(sheet(tmp_path, text.replace("\n", end)))
        assert [problem.split(":")[0] for problem in found] == ["8", "10", "12"]
        assert "line 8 has 3 cells, header has 2" in found[0]
        assert "line 10 has 1 cell, header has 2" in found[1]
        assert "column sample: missing value" in found[2]


def test_quoted_cells_keep_delimiters_quotes_and_line_breaks(tmp_path):
    """SHEETS rule 3, BUGS 53."""
    file = sheet(tmp_path, '"sample","fastq_1","note"\ns1,"file{1,2}.fq.gz","Smith, lab"\ns2, "a b" ,"x ""y""\nz"\n')
    assert "2" not in problems(file, Three)[0].split(":")[0]  # only the blank after a closing quote is refused
    file = sheet(tmp_path, '"sample","fastq_1","note"\ns1,"file{1,2}.fq.gz","Smith, lab"\ns2, "a b","x ""y""\nz"\n')
    read = read_sheet(file, Three, "sample")
    assert [(row.fastq_1, row.note) for sample in read.samples for row in sample.rows] == [
        ("file{1,2}.fq.gz", "Smith, lab"), ("a b", 'x "y"\nz'),
    ]  # fmt: skip


def test_a_quote_that_is_never_closed_is_named_where_it_opens(tmp_path):
    found = problems(sheet(tmp_path, 'sample,note\nA,b\nB,"c\nD,e\nE,f\n'))
    assert [problem.split(" (")[0] for problem in found] == ['3: a quote']
    assert "never closed" in found[0]


def test_text_after_a_closing_quote_is_refused_and_the_next_line_is_read(tmp_path):
    found = problems(sheet(tmp_path, 'sample,note\nA,"b"c\nB,d,e\n'))
    assert [problem.split(":")[0] for problem in found] == ["2", "3"]


def test_short_rows_are_padded_by_option_only(tmp_path):
    """SHEETS rule 6, BUGS 65."""
    file = sheet(tmp_path, "sample,fastq_1,note,lane\nA,x,y\nB,x,y,z,1\n")
    found = problems(file, Three)
    assert found[0].startswith("2: line 2 has 3 cells, header has 4")
    assert found[1].startswith("3: line 3 has 5 cells, header has 4")
    file = sheet(tmp_path, "sample,note\nA\n")
    assert pairs(read_sheet(file, Row, "sample", SheetOptions(pad=True))) == [("A", None)]


def test_another_delimiter_is_told_and_never_taken_from_rows(tmp_path):
    """SHEETS rule 2, BUGS 65 and 66."""
    read = read_sheet(sheet(tmp_path, "sample;note\nA;b,c\n"), Row, "sample")
    assert "semicolons" in read.notes[0]
    assert pairs(read) == [("A", "b,c")]
    assert pairs(read_sheet(sheet(tmp_path, "sample\nA;b\n"), Row, "sample")) == [("A;b", None)]
    assert pairs(read_sheet(sheet(tmp_path, "sample|note\nA|b\n"), Row, "sample", SheetOptions(delimiter="|"))) == [
        ("A", "b")
    ]
    assert pairs(read_sheet(sheet(tmp_path, "sep=|\nsample|note\nA|b\n"), Row, "sample")) == [("A", "b")]


def test_comments_end_at_the_header(tmp_path):
    """SHEETS rule 4: a # row below it is a row, and said."""
    read = read_sheet(sheet(tmp_path, "# one\n#two\nsample,note\n#3,x\n"), Row, "sample")
    assert pairs(read) == [("#3", "x")]
    assert any("line 4" in note for note in read.notes)


def test_header_names_are_trimmed_and_compared_without_case(tmp_path):
    """SHEETS rule 5, BUGS 70."""
    for header in (" Sample , note", "\u00a0SAMPLE\u00a0,Note", "\ufeffsample,note"):
        assert pairs(read_sheet(sheet(tmp_path, f"{header}\nA,b\n"), Row, "sample")) == [("A", "b")]


def test_an_empty_column_without_a_name_is_left_out_with_a_note(tmp_path):
    """SHEETS rule 5, BUGS 70: `id,fasta,`, with rows of either width."""
    read = read_sheet(sheet(tmp_path, "sample,,note,\nA,,b,\nB,,c\n"), Row, "sample")
    assert pairs(read) == [("A", "b"), ("B", "c")]
    assert read.columns == ("sample", "note")
    assert any("column 2, 4 has neither a name nor a value" in note for note in read.notes)
    assert "1: column 3 has no name, but a value in line 3" in problems(
        sheet(tmp_path, "sample,note,\nA,b,\nB,c,d\n")
    )[0]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("sample,sample", "the header has 'sample' twice"),
        ("sample,Sample", "the same column as 'sample'"),
        ('sample,note"', "stray quote"),
        ("sample,nota", "did you mean 'note'?"),
        ("sampel,note", "did you mean 'sample'?"),
        ("A,B", "--no-header --columns"),
    ],
)
def test_a_bad_header_is_refused_with_the_way_out(tmp_path, header, message):
    """SHEETS rule 5, BUGS 70. A misspelled optional column is no column of unknown meaning."""
    found = problems(sheet(tmp_path, f"{header}\nA,b\n"))
    assert any(message in problem and problem.startswith("1:") for problem in found), found
    assert len(found) == 1


def test_unknown_columns_are_kept_and_listed_once(tmp_path):
    """SHEETS rule 5."""
    read = read_sheet(sheet(tmp_path, "sample,batch,Run Date\nA,b1,\nB,b2,2026\n"), Row, "sample")
    assert read.samples[1].single.extra == {"batch": "b2", "Run Date": "2026"}
    assert sum("batch, Run Date" in note for note in read.notes) == 1


def test_packed_sheets_and_standard_input(tmp_path, monkeypatch):
    """SHEETS rule 2."""
    packed = sheet(tmp_path, gzip.compress(b"sample\tnote\nA\tb\n"), "samples.tsv.gz")
    assert pairs(read_sheet(packed, Row, "sample")) == [("A", "b")]
    assert "damaged" in problems(sheet(tmp_path, packed.read_bytes()[:-9], "cut.csv.gz"))[0]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"sample;note\nA;b\n")))
    assert pairs(read_sheet("-", Row, "sample")) == [("A", "b")]


@pytest.mark.parametrize("name", ["s.xlsx", "s.xls", "s.ods", "project.yaml"])
def test_workbooks_and_projects_are_refused_with_the_way_out(tmp_path, name):
    """SHEETS rule 20."""
    found = problems(sheet(tmp_path, "x", name))
    assert "save as CSV" in found[0]
    assert "its own reader" in found[0]


def test_a_workbook_under_another_name_is_known_by_its_content(tmp_path):
    assert "save as CSV" in problems(sheet(tmp_path, b"PK\x03\x04rest"))[0]


@pytest.mark.parametrize(
    ("content", "message"), [("", "is empty"), ("\n# x\n", "is empty"), ("sample,note\n", "no rows")]
)
def test_a_sheet_without_rows_is_refused(tmp_path, content, message):
    assert message in problems(sheet(tmp_path, content))[0]


def test_a_missing_sheet_and_a_folder_are_told(tmp_path):
    assert "there is no such sheet" in problems(tmp_path / "none.csv")[0]
    assert "is a folder" in problems(tmp_path)[0]


def test_a_list_without_header(tmp_path):
    """SHEETS rule 19: fetchngs."""
    file = sheet(tmp_path, "SRR1\n\nSRR2\n", "ids.txt")
    read = read_sheet(file, Row, None, SheetOptions(columns=("sample",)))
    assert [(sample.key, sample.lines) for sample in read.samples] == [("SRR1", (1,)), ("SRR2", (3,))]
    assert "2: line 2 has 2 cells, the list of columns has 1" in problems(
        sheet(tmp_path, "A\nB,C\n"), columns=("sample",)
    )[0]


V1 = """[Header],,,,
IEMFileVersion,4,,,
Date,"1,2",,,
[Reads],,,,
151,,,,
[Settings]
[Data],,,,
Lane,Sample_ID,index,Sample_Project,
1,S1,ACGT,p,,
2,S1,ACGT,p
,,,,
1,007,TTTT,,
"""
V2 = """\ufeff[Header]
FileFormatVersion,2

[BCLConvert_Data]
Sample_ID,Index
A,AC
B,GT

[Cloud_Data]
Sample_ID
X
""".replace("\n", "\r\n")


def test_illumina_sheets_of_both_versions(tmp_path):
    """SHEETS rule 18: padded and unpadded lines, key (Sample_ID, Lane) or Sample_ID."""

    class Illumina(SampleRow):
        Sample_ID: str
        Lane: int | None = None

    read = read_sheet(sheet(tmp_path, V1), Illumina)
    lines = [(sample.key, sample.lines) for sample in read.samples]
    assert lines == [("S1/1", (9,)), ("S1/2", (10,)), ("007/1", (12,))]
    assert read.samples[0].single.extra == {"index": "ACGT", "Sample_Project": "p"}
    read = read_sheet(sheet(tmp_path, V2), Illumina)
    assert [(sample.key, sample.lines) for sample in read.samples] == [("A", (6,)), ("B", (7,))]
    assert "no section" in problems(sheet(tmp_path, "[Header]\n[Reads]\n"), Illumina)[0]


def test_a_json_list_of_texts(tmp_path):
    """SHEETS rule 21: numbers are refused, since 007 and 1.10 cannot be had back from them."""
    file = sheet(tmp_path, '[{"sample": "007", "note": null},\n {"sample": " 1e5 ",\n  "lane": "1"}]', "s.json")
    read = read_sheet(file, Row, "sample")
    assert pairs(read) == [("007", None), ("1e5", None)]
    assert read.samples[1].lines == (2,)
    assert read.samples[1].single.extra == {"lane": "1"}
    found = problems(sheet(tmp_path, '[{"sample": 7},\n["A"],\n{"sample": "A", "sample": "B"}]', "s.json"))
    assert [problem.split(":")[0] for problem in found] == ["1", "2", "3"]
    assert 'put it in quotes: "7"' in "".join(found)
    assert "nested too deeply" in problems(sheet(tmp_path, "[" * 100_000, "s.json"))[0]
    for text in ("{}", '[{"sample": "A"}', '[{"sample": "A"} x]', "[1] 2", '[{"sample": A}]'):
        assert "is not valid JSON" in problems(sheet(tmp_path, text, "s.json"))[0]


def test_the_pipelines_own_reader(tmp_path):
    """SHEETS rule 20: covers every other shape; its mistakes are told as those of a sheet."""

    def reads(path: Path):
        return ({"sample": line, "note": None} for line in path.read_text().split())

    def broken(path: Path):
        raise KeyError(path.name)

    file = sheet(tmp_path, "A B 007", "list.xyz")
    read = read_sheet(file, Row, "sample", SheetOptions(reader=reads))
    assert pairs(read) == [("A", None), ("B", None), ("007", None)]
    assert "broken failed: KeyError" in problems(file, reader=broken)[0]
    with pytest.raises(SheetError, match=r"list.xyz \(row of <lambda>\):1: column sample: 7 is not a text"):
        read_sheet(file, Row, "sample", SheetOptions(reader=lambda _: [{"sample": 7}]))  # type: ignore[dict-item]


def test_impossible_options_are_refused():
    for options in ({"delimiter": "||"}, {"columns": ("a", "a")}, {"max_key_length": 0}):
        with pytest.raises(InputError):
            SheetOptions(**options)


def test_the_digest_is_that_of_the_bytes_and_the_text_is_decoded(tmp_path):
    """SHEETS rule 22."""
    one = read_sheet(sheet(tmp_path, b"\xef\xbb\xbfsample,note\r\nA,b\r\n"), Row, "sample")
    assert one.text == "sample,note\nA,b\n"
    assert one.digest != read_sheet(sheet(tmp_path, b"sample,note\nA,b\n"), Row, "sample").digest
    assert len(one.digest) == 64


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12).map(str.strip)


@given(
    rows=st.lists(st.tuples(st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True), CELL), min_size=1, max_size=8,
                  unique_by=lambda row: row[0]),
    delimiter=st.sampled_from(",;\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)  # fmt: skip
def test_whatever_a_csv_writer_writes_is_read_as_it_was(tmp_path_factory, rows, delimiter, quoting):
    """SHEETS rules 3 and 7."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting).writerows([("sample", "note"), *rows])
    file = sheet(tmp_path_factory.mktemp("sheet"), out.getvalue())
    read = read_sheet(file, Row, "sample")
    assert pairs(read) == [(sample, note or None) for sample, note in rows]


@given(
    content=st.one_of(
        st.binary(max_size=80),
        st.text(st.sampled_from('sample,note;\t\n\r"\'#[]{}:A0\u00a0\u2028é'), max_size=60).map(str.encode),
        st.text(st.sampled_from('A,;\t\n\r"# '), max_size=40).map(lambda text: f"sample,note\n{text}".encode()),
    ),
    name=st.sampled_from(["s.csv", "s.tsv", "s.txt", "s.json"]),
)
def test_any_bytes_are_a_sheet_or_a_list_of_problems_with_their_lines(tmp_path_factory, content, name):
    """Nobody sees a traceback for a mistake of their own."""
    file = sheet(tmp_path_factory.mktemp("any"), content, name)
    lines = content.count(b"\n") + content.count(b"\r") + 1
    read: Sheet[Row] | None = None
    told: tuple[Problem, ...] = ()
    try:
        read = read_sheet(file, Row)
    except SheetError as error:
        told = error.problems
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in told)
    if read is None:
        assert told
    else:
        assert read.samples
        assert all(sample.key == sample.rows[0].sample for sample in read.samples)
