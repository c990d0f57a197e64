"""What Slurm's programs print and how they fail, with programs that do so on demand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from canard_pipe.execution.slurm import Doubt, JobId, Refused, SlurmJob
from canard_pipe.execution.slurm.client import SlurmClient

JOB = SlurmJob("t", "cp-a", 1_700_000_000_000_000, "5")


class Programs:
    """A folder of programs; each call is noted with its arguments and its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says(squeue="", sacct="", sbatch="", scancel="", scontrol="")

    def says(self, **programs: str) -> None:
        for name, text in programs.items():
            file = self.folder / name
            file.write_text(
                f'#!/bin/bash\necho "{name} $*" >> {self.folder}/calls\nenv > {self.folder}/{name}.env\n{text}\n'
            )
            file.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        file = self.folder / "calls"
        return [line for line in file.read_text().splitlines() if line.startswith(name)] if file.exists() else []

    def client(self, **options) -> SlurmClient:
        environ = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", **options.pop("environ", {})}
        return SlurmClient(environ, **{"call_seconds": 5, "submit_seconds": 5, **options})


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("Submitted batch job 5", JobId("5")),
        ("Submitted batch job 5 on cluster naut", JobId("5", "naut")),
        ("5", JobId("5")),
        ("5;naut", JobId("5", "naut")),
        (r"5\r", JobId("5")),
        (r"5\n", JobId("5")),
        (r"Dear user, job 99 will start soon\n5\nThank you for waiting 7 minutes", JobId("5")),
    ],
)
def test_a_job_id_is_digits_wherever_a_site_puts_its_banner(programs, out, expected):
    """BUGS 34, 63."""
    programs.says(sbatch=f"printf '{out}\\n'")
    assert programs.client().submit(Path("job.sh"), ["--mem=1M"]) == expected


@pytest.mark.parametrize("out", ["that will do", "job will start", "5 jobs", "-5", "5.5", ""])
def test_what_is_no_job_id_is_doubt(programs, out):
    """BUGS 63."""
    programs.says(sbatch=f"echo '{out}'")
    assert isinstance(programs.client().submit(Path("job.sh"), []), Doubt)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (1, "Batch job submission failed: Invalid partition name specified", "final"),
        (1, "Batch job submission failed: Invalid account or account/partition combination specified", "final"),
        (255, "sbatch: error: Invalid --time specification", "final"),
        (1, "Unable to open file nothere.sh", "final"),
        (1, "Batch job submission failed: Socket timed out on send/recv operation", "doubt"),
        (1, "Batch job submission failed: Unable to contact slurm controller (connect failure)", "doubt"),
        (1, "Unexpected message received", "doubt"),
        (1, "AssocMaxSubmitJobLimit\nBatch job submission failed: Job violates accounting/QOS policy", "later"),
        (1, "Batch job submission failed: Resource temporarily unavailable", "later"),
    ],
)
def test_only_a_refusal_is_proof_that_no_job_was_made(programs, code, text, expected):
    """BUGS 12, 36."""
    programs.says(sbatch=f"printf '%s\\n' '{text}' >&2; exit {code}")
    answer = programs.client().submit(Path("job.sh"), [])
    if expected == "doubt":
        assert isinstance(answer, Doubt)
    else:
        assert isinstance(answer, Refused)
        assert answer.final == (expected == "final")


def test_a_program_that_hangs_is_left_and_its_answer_is_doubt(programs):
    programs.says(sbatch="exec sleep 60", squeue="exec sleep 60", sacct="exec sleep 60")
    client = programs.client(call_seconds=0.2, submit_seconds=0.2)
    assert isinstance(client.submit(Path("job.sh"), []), Doubt)
    answer = client.states([JOB], 0)
    assert not answer.complete
    assert "did not answer" in (answer.trouble or "")


def test_programs_that_are_not_there_are_trouble_and_no_answer(tmp_path):
    client = SlurmClient({"PATH": str(tmp_path)})
    assert not client.states([JOB], 0).complete
    assert not client.by_name(["cp-a"], 0).complete


def test_no_variable_of_an_outer_job_reaches_a_client(programs):
    """BUGS 41."""
    names = ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SBATCH_PARTITION")
    outer = dict.fromkeys((*names, "SACCT_FORMAT", "SQUEUE_FORMAT", "SLURM_CONF"), "1")
    programs.says(sbatch="echo 5")
    programs.client(environ=outer).submit(Path("job.sh"), [])
    seen = (programs.folder / "sbatch.env").read_text()
    found = re.findall(r"^((?:SLURM|SBATCH|SACCT|SQUEUE)_\w+)", seen, re.MULTILINE)
    assert set(found) == {"SLURM_CONF", "SLURM_TIME_FORMAT"}


