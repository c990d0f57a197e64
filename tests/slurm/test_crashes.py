"""A controller that loses what it knew, a full queue, and the lanes of a sample in the queue together."""

from __future__ import annotations

import contextlib
import shutil

from tests.cli.pipelines import ROOT, canard, command
from tests.conftest import wait_until
from tests.slurm.test_faults import ONE


def test_a_number_that_a_crashed_controller_gives_away_again(site):
    """The controller dies without its latest state, so our job's number is somebody else's, and ours still runs.

    The state as it was before is put back while it is down, as if nothing had been saved since.
    """
    (site.folder / "hold").touch()
    site.write(ONE)
    kept = site.cluster.folder / "ctld.before"
    shutil.rmtree(kept, ignore_errors=True)
    site.cluster.kill("slurmctld")
    shutil.copytree(site.cluster.folder / "ctld", kept)
    site.cluster.run("slurmctld")
    run = site.start()
    wait_until(lambda: site.executions == ["A"], 60)
    ((job_id,),) = site.sql("select job_id from canard_absurd.jobs")
    (folder,) = site.folder.glob("work/**/attempt-1")

    site.cluster.kill("slurmctld")
    shutil.rmtree(site.cluster.folder / "ctld")
    kept.rename(site.cluster.folder / "ctld")
    site.cluster.run("slurmctld")
    for node in ("n1", "n2"):
        site.cluster.call(["scontrol", "update", f"nodename={node}", "state=resume"])
    stranger = site.cluster.call(["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]).stdout.strip()
    assert stranger == job_id

    wait_until(lambda: (folder / "revoked").exists() or (folder / "status.json").exists(), 90)
    (site.folder / "hold").unlink()
    assert run.wait(110) == 0, site.log
    states = site.jobs()
    accepted = [state for state, _ in states if state == "done"]
    assert accepted == ["done"], states
    assert "PENDING" in site.cluster.call(["squeue", "-h", "-t", "all", "-j", stranger, "-o", "%T"]).stdout
    with contextlib.suppress(Exception):
        for node in ("n1", "n2"):
            site.cluster.call(["scontrol", "update", f"nodename={node}", "state=resume"])


def test_no_more_jobs_than_asked_for_are_in_slurm(site):
    site.write(ONE, *[f"s{number}" for number in range(12)])
    ended = site.run("--max-jobs", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(site.executions) == 12


def test_more_jobs_than_the_controller_takes_at_once(site):
    """MaxJobCount counts ended jobs too, until MinJobAge: sbatch waits, fails or is given up, and none is lost."""
    conf = site.cluster.folder / "etc" / "slurm.conf"
    before = conf.read_text()
    others = [line for line in before.splitlines() if not line.startswith(("MaxJobCount", "MinJobAge"))]
    try:
        conf.write_text("\n".join([*others, "MaxJobCount=3", "MinJobAge=2", ""]))
        site.cluster.kill("slurmctld")
        site.cluster.run("slurmctld")
        site.write(ONE, "A", "B", "C", "D", "E")
        ended = site.run()
        assert "MaxJobCount" in (site.cluster.folder / "log" / "slurmctld.log").read_text()
    finally:
        conf.write_text(before)
        site.cluster.kill("slurmctld")
        site.cluster.run("slurmctld")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(site.executions) == ["A", "B", "C", "D", "E"]
    assert site.sql("select sum(failures) from canard_absurd.tasks") == [("0",)]


def test_a_job_that_waits_in_the_queue_outlives_its_run(site):
    """A waiting job holds nothing, and the next run adopts it: one job, one execution."""
    for node in ("n1", "n2"):
        site.cluster.call(["scontrol", "update", f"nodename={node}", "state=drain", "reason=test"])
    site.write(ONE)
    run = site.start()
    site.until_jobs("submitted")
    site.kill(run)
    ((job_id,),) = site.sql("select job_id from canard_absurd.jobs")
    for node in ("n1", "n2"):
        site.cluster.call(["scontrol", "update", f"nodename={node}", "state=resume"])
    ended = site.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert site.executions == ["A"]
    assert site.sql("select job_id, state from canard_absurd.jobs") == [(job_id, "done")]


def test_the_lanes_of_a_sample_are_in_the_queue_together(site):
    (site.folder / "hold").touch()
    site.write("""
    def lane(number, ctx):
        return str(ctx.step("align", lambda: ctx.process(
            ["bash", "-c", f"echo {number} >> {HERE}/executions; while [ -e {HERE}/hold ]; do sleep 0.1; done"])))

    @pipeline.sample
    def one(sample, ctx):
        return len(ctx.map("align", lane, [str(number) for number in range(8)], key=lambda number: number))
    """)
    run = site.start()
    wait_until(lambda: len(site.executions) == 8, 90)
    assert len(site.cluster.call(["squeue", "-h", "-o", "%i"]).stdout.split()) == 8
    assert "running" in canard(site.folder, "status").stdout
    (site.folder / "hold").unlink()
    assert run.wait(90) == 0, site.log
    assert sorted(site.executions) == list("01234567")


def test_the_head_as_a_job_goes_on_in_the_next_one_when_its_time_is_nearly_over(site):
    (site.folder / "hold").touch()
    site.write(ONE)
    program = site.folder / "canard-pipe"
    program.write_text(f"#!/bin/bash\nexec {' '.join(command())} \"$@\"\n")
    program.chmod(0o755)
    head = ROOT / "slurm" / "head.sbatch"
    exported = f"--export=ALL,CANARD_PIPE={program},PYTHONPATH={ROOT}"
    submitted = site.cluster.call(
        ["sbatch", "--parsable", exported, "--mem=500M", f"--chdir={site.folder}", str(head), "run", "pipe.py", "s.csv"]
    )
    first = submitted.stdout.strip()
    assert first, submitted.stderr
    wait_until(lambda: site.executions == ["A"], 90)
    site.cluster.call(["scancel", "--batch", "--signal=USR1", first])
    log = site.folder / "canard-head.log"
    wait_until(lambda: "the next job goes on" in log.read_text(), 60)
    (site.folder / "hold").unlink()
    wait_until(lambda: "exit status 0" in log.read_text(), 90)
    assert site.executions == ["A"]
