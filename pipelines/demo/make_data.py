"""Make the demo's data: a small reference, planted variants, and paired reads of four samples.

Nothing here comes from a real organism. The same seed always gives the same reads, so the demo's answer is known
before it runs: ``truth.tsv`` holds every variant that was planted, and the pipeline says which of them it found.

Usage: ``python make_data.py [FOLDER]``. Standard library only.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 20_260_214
CONTIGS = {"chr1": 18_000, "chr2": 12_000}
# Sample and its lanes. The lanes of teal are two rows of the sheet: rows with the same sample arrive together.
SAMPLES = {"mallard": 1, "teal": 2, "pintail": 1, "eider": 1}
DEPTH = 22
READ_LENGTH = 100
FRAGMENT_LENGTHS = range(240, 361)
SITES = 44
SITE_SPACING = 500  # at least this far apart, and from the contigs' ends
READ_ERROR_RATE = 0.002

COMPLEMENT = str.maketrans("ACGT", "TGCA")


@dataclass(frozen=True, slots=True)
class Variant:
    """One planted single-base change. ``position`` counts from 1, as in a VCF."""

    contig: str
    position: int
    ref: str
    alt: str


def make(folder: Path) -> Path:
    """Write the data below ``folder`` and return the path of its sheet, ``samples.csv``.

    The sheet is written last. Where it already is, nothing is made again: files made anew would have new times, and
    a run that goes on would take them for changed input.
    """
    sheet = folder / "samples.csv"
    if sheet.exists():
        return sheet
    rng = random.Random(SEED)
    reads_folder = folder / "reads"
    reads_folder.mkdir(parents=True, exist_ok=True)
    reference = {name: "".join(rng.choices("ACGT", k=length)) for name, length in CONTIGS.items()}
    write_fasta(folder / "reference.fa", reference)
    sites = plant_sites(reference, rng)
    truth = ["sample\tchrom\tpos\tref\talt\tgenotype"]
    rows = ["sample,fastq_1,fastq_2"]
    for sample, lanes in SAMPLES.items():
        genotypes = {site: rng.choice(["0/1", "1/1"]) for site in sites if rng.random() < 0.6}
        truth += [
            f"{sample}\t{site.contig}\t{site.position}\t{site.ref}\t{site.alt}\t{genotype}"
            for site, genotype in genotypes.items()
        ]
        haplotypes = [carry(reference, genotypes, copy) for copy in (0, 1)]
        for lane in range(1, lanes + 1):
            names = [f"{sample}_L{lane}_R{end}.fastq.gz" for end in (1, 2)]
            pairs = list(sequence(haplotypes, f"demo:{lane}:{sample}", DEPTH / lanes, rng))
            for end, name in enumerate(names):
                write_fastq(reads_folder / name, [pair[end] for pair in pairs])
            rows.append(",".join([sample, *(f"reads/{name}" for name in names)]))
    (folder / "truth.tsv").write_text("\n".join(truth) + "\n", encoding="utf-8")
    unfinished = folder / "samples.csv.part"
    unfinished.write_text("\n".join(rows) + "\n", encoding="utf-8")
    unfinished.replace(sheet)
    return sheet


def plant_sites(reference: dict[str, str], rng: random.Random) -> list[Variant]:
    """Choose where variants can be, in the order of the reference, and to what each base changes."""
    places = [
        (contig, start + rng.randrange(SITE_SPACING // 2))
        for contig, bases in reference.items()
        for start in range(SITE_SPACING, len(bases) - 2 * SITE_SPACING, SITE_SPACING)
    ]
    sites = []
    for contig, place in sorted(rng.sample(places, SITES)):
        ref = reference[contig][place]
        sites.append(Variant(contig, place + 1, ref, rng.choice("ACGT".replace(ref, ""))))
    return sites


def carry(reference: dict[str, str], genotypes: dict[Variant, str], copy: int) -> dict[str, str]:
    """Return one of a sample's two copies of the reference; a heterozygous variant is on the second only."""
    bases = {name: bytearray(text, "ascii") for name, text in reference.items()}
    for site, genotype in genotypes.items():
        if genotype == "1/1" or copy == 1:
            bases[site.contig][site.position - 1] = ord(site.alt)
    return {name: text.decode("ascii") for name, text in bases.items()}


def sequence(
    haplotypes: list[dict[str, str]], prefix: str, depth: float, rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Yield read pairs as two FASTQ records: random fragments, read inwards from both ends, with a few errors."""
    for contig, length in CONTIGS.items():
        for number in range(round(depth * length / (2 * READ_LENGTH))):
            size = rng.choice(FRAGMENT_LENGTHS)
            start = rng.randrange(length - size)
            fragment = rng.choice(haplotypes)[contig][start : start + size]
            ends = [fragment[:READ_LENGTH], fragment.translate(COMPLEMENT)[::-1][:READ_LENGTH]]
            if rng.random() < 0.5:  # the fragment may come from either strand
                ends.reverse()
            first, second = (
                f"@{prefix}:{contig}:{number}/{end}\n{record(bases, rng)}" for end, bases in enumerate(ends, 1)
            )
            yield first, second


def record(bases: str, rng: random.Random) -> str:
    """Return the last three lines of a FASTQ record: bases as the machine read them, and how sure it was."""
    read, quality = list(bases), ["F"] * len(bases)
    for place, base in enumerate(bases):
        if rng.random() < READ_ERROR_RATE:
            read[place] = rng.choice("ACGT".replace(base, ""))
            quality[place] = ","
    return f"{''.join(read)}\n+\n{''.join(quality)}\n"


def write_fasta(path: Path, contigs: dict[str, str]) -> None:
    """Write ``contigs`` with 60 bases in a line."""
    with path.open("w", encoding="ascii") as file:
        for name, bases in contigs.items():
            file.write(f">{name}\n")
            file.writelines(f"{bases[start : start + 60]}\n" for start in range(0, len(bases), 60))


def write_fastq(path: Path, records: list[str]) -> None:
    """Write records gzipped, without the time in the gzip header, so that the same reads give the same bytes."""
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        file.write("".join(records).encode("ascii"))


if __name__ == "__main__":
    print(make(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
