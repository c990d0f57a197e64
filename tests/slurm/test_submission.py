"""A job is submitted once, whatever dies or hangs around sbatch; and what Slurm does with it meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.pipelines import canard
from tests.conftest import require_tool, shared_data, wait_until
from tests.slurm.test_faults import ONE

GERMLINE = Path(__file__).resolve().parents[2] / "pipelines" / "germline.py"


def sbatch_that(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a program named sbatch before the real one; it does so once."""
    real = shutil.which("sbatch")
    programs = folder / "programs"
    programs.mkdir()
    script = programs / "sbatch"
    script.write_text(f"""#!/bin/bash
if mkdir {folder}/once 2>/dev/null; then
real() {{ {real} "$@"; }}
{text}
fi
exec {real} "$@"
""")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    "text", ["kill -9 $PPID; exit", 'real "$@" > /dev/null; kill -9 $PPID; exit'], ids=["before", "after"]
)
def test_the_head_dies_around_sbatch(site, monkeypatch, text):
    """The job is recorded, and nobody knows whether it exists."""
    sbatch_that(site.folder, monkeypatch, text)
    site.write(ONE)
    run = site.start()
    assert run.wait(60) == -signal.SIGKILL
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.executions == ["A"]


@pytest.mark.parametrize(
    "text",
    [
        'real "$@" > /dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1',
        'echo "sbatch: error: Unexpected message received" >&2; exit 1',
        'echo "sbatch: error: Resource temporarily unavailable" >&2; exit 1',
        'echo "Your quota is fine. Job 5 will start soon."; exit 0',
    ],
    ids=["accepted", "not accepted", "later", "banner"],
)  # fmt: skip
def test_a_submission_in_doubt_is_looked_up_and_made_once(site, monkeypatch, text):
    """BUGS 12, 36, 63."""
    sbatch_that(site.folder, monkeypatch, text)
    site.write(ONE)
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.executions == ["A"]


def test_a_controller_that_hangs_during_sbatch(site):
    site.write(ONE)
    site.cluster.pause("slurmctld")
    run = site.start()
    wait_until(lambda: "they wait here" in site.log, 60)
    site.cluster.go_on("slurmctld")
    assert run.wait(100) == 0, site.log
    assert site.executions == ["A"]


def test_a_held_job_is_released_by_a_person(site):
    site.settings(options='["--hold"]')
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.sql("select reason from canard_absurd.jobs") == [("JobHeldUser",)], 60, every_seconds=0.5)
    assert site.sql("select state from canard_absurd.samples") == [("queued",)]
    said = canard(site.folder, "why", "A").stdout
    assert "queued" in said
    ((job_id,),) = site.sql("select job_id from canard_absurd.jobs")
    assert f"job: {job_id}" in said
    site.cluster.call(["scontrol", "release", job_id])
    assert run.wait(60) == 0
    assert site.executions == ["A"]


def test_a_preempted_job_costs_the_sample_nothing(site):
    (site.folder / "hold").touch()
    site.settings(partition='"lowcancel"')
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    site.cluster.call(["sbatch", "-p", "main", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 5"])
    wait_until(lambda: ("failed", "preempted") in site.jobs(), 90, every_seconds=0.5)
    (site.folder / "hold").unlink()
    assert run.wait(100) == 0, site.log
    assert site.executions == ["A", "A"]


def test_a_second_interrupt_cancels_the_jobs_if_asked(site):
    (site.folder / "hold").touch()
    site.write(ONE, "A", "B")
    run = site.start("--cancel-jobs")
    wait_until(lambda: sorted(site.executions) == ["A", "B"], 60)
    run.send_signal(signal.SIGTERM)
    wait_until(lambda: "once more within 5 s cancels them" in site.log, 30)
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 130
    assert site.cluster.call(["squeue", "-h"]).stdout.strip() == ""
    (site.folder / "hold").unlink()
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(site.executions) == ["A", "A", "B", "B"]


def test_cancel_without_a_run_takes_the_job_from_slurm(site):
    (site.folder / "hold").touch()
    site.write(ONE)
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    site.kill(run)
    assert canard(site.folder, "cancel", "A").returncode == 0
    assert site.cluster.call(["squeue", "-h"]).stdout.strip() == ""


def test_more_memory_is_asked_for_after_it_ran_out(site):
    site.write("""
    EAT = "import time; x = bytearray(150 << 20); time.sleep(8)"

    @pipeline.sample
    def one(sample, ctx):
        ctx.step("work", lambda: ctx.process(
            counting(sample, f"python3 -c '{EAT}'"), memory=Escalate("100M", max="400M")))
    """)
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.jobs() == [("failed", "oom"), ("done", "")]


def test_a_command_may_run_beside_the_head(site):
    site.write("""
    @pipeline.sample
    def one(sample, ctx):
        ctx.step("far", lambda: ctx.process(counting(sample, "true")))
        ctx.step("near", lambda: ctx.process(counting(sample, "true"), executor="local"))
    """)
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = site.sql("select step, executor, job_id is null from canard_absurd.jobs order by step")
    assert found == [("far", "slurm", "False"), ("near", "local", "True")]


def test_an_array_runs_each_element_in_its_own_folder(site):
    site.settings(array="true", array_window='"2s"')
    site.write(ONE, "A", "B", "C", "D")
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(site.executions) == ["A", "B", "C", "D"]
    ids = [row[0] for row in site.sql("select job_id from canard_absurd.jobs order by job_id")]
    assert [id.partition("_")[2] for id in ids] == ["0", "1", "2", "3"]
    assert len({id.partition("_")[0] for id in ids}) == 1
    assert {path.read_text() for path in site.folder.glob("results/*/out")} == {"done\n"}


@pytest.mark.slow
def test_germline_on_the_cluster_gives_the_expected_sites(site):
    for tool in ("bwa", "samtools", "bcftools"):
        require_tool(tool)
    data = shared_data()
    expected = json.loads((data / "expected" / "yeast-chrI.json").read_text())["samples"]
    genome = data / "yeast-chrI" / "ref" / "genome.fa"
    sheet = data / "yeast-chrI" / "samples.csv"
    ended = canard(site.folder, "run", str(GERMLINE), str(sheet), "--param", f"reference={genome}", seconds=115)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    from tests.test_pipelines import md5, sites

    for sample in ("A", "B", "C"):
        found = sites(site.folder / "results" / sample / f"{sample}.vcf.gz")
        assert (len(found), md5(found)) == (expected[sample]["variants"], expected[sample]["sites_md5"])
