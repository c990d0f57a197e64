"""What is said of a site that lacks something, with programs that answer as such a site does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from canard_pipe.execution.slurm import site
from canard_pipe.execution.slurm.settings import from_table
from tests.execution.slurm.test_client import Programs

CONFIG = "Configuration data as of 1700000000\nMaxArraySize = 1001\nMaxJobCount = 10000\n"
PARTITIONS = (
    "PartitionName=main Default=YES AllowAccounts=ALL State=UP MaxTime=2-00:00:00 MaxMemPerNode=64000 TotalCPUs=96 "
    "TotalNodes=3 DefaultTime=01:00:00\\n"
    "PartitionName=gpu Default=NO AllowAccounts=lab7,lab8 State=DOWN MaxTime=UNLIMITED MaxMemPerNode=UNLIMITED\\n"
)
NOW = 1_700_000_000.5


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """A site where all is well."""
    made = Programs(tmp_path)
    made.says(
        scontrol=f'case "$*" in *config) printf "{CONFIG}";; *) printf "{PARTITIONS}";; esac'.replace("\n", "\\n"),
        sbatch='case "$*" in --version) echo "slurm 23.02.7";; *) echo "sbatch: Job 1 to start" >&2;; esac',
        sinfo='echo "idle 2"; echo "down* 1"', sacctmgr="",
    )  # fmt: skip
    return made


def bad(findings) -> list[tuple[str, str]]:
    return [(finding.level, finding.message) for finding in findings if finding.level != "ok"]


def everything(programs, wall=lambda: NOW, monotonic=lambda: 0.0, **slurm):
    client, settings = programs.client(), from_table(slurm)
    return [
        *site.check_programs(client, {"PATH": f"{programs.folder}:/usr/bin:/bin"}, wanted=True),
        *site.check_answers(client, wanted=True, wall=wall, monotonic=monotonic),
        *site.check_limits(client, settings, "ann"),
        *site.check_partition(client, settings, "ann"),
    ]


def test_a_site_where_all_is_well(programs):
    found = everything(programs)
    assert bad(found) == []
    said = [finding.message for finding in found]
    assert "slurm 23.02.7: sbatch, squeue and scancel are on PATH" in said
    assert "main: time up to 2-00:00:00, memory up to 64000 MiB, 3 nodes with 96 cpus" in said
    assert "main: a command without time= gets 01:00:00" in said


def test_without_slurm_it_depends_on_whether_it_is_wanted(tmp_path):
    client = SimpleNamespace(missing=lambda: ["sbatch", "squeue"])
    for wanted, level in ((True, "fail"), (False, "ok")):
        (found,) = site.check_programs(client, {}, wanted=wanted)  # type: ignore[arg-type]
        assert (found.level, "sbatch, squeue not on PATH" in found.message) == (level, True)


def test_programs_that_only_help_are_missed_with_a_warning(programs):
    (programs.folder / "sacct").unlink()
    found = site.check_programs(programs.client(), {"PATH": str(programs.folder)}, wanted=True)
    assert bad(found) == [("warn", "sacct is not on PATH: the past of jobs is not known")]


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"scontrol": 'echo "slurm_load_ctl_conf error: Unable to contact slurm controller" >&2; exit 1'}, "fail",
         "the controller does not answer (scontrol show): slurm_load_ctl_conf error: Unable to contact"),
        ({"squeue": "exit 1"}, "fail", "the queue does not answer"),
        ({"squeue": "exec sleep 60"}, "fail", "squeue did not answer within 1 s"),
        ({"sacct": 'echo "sacct: error: Connection refused" >&2; exit 1'}, "warn", "the accounting does not answer"),
        ({"sacct": 'echo "Slurm accounting storage is disabled" >&2; exit 1'}, "warn", "this site keeps none"),
    ],
)  # fmt: skip
def test_who_does_not_answer_is_named(programs, change, level, words):
    programs.says(**change)
    client = programs.client(call_seconds=1)
    ((found, text),) = bad(site.check_answers(client, wanted=True, wall=lambda: NOW))
    assert found == level
    assert words in text


def test_a_slurm_that_nobody_wants_is_one_warning(programs):
    programs.says(scontrol='echo "error: Could not establish a configuration source" >&2; exit 1')
    assert [level for level, _ in bad(site.check_answers(programs.client(), wanted=False))] == ["warn"]


def test_a_slow_answer_is_told(programs):
    ticks = iter(range(0, 1000, 7))
    client = programs.client()
    found = bad(site.check_answers(client, wanted=True, monotonic=lambda: float(next(ticks)), wall=lambda: NOW))
    assert ("warn", "the queue takes 7.0 s to answer") in found


@pytest.mark.parametrize(("ahead", "words"), [(100, "100 s behind"), (-100, "100 s ahead of"), (2, None)])
def test_the_clock_of_the_controller(programs, ahead, words):
    """``ahead``: this machine's clock before the controller's."""
    found = bad(site.check_answers(programs.client(), wanted=True, wall=lambda: NOW + ahead))
    assert (not found) if words is None else f"the clock of the controller is {words}" in found[0][1]


def test_limits_below_the_settings(programs):
    programs.says(
        scontrol=f'printf "{CONFIG}"'.replace("10000", "50").replace("1001", "301").replace("\n", "\\n"),
        sacctmgr='echo "lab7|40|"',
    )
    client = programs.client()
    found = list(site.check_limits(client, from_table({"array": True}), "ann"))
    assert [finding.level for finding in found] == ["warn", "warn", "warn"]
    assert [finding.way_out for finding in found] == [
        "slurm.max_jobs = 12, or less", "slurm.array = false", "slurm.max_jobs = 40",
    ]  # fmt: skip
    assert bad(site.check_limits(client, from_table({"max_jobs": 30}), "ann")) == []


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        ({"partition": "mian"}, "there is no partition 'mian'"),
        ({"partition": "gpu", "account": "lab7"}, "gpu is DOWN"),
        ({"partition": "gpu", "account": "lab9"}, "gpu does not take the account 'lab9'"),
        ({"account": "lab7"}, "'lab7' is no account of ann"),
    ],
)
def test_settings_that_the_site_does_not_have(programs, slurm, words):
    found = bad(everything(programs, **slurm))
    assert any(words in text for _, text in found)


def test_an_account_that_is_known(programs):
    programs.says(sacctmgr="echo lab7")
    assert bad(everything(programs, account="lab7")) == []


def test_a_partition_without_a_node(programs):
    programs.says(sinfo='echo "drained 2"; echo "down* 1"; echo "idle* 1"')
    assert ("fail", "no node of main can be used now: 2 drained, 1 down*, 1 idle*") in bad(everything(programs))


def test_a_site_without_a_default_partition_wants_one_named(programs):
    programs.says(scontrol=f'printf "{PARTITIONS}"'.replace("Default=YES", "Default=NO"))
    assert bad(site.check_partition(programs.client(), from_table({}), "ann")) == [
        ("fail", "there is no default partition, and the settings name none")
    ]


def test_slurm_itself_judges_the_options_in_its_own_words(programs):
    programs.says(sbatch='echo "sbatch: error: QOS" >&2; echo "allocation failure: Invalid qos" >&2; exit 1')
    found = bad(site.check_partition(programs.client(), from_table({"qos": "nope", "options": ["--mem=9T"]}), "ann"))
    (_, text) = found[-1]
    assert text.endswith("allocation failure: Invalid qos")
    call = programs.calls("sbatch")[-1]
    assert "--test-only" in call
    assert "--qos=nope" in call
    assert "--mem=9T" in call