def test_the_newest_of_several_rows_counts_whatever_their_order(programs):
    """BUGS 32."""
    old, new = "5|cp-a|PREEMPTED|0:0|100|100|200|n1", "5|cp-a|COMPLETED|0:0|300|300|400|n2"
    for rows in (f"{old}\\n{new}", f"{new}\\n{old}"):
        programs.says(sacct=f"printf '{rows}\\n'")
        (seen,) = programs.client().states([JOB], 0).seen
        assert (seen.state, seen.node) == ("COMPLETED", "n2")


def test_rows_of_steps_and_of_strangers_are_told_apart(programs):
    """BUGS 11, 30, 61."""
    rows = [
        "5|somebody-elses|COMPLETED|0:0|1|1|2|n1", "5.batch|batch|FAILED|1:0|1|1|2|n1", "some banner",
        "5.extern|extern|COMPLETED|0:0|1|1|2|n1", "5_[2-5%2]|cp-a|PENDING|0:0|1|Unknown|Unknown|",
        "5_1|cp-a|CANCELLED by 0|0:10|1|1|2|n1",
    ]  # fmt: skip
    programs.says(sacct="\n".join(f"echo '{row}'" for row in rows))
    answer = programs.client().states([JOB], 0)
    assert [(seen.job_id, seen.name, seen.state) for seen in answer.seen] == [
        ("5", "somebody-elses", "COMPLETED"), ("5_1", "cp-a", "CANCELLED"),
    ]  # fmt: skip
    assert (answer.seen[1].exit_code, answer.seen[1].signal) == (0, 10)


@pytest.mark.parametrize("code", [0, 1])
def test_a_site_without_accounting_goes_by_squeue(programs, code):
    """BUGS 33."""
    programs.says(
        sacct=f"echo 'Slurm accounting storage is disabled' >&2; exit {code}",
        squeue="echo '5|cp-a|RUNNING|None|100|200|300|n1'",
    )
    client = programs.client()
    answer = client.states([JOB], 0)
    assert answer.complete
    assert [(seen.state, seen.node) for seen in answer.seen] == [("RUNNING", "n1")]
    client.states([JOB], 0)
    assert len(programs.calls("sacct")) == 1
    programs.says(squeue="exit 0")
    assert client.states([JOB], 0).complete  # gone from the queue: known to be unknown


def test_accounting_that_is_away_leaves_the_question_open_unless_squeue_knows(programs):
    """BUGS 13, 15."""
    programs.says(sacct="echo 'slurm_persist_conn_open_without_init: failed' >&2; exit 1", squeue="exit 0")
    answer = programs.client().states([JOB], 0)
    assert not answer.complete
    assert "slurm_persist" in (answer.trouble or "")
    programs.says(squeue="echo '5|cp-a|RUNNING|None|100|200|300|n1'")
    assert programs.client().states([JOB], 0).complete
    programs.says(sacct="echo '5|cp-a|RUNNING|0:0|1|1|Unknown|n1'", squeue="echo timeout >&2; exit 1")
    assert [seen.state for seen in programs.client().states([JOB], 0).seen] == ["RUNNING"]


def test_many_jobs_are_asked_for_in_a_few_calls(programs):
    """BUGS 62."""
    jobs = [SlurmJob("t", "cp-a", 0, str(number)) for number in range(2500)]
    programs.client().states(jobs, 0)
    assert len(programs.calls("sacct")) == 3
    assert len(programs.calls("squeue")) == 1


def test_a_cluster_is_named_in_every_question(programs):
    """BUGS 35."""
    client = programs.client(cluster="other")
    client.states([JOB], 0)
    client.by_name(["cp-a"], 0)
    assert all("--clusters=other" in call for call in programs.calls("s"))


def test_only_what_stands_in_the_queue_under_its_own_name_is_cancelled(programs):
    """Numbers are used again: 5 is ours, 6 is somebody else's by now, 7 is gone."""
    programs.says(squeue="printf '5|cp-a|RUNNING|None|1|2|3|n1\\n6|other|RUNNING|None|1|2|3|n1\\n'")
    jobs = [SlurmJob("t", "cp-a", 0, number) for number in ("5", "6", "7")]
    assert programs.client().cancel(jobs) is None
    assert programs.calls("scancel") == ["scancel 5"]


def test_a_cancel_that_could_not_be_asked_says_so(programs):
    """BUGS 37."""
    programs.says(squeue="echo '5|cp-a|RUNNING|None|1|2|3|n1'", scancel="echo 'slurm_kill_job error' >&2; exit 8")
    assert programs.client().cancel([JOB]) == "slurm_kill_job error"


def test_the_limits_of_a_partition_are_read(programs):
    programs.says(scontrol="""printf 'PartitionName=a Default=NO MaxTime=1-00:00:00 MaxMemPerNode=4000\\n'
printf 'PartitionName=b Default=YES MaxTime=02:30:00 MaxMemPerNode=UNLIMITED\\n'""")
    limits = programs.client().limits(None)
    assert (limits.time_seconds, limits.memory_bytes) == (9000.0, None)
