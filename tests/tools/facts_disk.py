"""Facts about tools on a full disk: some say so, some end with 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.known import fact


def full(name: str, output: str, text: str) -> None:
    """Define the fact of one tool whose output lands on a small disk of its own that is full by then."""

    def run(data: Path, ctx: Any) -> None:
        filled = "cat /dev/zero > filling 2>/dev/null || true; " + text
        place = Path(ctx.params.small) / name
        ctx.step("write", lambda: ctx.shell(filled, data=data, outputs=[output], directory=place))

    run.__name__ = f"full_disk_{name}"
    fact(run)


full("fastp", "T.fq.gz", "fastp -w 1 -i {data}/R1.fq.gz -o T.fq.gz -j /dev/null -h /dev/null")
full("flagstat", "s.json", "samtools flagstat -O json {data}/whole.bam > s.json")
full("depth", "d.txt", "samtools depth -a {data}/whole.bam > d.txt")
full("stats", "s.txt", "bcftools stats {data}/calls.vcf > s.txt")
full("seqtk", "s.fq", "seqtk seq {data}/R1.fq.gz > s.fq")
full("view", "S.vcf.gz", "bcftools view -Oz -o S.vcf.gz {data}/calls.vcf")
full("bwa", "S.sam", "bwa mem {data}/genome.fa {data}/R1.fq.gz > S.sam")
full("samtools_sort", "S.bam", "samtools sort -o S.bam {data}/whole.sam")
full("samtools_view", "S.bam", "samtools view -b -o S.bam {data}/whole.sam")
full("fixmate", "S.bam", "samtools fixmate -m {data}/whole.sam S.bam")
full("markdup", "S.bam", "samtools markdup {data}/fixed.bam S.bam")
full("minimap2", "S.sam", "minimap2 -ax sr {data}/genome.fa {data}/R1.fq.gz > S.sam")
full("bgzip", "S.vcf.gz", "bgzip -c {data}/calls.vcf > S.vcf.gz")
full("call", "S.vcf", "bcftools mpileup -f {data}/genome.fa {data}/whole.bam | bcftools call -m -Ov -o S.vcf")
full("norm", "S.vcf", "bcftools norm -f {data}/genome.fa -Ov -o S.vcf {data}/calls.vcf")
full("query", "S.txt", "bcftools query -f '%CHROM\\t%POS\\n' {data}/calls.vcf > S.txt")
full("feature_counts", "S.txt", "featureCounts -p -a {data}/genes.gtf -o S.txt {data}/whole.bam")
