"""A pipeline of facts: each sample does what a user would do in one situation in which tools hide that they failed."""

from __future__ import annotations

from canard_pipe import InputFile, Pipeline, SampleRow
from tests.tools import facts_bam, facts_disk, facts_reads, facts_vcf
from tests.tools.known import FACTS

PARTS = (facts_reads, facts_bam, facts_vcf, facts_disk)  # each takes its facts in when it is imported


class Row(SampleRow):
    fact: str


pipeline = Pipeline(
    "facts", rows=Row, key="fact", tries=1, params={"data": InputFile, "small": str},
    tools=["bwa", "minimap2", "samtools", "bcftools", "fastp", "hisat2", "salmon", "featureCounts", "seqtk", "bgzip"],
)  # fmt: skip


@pipeline.sample
def one(sample, ctx):
    FACTS[sample.key](ctx.params.data.parent, ctx)
