"""Checks of results and input files: what is whole, what is not, and a crash of the check itself."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import threading
from pathlib import Path

import psutil
import pysam
import pytest

from canard_pipe.errors import PublishError
from canard_pipe.pipeline.checker import Checker
from canard_pipe.pipeline.checks import check_input, check_output, end_problem, read_gzip
from tests.pipeline.publishing_kit import Project, task

READS = b"@r1\nACGT\n+\nIIII\n" * 1000


@pytest.fixture
def checker():
    with Checker() as opened:
        yield opened


@pytest.fixture
def bam(tmp_path: Path) -> Path:
    """A whole BAM of 2,000 alignments."""
    path = tmp_path / "whole.bam"
    header = {"HD": {"VN": "1.6"}, "SQ": [{"SN": "chr1", "LN": 100_000}]}
    with pysam.AlignmentFile(str(path), "wb", header=header) as file:
        for number in range(2_000):
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.query_sequence = f"r{number}", "ACGT" * 10
            read.reference_id, read.reference_start, read.cigarstring = 0, number * 10, "40M"
            file.write(read)
    return path


@pytest.fixture
def empty_vcf(tmp_path: Path) -> Path:
    """A right result without records: a control that equals the reference."""
    path = tmp_path / "control.vcf.gz"
    header = pysam.VariantHeader()
    header.contigs.add("chr1", 1000)
    header.add_sample("S")
    with pysam.VariantFile(str(path), "wz", header=header):
        pass
    return path


def cut(path: Path, size: int, name: str | None = None) -> Path:
    """Write the first ``size`` bytes of a file beside it; a negative size takes that many off its end."""
    place = path.with_name(name or f"cut.{path.name}")
    place.write_bytes(path.read_bytes()[:size])
    return place


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# -- results -----------------------------------------------------------------------------------------------------


def test_whole_results_pass(tmp_path, bam, empty_vcf, checker):
    pysam.index(str(bam))
    (tmp_path / "folder").mkdir()
    written(tmp_path / "folder" / "x", b"x")
    results = [
        bam, bam.with_name("whole.bam.bai"), empty_vcf, tmp_path / "folder",
        written(tmp_path / "a.json", b'{"reads": 1}'),
        written(tmp_path / "a.txt", b"text"),
        written(tmp_path / "a.fastq.gz", gzip.compress(READS)),
        written(tmp_path / "joined.fastq.gz", gzip.compress(READS) + gzip.compress(READS)),
        written(tmp_path / "empty.bed.gz", gzip.compress(b"")),
    ]
    assert {path.name: checker.output(path) for path in results if checker.output(path)} == {}


def test_a_bam_without_its_end_block_is_refused(bam, checker):
    """BUGS 25: samtools itself reads it and ends with 0."""
    assert checker.output(cut(bam, -28)) == [f"{bam.with_name('cut.whole.bam')} is cut off: it has no BGZF end block"]


def test_a_bam_cut_in_the_middle_is_refused(bam, checker):
    (problem,) = checker.output(cut(bam, bam.stat().st_size // 2))
    assert "no BGZF end block" in problem


def test_a_bam_whose_header_is_damaged_is_refused_by_opening_it(bam, checker):
    damaged = bytearray(bam.read_bytes())
    damaged[20:40] = bytes(20)
    path = written(bam.with_name("damaged.bam"), bytes(damaged))
    assert end_problem(path) is None
    (problem,) = checker.output(path)
    assert "cannot be opened" in problem


def test_an_unaligned_bam_passes(tmp_path, checker):
    path = tmp_path / "unaligned.bam"
    with pysam.AlignmentFile(str(path), "wb", header={"HD": {"VN": "1.6"}}):
        pass
    assert checker.output(path) == []


@pytest.mark.parametrize("version", ["3.0", "2.1"])
def test_a_cram_without_its_end_container_is_refused(tmp_path, bam, checker, version):
    reference = written(tmp_path / "ref.fa", b">chr1\n" + b"A" * 100_000 + b"\n")
    cram = tmp_path / "whole.cram"
    pysam.view("-T", str(reference), "-O", f"cram,version={version}", "-o", str(cram), str(bam), catch_stdout=False)
    assert checker.output(cram) == []
    (problem,) = checker.output(cut(cram, -10))
    assert "no CRAM end container" in problem


def test_a_vcf_compressed_with_gzip_is_refused(tmp_path, empty_vcf, checker):
    plain = written(tmp_path / "plain.vcf.gz", gzip.compress(gzip.decompress(empty_vcf.read_bytes())))
    (problem,) = checker.output(plain)
    assert "not with bgzip" in problem


def test_a_vcf_that_is_none_is_refused(tmp_path, checker):
    (problem,) = checker.output(written(tmp_path / "a.vcf", b"chr1\t1\t.\tA\tC\n"))
    assert "cannot be opened" in problem


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.bam", "a.fastq.gz"])
def test_a_result_of_0_bytes_is_refused(tmp_path, checker, name):
    """BUGS 20, and a full disk that the tool did not notice."""
    path = written(tmp_path / name, b"")
    assert checker.output(path) == [f"{path} is empty (0 bytes)"]


def test_missing_special_and_empty_results_are_refused(tmp_path, checker):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    found = [checker.output(tmp_path / name) for name in ("missing", "pipe", "folder", "link")]
    assert [[problem.partition(" ")[2] for problem in problems] for problems in found] == [
        ["is not there"], ["is not a regular file"], ["is an empty folder"],
        ["cannot be read: No such file or directory"],
    ]


@pytest.mark.parametrize("content", [b'{"reads": ', b"[" * 100_000, b"\xff\xfe", b"{} {}"])
def test_json_that_does_not_parse_is_refused(tmp_path, checker, content):
    (problem,) = checker.output(written(tmp_path / "a.json", content))
    assert "is not whole JSON" in problem


def test_an_index_of_an_earlier_version_is_refused(bam, checker):
    pysam.index(str(bam))
    index = bam.with_name("whole.bam.bai")
    when = bam.stat().st_mtime
    os.utime(index, (when, when - 1))  # written together with the file
    assert checker.output(bam) == []
    os.utime(index, (when, when - 60))
    (problem,) = checker.output(bam)
    assert "whole.bam.bai is older" in problem


def test_publishing_refuses_a_truncated_bam_and_takes_an_empty_vcf(tmp_path, bam, empty_vcf, checker):
    """BUGS 25 and the control sample whose right answer is a VCF without records."""
    project = Project(tmp_path / "p").with_(check=checker.output)
    with project.open() as database:
        claim = task(database)
        with pytest.raises(PublishError, match="no BGZF end block"):
            project.publish(claim, {"S.vcf.gz": empty_vcf, "S.bam": cut(bam, 5000)})
        assert not project.results.exists()
        project.publish(claim, {"S.vcf.gz": empty_vcf, "S.bam": bam}, step="whole")
        assert project.rows(database) == [("S/S.bam", "published"), ("S/S.vcf.gz", "published")]


def test_an_empty_result_is_published_only_if_that_is_said(tmp_path, checker):
    """A BED of no regions can be right."""
    project = Project(tmp_path / "p").with_(check=checker.output)
    with project.open() as database:
        claim = task(database)
        with pytest.raises(PublishError, match="0 bytes"):
            project.publish(claim, {"low.bed": project.made("low.bed", "")})
        project.publish(claim, {"low.bed": project.made("low.bed", "")}, step="allowed", allow_empty=True)
    assert project.result_files() == {"S/low.bed": ""}


# -- input files -------------------------------------------------------------------------------------------------


def test_a_truncated_gzip_is_named_with_its_byte(tmp_path, checker):
    """BUGS 25: minimap2 and fastp take it for whole and end with 0."""
    whole = written(tmp_path / "A.fastq.gz", gzip.compress(os.urandom(300_000)))
    path = cut(whole, 200_000)
    assert checker.input(path).problems == (
        f"{path} is cut off: it ends at byte 200000, in the middle of the gzip member that begins at byte 0",
    )


def test_every_cut_of_a_gzip_file_is_noticed(tmp_path):
    first = gzip.compress(b"@r1\nACGT\n+\nIIII\n", mtime=0)
    whole = first + gzip.compress(b"@r2\nACGT\n+\nIIII\n", mtime=0)
    for size in range(1, len(whole)):
        reading = read_gzip(written(tmp_path / "cut.gz", whole[:size]))
        assert (reading.problem is None) == (size == len(first)), size


def test_what_follows_the_last_member_is_noticed_unless_it_is_padding(tmp_path, checker):
    whole = gzip.compress(READS)
    padded = written(tmp_path / "padded.fastq.gz", whole + bytes(1_000_000))
    garbage = written(tmp_path / "garbage.fastq.gz", whole + bytes(512) + b"not gzip")
    assert checker.input(padded).problems == ()
    assert checker.input(garbage).problems == (
        f"{garbage} has bytes after its end, from byte {len(whole) + 512}, that are not gzip",
    )


def test_a_damaged_gzip_is_noticed(tmp_path, checker):
    content = bytearray(gzip.compress(os.urandom(100_000)))
    content[50_000] ^= 0xFF
    (problem,) = checker.input(written(tmp_path / "a.fastq.gz", bytes(content))).problems
    assert "is damaged near byte" in problem


def test_text_with_the_name_of_a_gzip_file_is_noticed(tmp_path, checker):
    path = written(tmp_path / "a.fastq.gz", READS)
    assert checker.input(path).problems == (f"{path} is not a gzip file",)


def test_members_and_sizes_are_counted_to_the_end(tmp_path):
    path = written(tmp_path / "a.gz", gzip.compress(bytes(50_000_000)) + gzip.compress(READS))
    assert (read_gzip(path).size, read_gzip(path).members) == (50_000_000 + len(READS), 2)


def test_no_reads_at_all_are_a_note_and_no_problem(tmp_path, checker):
    empty = written(tmp_path / "empty.fastq.gz", gzip.compress(b""))
    zero = written(tmp_path / "zero.fastq.gz", b"")
    assert (checker.input(empty).problems, checker.input(empty).notes) == ((), (f"{empty} holds no reads",))
    assert (checker.input(zero).problems, checker.input(zero).notes) == ((), (f"{zero} is empty (0 bytes)",))


def test_an_input_that_is_missing_or_of_0_bytes_is_a_problem(tmp_path, checker):
    assert checker.input(tmp_path / "no.fa").problems == (f"{tmp_path / 'no.fa'} is not there",)
    empty = written(tmp_path / "ref.fa", b"")
    assert checker.input(empty).problems == (f"{empty} is empty (0 bytes)",)


def test_bgzf_reads_without_their_end_block_are_noticed_at_a_block_border(tmp_path):
    """Reading to the end shows nothing then: every block is whole."""
    path = tmp_path / "a.fastq.gz"
    with pysam.BGZFile(str(path), "wb", None) as file:
        file.write(READS)
    assert check_input(path).problems == ()
    shorter = cut(path, -28)
    assert read_gzip(shorter).problem is None
    assert check_input(shorter).problems == (f"{shorter} is cut off: it has no BGZF end block",)


def test_the_odd_and_broken_files_of_the_shared_data(shared_data, checker):
    """The broken ones are found, the odd but valid ones are not."""
    broken = shared_data / "odd" / "broken"
    bad = ["A.truncated.fastq.gz", "NA12878.noeof.bam", "NA12878.cut.bam", "1.quickcheck.badeof.bam",
           "2.quickcheck.badheader.bam"]
    assert [name for name in bad if not checker.input(broken / name).problems] == []
    assert checker.input(broken / "empty.fastq.gz").notes
    good = [*(shared_data / "odd").glob("*/*.fastq.gz"), *(shared_data / "yeast-chrI").glob("*/*"),
            shared_data / "odd" / "bam" / "NA12878.chr22.tiny.bam", broken / "3.quickcheck.ok.bam"]
    good = [path for path in good if path.parent != broken or path.name.startswith("3.")]
    assert len(good) > 8
    assert [path for path in good if checker.input(path).problems] == []


# -- the child process -------------------------------------------------------------------------------------------


def children() -> list[psutil.Process]:
    mine = psutil.Process().children()
    return [child for child in mine if "canard_pipe.pipeline.checker" in child.cmdline()]


def test_no_child_is_started_for_a_file_that_is_not_parsed(tmp_path, checker):
    assert checker.output(written(tmp_path / "a.txt", b"text")) == []
    assert children() == []


@pytest.mark.parametrize(
    ("number", "answer"),
    [(signal.SIGSEGV, "crashed the program that checked it (signal SIGSEGV); it is probably damaged"),
     (signal.SIGKILL, "")],
)  # fmt: skip
def test_a_crash_of_the_check_costs_one_file_and_a_kill_from_outside_none(bam, checker, number, answer):
    assert checker.output(bam) == []
    (child,) = children()
    child.send_signal(signal.SIGSTOP)  # so that the next question surely waits for its answer
    answers: list[list[str]] = []
    asked = threading.Event()
    thread = threading.Thread(target=lambda: answers.append(checker.output(bam, asked.set)))
    thread.start()
    assert asked.wait(30)
    child.send_signal(number)
    with contextlib.suppress(psutil.NoSuchProcess):  # a KILL needs no waking
        child.send_signal(signal.SIGCONT)
    thread.join(30)
    assert answers == [[f"{bam} {answer}"] if answer else []]
    assert checker.output(bam) == []
    assert [other.pid for other in children()] != [child.pid]


def test_a_child_that_died_between_two_checks_costs_nothing(bam, checker):
    assert checker.output(bam) == []
    (child,) = children()
    child.kill()
    child.wait(10)
    assert checker.output(bam) == []


def test_giving_up_ends_the_child(bam, checker):
    assert checker.output(bam) == []
    (child,) = children()
    child.send_signal(signal.SIGSTOP)

    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        checker.output(bam, give_up)
    assert not psutil.pid_exists(child.pid)
    assert checker.output(bam) == []


def test_many_threads_share_few_children_and_each_gets_its_own_answer(tmp_path, checker):
    paths = [written(tmp_path / f"{n}.json", b"{}" if n % 2 else b"{") for n in range(40)]
    found: dict[str, list[str]] = {}
    threads = [
        threading.Thread(target=lambda path=path: found.update({path.name: checker.output(path)})) for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(children()) <= 2
    for path in paths:
        problems = found[path.name]
        assert [str(path) in problem for problem in problems] == ([] if path.read_bytes() == b"{}" else [True])


def test_closing_ends_the_children(bam):
    with Checker() as checker:
        checker.output(bam)
        assert len(children()) == 1
    assert children() == []


def test_a_name_that_is_not_text_can_be_checked(tmp_path, checker):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\n.json"))
    path.write_text(json.dumps({}))
    assert checker.output(path) == []
    assert check_output(path) == []
