"""What docs of real tools do not tell: each way in which they hide a failure, and how a pipeline's checks meet it.

One run over all situations (facts.py), with the real tools; a test for each asks how its sample ended.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require_tool
from tests.program import canard
from tests.tools import data, facts
from tests.tools.known import FACTS

EXIT, OUTPUT, FULL = "exit", "output", "disk_full"
FINE: dict[str, str] = dict.fromkeys(
    [
        "whole_reads_bwa", "whole_bam_feature_counts", "whole_bam_mpileup", "folder_of_salmon_is_an_output",
        "empty_result_that_is_right", "index_made_again", "bam_without_its_end_flagstat",
        "bam_without_its_end_view", "bam_without_its_end_index",
    ],
    "done",
)  # fmt: skip
# Each situation with the cause that its sample fails for, and a word of what is said. Where a tool ends with 0
# (minimap2 and fastp on half a file, featureCounts on half a BAM, ...) only the declared check finds it: "output".
FAILS = {
    "truncated_bwa": (EXIT, "member 1 of 2"),
    "truncated_minimap2": (OUTPUT, "reads are in the BAM"),
    "truncated_fastp": (OUTPUT, "reads"),
    "truncated_hisat2": (EXIT, "member 1 of 2"),
    "truncated_salmon": (EXIT, "exit code 255"),
    "truncated_single_end_hisat2": (OUTPUT, "reads are in the BAM"),
    "truncated_single_end_salmon": (OUTPUT, "fragments"),
    "uneven_bwa": (OUTPUT, "of 1800 reads"),
    "uneven_minimap2": (OUTPUT, "of 1800 reads"),
    "uneven_fastp": (OUTPUT, "of 1800 reads"),
    "uneven_hisat2": (EXIT, "member 1 of 2"),
    "empty_bwa": (OUTPUT, "0 of 0 reads"),
    "empty_minimap2": (OUTPUT, "0 of 0 reads"),
    "zero_bytes_minimap2": (OUTPUT, "0 of 0 reads"),
    "zero_bytes_bwa": (OUTPUT, "0 of 0 reads"),
    "empty_hisat2": (OUTPUT, "no reads"),
    "zero_bytes_hisat2": (OUTPUT, "no reads"),
    "empty_fastp": (OUTPUT, "0 of 0 reads"),
    "zero_bytes_fastp": (EXIT, "255"),
    "interleaved_without_p": (OUTPUT, "no read is paired"),
    "aligner_fails_in_a_pipe": (EXIT, "member 1 of 2"),
    "aligner_fails_in_a_shell": (EXIT, "exit codes of the failed line: 1 0"),
    "stream_cut_at_a_line_end": (OUTPUT, "of 2400 reads"),
    "stream_cut_inside_a_line": (EXIT, "samtools sort"),
    "bam_without_its_end_as_an_output": (OUTPUT, "BGZF end block"),
    "bam_without_its_end_quickcheck": (EXIT, "exit code 16"),
    "bam_without_its_end_pysam": (EXIT, "truncated"),
    "bam_without_its_end_feature_counts": (EXIT, "255"),
    "cut_bam_feature_counts": (OUTPUT, "of 2400 fragments"),
    "other_contig_names_feature_counts": (OUTPUT, "no fragment lies in a gene"),
    "cut_bam_samtools_view": (EXIT, "exit code 1"),
    "cut_bam_sort": (EXIT, "exit code 1"),
    "cut_bam_index": (EXIT, "exit code 1"),
    "cut_bam_mpileup": (OUTPUT, "sites only on"),
    "wrong_reference_mpileup": (OUTPUT, "no site was called"),
    "markdup_without_fixmate": (EXIT, "exit code 1"),
    "region_without_an_index": (EXIT, "exit code 1"),
    "plain_vcf_cut_at_a_line_end": (OUTPUT, "records are left"),
    "plain_vcf_cut_inside_a_line": (EXIT, "255"),
    "packed_vcf_cut": (EXIT, "exit code"),
    "packed_vcf_cut_in_its_second_block_view": (EXIT, "exit code 6"),
    "packed_vcf_cut_in_its_second_block_stats": (OUTPUT, "records were seen"),
    "packed_vcf_cut_in_its_second_block_query": (OUTPUT, "records were seen"),
    "packed_vcf_cut_in_its_second_block_norm": (OUTPUT, "records were seen"),
    "packed_vcf_cut_in_its_second_block_concat": (OUTPUT, "records were seen"),
    "packed_vcf_cut_in_its_second_block_merge": (OUTPUT, "records were merged"),
    "packed_vcf_cut_in_its_second_block_index": (EXIT, "255"),
    "packed_vcf_cut_as_an_output": (OUTPUT, "BGZF end block"),
    "vcf_region_without_an_index": (EXIT, "255"),
    "consensus_without_an_index": (EXIT, "255"),
    "vcf_merge_without_an_index": (EXIT, "255"),
    "gzipped_vcf_index": (EXIT, "255"),
    "gzipped_vcf_as_an_output": (OUTPUT, "gzip, not with bgzip"),
    "index_made_again_in_one_folder": (EXIT, "exit code"),
}
# fastp, flagstat, depth, stats, seqtk, bcftools view and featureCounts end with 0 on a full disk; the others do not.
ON_FULL_DISK = [name for name in FACTS if name.startswith("full_disk_")]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A folder with a small disk for each fact that fills one; None where nothing can be mounted."""
    folder = tmp_path_factory.mktemp("disks")
    mounted: list[Path] = []
    for name in ON_FULL_DISK:
        place = folder / name.removeprefix("full_disk_")
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            break
        mounted.append(place)
    yield folder if len(mounted) == len(ON_FULL_DISK) else None
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, disks: Path | None) -> dict[str, dict[str, Any]]:
    """How each situation ended: the objects of ``status --json`` by name, with the cause that ``sql`` tells."""
    for tool in facts.pipeline.tools:
        require_tool(tool)
    folder = tmp_path_factory.mktemp("facts")
    data.make(folder / "data")
    names = [name for name in FACTS if disks is not None or name not in ON_FULL_DISK]
    (folder / "samples.csv").write_text("fact\n" + "\n".join(names) + "\n")
    params = ["--param", f"data={folder / 'data' / 'genome.fa'}", "--param", f"small={disks or 'none'}"]
    run = canard(folder, "run", facts.__file__, "samples.csv", *params, "--json", seconds=300)
    assert run.returncode == 1, run.stderr
    rows = {row["sample"]: row for row in json.loads(run.stdout)}
    asked = canard(
        folder, "sql", "--json",
        "SELECT s.sample, a.cause FROM canard_absurd.samples s JOIN canard_absurd.attempts a USING (task_seq)"
        " WHERE a.outcome = 'failed' ORDER BY a.attempt",
    )  # fmt: skip
    for found in json.loads(asked.stdout):
        rows[found["sample"]]["cause"] = json.loads(found["cause"])
    return rows


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FINE)
def test_what_is_right_passes(ended, name):
    assert (ended[name]["state"], ended[name]["error"]) == ("done", None)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FAILS)
def test_what_went_wrong_fails_its_sample_for_the_right_cause(ended, name):
    kind, word = FAILS[name]
    assert (ended[name]["state"], ended[name]["cause"]["kind"]) == ("failed", kind), ended[name]["error"]
    assert word in ended[name]["error"]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ON_FULL_DISK)
def test_a_full_disk_is_named_whatever_the_tool_says_of_it(ended, disks, name):
    """BUGS 7."""
    if disks is None:
        pytest.skip("mounting needs root")
    assert (ended[name]["state"], ended[name]["cause"]["kind"]) == ("failed", FULL), ended[name]["error"]


def test_every_fact_has_a_test():
    assert {*FINE, *FAILS, *ON_FULL_DISK} == set(FACTS)
