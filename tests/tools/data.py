"""Small data for real tools: a genome, reads of it, and what went wrong with them in each way that is to be shown."""

from __future__ import annotations

import gzip
import random
import subprocess
from pathlib import Path

PAIRS = 1200
_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def make(folder: Path) -> None:
    """Write everything below ``folder``; needs bwa, samtools and bcftools. The same each time."""
    folder.mkdir()
    rng = random.Random(4)
    genome = {name: "".join(rng.choices("ACGT", k=size)) for name, size in (("chr1", 20_000), ("chr2", 10_000))}
    _fasta(folder / "genome.fa", genome)
    _fasta(folder / "other.fa", {name.removeprefix("chr"): text for name, text in genome.items()})
    mutant = {name: mutated(text) for name, text in genome.items()}
    pairs = [_pair(rng, mutant) for _ in range(PAIRS)]
    first, second = ([_record(n, mate[side]) for n, mate in enumerate(pairs)] for side in (0, 1))
    _gzip(folder / "R1.fq.gz", first)
    _gzip(folder / "R2.fq.gz", second)
    _gzip(folder / "short_R2.fq.gz", second[: PAIRS // 2])
    _gzip(folder / "interleaved.fq.gz", [record for both in zip(first, second, strict=True) for record in both])
    _gzip(folder / "empty.fq.gz", [])
    (folder / "zero.fq.gz").touch()
    for name in ("R1", "R2"):
        whole = (folder / f"{name}.fq.gz").read_bytes()
        (folder / f"cut_{name}.fq.gz").write_bytes(whole[: len(whole) * 6 // 10])
    gene = 'gene_id "{0}"; transcript_id "{0}";'
    exons = [("chr1", at, at + 900) for at in range(1, 19_000, 1000)]
    lines = [f"{c}\tmade\texon\t{a}\t{b}\t.\t+\t.\t{gene.format(f'g{a}')}" for c, a, b in exons]
    (folder / "genes.gtf").write_text("\n".join(lines) + "\n")
    (folder / "other.gtf").write_text("\n".join(line.replace("chr1", "NC_001133.9", 1) for line in lines) + "\n")
    _bash(folder, """
        bwa index genome.fa 2>/dev/null; samtools faidx genome.fa; samtools faidx other.fa
        bwa mem -v1 genome.fa R1.fq.gz R2.fq.gz 2>/dev/null > whole.sam
        samtools sort -o whole.bam whole.sam 2>/dev/null; samtools index whole.bam
        bcftools mpileup -f genome.fa whole.bam 2>/dev/null | bcftools call -mv -Ov -o calls.vcf 2>/dev/null
        bgzip -c calls.vcf > calls.vcf.gz
        gzip -c calls.vcf > gzipped.vcf.gz
        bcftools view -h calls.vcf | bgzip > none.vcf.gz
        samtools sort -n whole.sam 2>/dev/null | samtools fixmate -m - - | samtools sort -o fixed.bam 2>/dev/null
    """)  # fmt: skip
    whole = (folder / "whole.bam").read_bytes()
    (folder / "noeof.bam").write_bytes(whole[:-28])
    (folder / "cut.bam").write_bytes(whole[: len(whole) // 2])
    lines = (folder / "whole.sam").read_text().splitlines(keepends=True)
    (folder / "cut.sam").write_text("".join(lines[: len(lines) * 2 // 3]))
    (folder / "torn.sam").write_text("".join(lines[: len(lines) * 2 // 3])[:-60])
    calls = (folder / "calls.vcf").read_text().splitlines(keepends=True)
    (folder / "cut.vcf").write_text("".join(calls[:-5]))
    (folder / "torn.vcf").write_text("".join(calls)[:-25])
    half = len(calls) - 30
    for number, part in enumerate((calls[:half], calls[half:]), 1):
        (folder / f"part{number}.vcf").write_text("".join(part))
        _bash(folder, f"bgzip part{number}.vcf")
    whole_block, cut_block = ((folder / f"part{number}.vcf.gz").read_bytes()[:-28] for number in (1, 2))
    (folder / "ended.vcf.gz").write_bytes(whole_block)
    (folder / "block.vcf.gz").write_bytes(whole_block + cut_block[: len(cut_block) // 2])
    packed = (folder / "calls.vcf.gz").read_bytes()
    (folder / "cut.vcf.gz").write_bytes(packed[: len(packed) * 2 // 3])


def _fasta(file: Path, sequences: dict[str, str]) -> None:
    file.write_text("".join(f">{name}\n{text}\n" for name, text in sequences.items()))


def mutated(text: str) -> str:
    """Return the genome that the reads are of."""
    return "".join(base.translate(_COMPLEMENT) if at % 500 == 250 else base for at, base in enumerate(text))


def _pair(rng: random.Random, genome: dict[str, str]) -> tuple[str, str]:
    text = genome[rng.choices(["chr1", "chr2"], [2, 1])[0]]
    start = rng.randrange(len(text) - 300)
    return text[start : start + 100], text[start + 200 : start + 300].translate(_COMPLEMENT)[::-1]


def _record(number: int, read: str) -> str:
    quality = "".join(random.Random(number).choices("FGHI", k=len(read)))
    return f"@r{number}\n{read}\n+\n{quality}\n"


def _gzip(file: Path, records: list[str]) -> None:
    file.write_bytes(gzip.compress("".join(records).encode(), 6, mtime=0))


def _bash(folder: Path, text: str) -> None:
    subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, check=True, timeout=60)
