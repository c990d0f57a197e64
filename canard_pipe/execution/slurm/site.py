"""A site, asked for what canard-pipe needs of it: programs and how fast they answer, accounting, partition, limits.

Nothing is submitted here; ``trial.py`` does that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from canard_pipe.execution.health import Finding, fail, ok, warn
from canard_pipe.execution.slurm import script
from canard_pipe.execution.slurm.client import NO_ACCOUNTING, SlurmClient
from canard_pipe.execution.slurm.settings import SlurmSettings
from canard_pipe.execution.slurm.submitting import ARRAY

TOPIC = "slurm"
SLOW_SECONDS, APART_SECONDS = 5.0, 5.0
USABLE = ("idle", "mix", "alloc", "comp", "plnd", "planned", "resv")
_ASSOCIATIONS = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "assoc", "where")
_UNLIMITED = ("", "UNLIMITED", "NONE", "N/A", "(null)")


def check_programs(client: SlurmClient, environ: Mapping[str, str], *, wanted: bool) -> Iterator[Finding]:
    """Tell which programs are there. ``wanted``: commands are to run on Slurm, so without them nothing does."""
    missing = client.missing()
    if missing:
        text, out = f"{', '.join(missing)} not on PATH", "go to a login node, or load the site's module for Slurm"
        yield fail(TOPIC, text, out) if wanted else ok(TOPIC, f"{text}: commands can run here only")
        return
    _, version, _ = client.ask(["sbatch", "--version"])
    yield ok(TOPIC, f"{version.strip() or 'slurm'}: sbatch, squeue and scancel are on PATH")
    for name, what in (("scontrol", "limits of partitions are not known"), ("sacct", "the past of jobs is not known")):
        if shutil.which(name, path=environ.get("PATH")) is None:
            yield warn(TOPIC, f"{name} is not on PATH: {what}", "load the site's module for Slurm")


def check_answers(
    client: SlurmClient, *, wanted: bool, monotonic: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> Iterator[Finding]:
    """Ask controller, queue and accounting, and tell how long they took and whether their clock is ours.

    ``wanted`` as in :func:`check_programs`; without it a controller that does not answer is the end of it.
    """
    out = "ask again later, then the site's administrators"
    asked = {
        "the controller": ["scontrol", "show", "config"],
        "the queue": ["squeue", "--noheader", "--me"],
        "the accounting": ["sacct", "--noheader", "--parsable2", "--allocations", "--starttime=now-10minutes"],
    }
    for who, words in asked.items():
        begun, before = monotonic(), wall()
        code, said, trouble = client.ask(words)
        took = monotonic() - begun
        if words[0] == "sacct" and NO_ACCOUNTING.search(said + trouble):
            yield warn("accounting", "this site keeps none: jobs that have ended are known for some minutes only",
                       "nothing has to be done: their records tell how they ended")  # fmt: skip
        elif code != 0 and not wanted and words[0] == "scontrol":
            yield warn("answers", f"{who} of Slurm does not answer: {trouble}", "nothing, if commands are to run here")
            return
        elif code != 0:
            judge = warn if words[0] == "sacct" else fail
            yield judge("answers", f"{who} does not answer ({' '.join(words[:2])}): {trouble}", out)
        elif took > SLOW_SECONDS:
            yield warn("answers", f"{who} takes {took:.1f} s to answer", 'ask less often: slurm.interval = "60s"')
        else:
            yield ok("answers", f"{who} answers in {took:.2f} s")
        if code == 0 and words[0] == "scontrol":
            yield from _clock(said, before, wall())


def check_limits(client: SlurmClient, settings: SlurmSettings, user: str) -> Iterator[Finding]:
    """Compare what a run may have in Slurm at once with what the site takes."""
    code, said, _ = client.ask(["scontrol", "show", "config"])
    config = _fields(said.splitlines()) if code == 0 else {}
    jobs, array = _whole(config.get("MaxJobCount")), _whole(config.get("MaxArraySize"))
    if jobs is not None:
        text = f"the controller takes {jobs} jobs of all users (MaxJobCount)"
        out = f"slurm.max_jobs = {max(jobs // 4, 1)}, or less"
        bad = jobs < settings.max_jobs
        yield warn("limits", f"{text}, and a run may have {settings.max_jobs}", out) if bad else ok("limits", text)
    if array is not None:
        text = f"a job array has {max(array - 1, 0)} elements at most (MaxArraySize {array})"
        bad = settings.array and array <= ARRAY
        more = f"{text}, and up to {ARRAY} are submitted together"
        yield warn("limits", more, "slurm.array = false") if bad else ok("limits", text)
    yield from _submit_limit(client, settings, user)


def check_partition(client: SlurmClient, settings: SlurmSettings, user: str) -> Iterator[Finding]:
    """Tell whether partition and account of the settings exist and can be used, and what the partition allows."""
    site = settings.site
    code, said, trouble = client.ask(["scontrol", "--oneliner", "show", "partition"])
    if code != 0:
        yield fail("partition", f"partitions cannot be asked for: {trouble}", "ask again later")
        return
    all_of_them = [_fields(line.split()) for line in said.splitlines() if line.startswith("PartitionName=")]
    by_name = {found["PartitionName"]: found for found in all_of_them}
    default = next((name for name, found in by_name.items() if found.get("Default") == "YES"), None)
    name = site.partition or default
    known = ", ".join(sorted(by_name)) or "none"
    if name is None:
        yield fail("partition", "there is no default partition, and the settings name none",
                   f'slurm.partition = "...": there is {known}')  # fmt: skip
        return
    for one in name.split(","):  # Slurm takes several
        if one not in by_name:
            yield fail("partition", f"there is no partition {one!r}", f"slurm.partition: there is {known}")
        else:
            yield from _partition(one, by_name[one], site.account)
            yield from _nodes(client, one)
    yield from _account(client, settings, user)
    yield _would_be_taken(client, settings)


def _clock(config: str, before: float, after: float) -> Iterator[Finding]:
    stamp = config.partition("\n")[0].rpartition(" ")[2]
    if stamp.isdigit():  # whole seconds
        off = int(stamp) - after if int(stamp) > after else min(int(stamp) + 1 - before, 0.0)
        yield clock_finding("the controller", off)


def clock_finding(whose: str, off: float) -> Finding:
    """Judge a clock that is ``off`` seconds ahead (below 0: behind) of this machine's."""
    if abs(off) > APART_SECONDS:
        which = "ahead of" if off > 0 else "behind"
        return warn("clock", f"the clock of {whose} is {abs(off):.0f} s {which} this machine's",
                    "have all clocks set by NTP: times in logs and reports differ by that")  # fmt: skip
    return ok("clock", f"{whose} and this machine agree on the time")


def _submit_limit(client: SlurmClient, settings: SlurmSettings, user: str) -> Iterator[Finding]:
    """Look for a limit on how many jobs this user may have submitted; without sacctmgr nothing is said."""
    cluster = [f"cluster={settings.site.cluster}"] if settings.site.cluster else []
    account = [f"account={settings.site.account}"] if settings.site.account else []
    code, said, _ = client.ask(
        [*_ASSOCIATIONS, f"user={user}", *cluster, *account, "format=account,maxsubmit,grpsubmit"]
    )
    lines = [line.split("|") for line in said.splitlines()] if code == 0 else []
    limits = [number for fields in lines for field in fields[1:] if (number := _whole(field)) is not None]
    if limits:
        text = f"you may have {min(limits)} jobs submitted (MaxSubmit)"
        bad = min(limits) < settings.max_jobs
        more = f"{text}, and a run may submit {settings.max_jobs}"
        yield warn("limits", more, f"slurm.max_jobs = {min(limits)}") if bad else ok("limits", text)


def _partition(name: str, found: Mapping[str, str], account: str | None) -> Iterator[Finding]:
    if found.get("State", "UP") != "UP":
        yield fail("partition", f"{name} is {found['State']}", "name another: slurm.partition")
    accounts = found.get("AllowAccounts", "ALL")
    if account and accounts != "ALL" and account not in accounts.split(","):
        yield fail("partition", f"{name} does not take the account {account!r}", f"slurm.account: it takes {accounts}")
    time_limit, memory = found.get("MaxTime", ""), found.get("MaxMemPerNode", "")
    parts = [f"time {'without a limit' if time_limit in _UNLIMITED else 'up to ' + time_limit}"]
    parts.append(f"memory {'of the node' if memory in _UNLIMITED else f'up to {memory} MiB'}")
    parts.append(f"{found.get('TotalNodes', '?')} nodes with {found.get('TotalCPUs', '?')} cpus")
    yield ok("partition", f"{name}: {', '.join(parts)}")
    if found.get("DefaultTime", "NONE") not in _UNLIMITED:
        yield ok("partition", f"{name}: a command without time= gets {found['DefaultTime']}")


def _nodes(client: SlurmClient, partition: str) -> Iterator[Finding]:
    code, said, _ = client.ask(["sinfo", "--noheader", f"--partition={partition}", "--format=%T %D"])
    states = [(fields[0], int(fields[1])) for line in said.splitlines()
              if len(fields := line.split()) == 2 and fields[1].isdigit()] if code == 0 else []  # fmt: skip
    if states and not any(state.startswith(USABLE) and not state.endswith("*") for state, _ in states):
        words = ", ".join(f"{count} {state}" for state, count in states)
        yield fail("partition", f"no node of {partition} can be used now: {words}", "wait, or name another partition")


def _account(client: SlurmClient, settings: SlurmSettings, user: str) -> Iterator[Finding]:
    """Look the account up where Slurm itself would not refuse it."""
    account = settings.site.account
    if account is None:
        return
    code, said, _ = client.ask([*_ASSOCIATIONS, f"user={user}", "format=account"])
    known = sorted(set(said.split()))
    if code == 0 and account not in known:
        there = ", ".join(known) or "none"
        yield warn("account", f"{account!r} is no account of {user}", f"slurm.account: there is {there}")
    elif code == 0:
        yield ok("account", f"{account} is an account of {user}")


def _would_be_taken(client: SlurmClient, settings: SlurmSettings) -> Finding:
    """Let Slurm judge the options of the settings, without making a job."""
    given = script.options(settings.site, name="canard-doctor", folder=Path("/"), cpus=1, memory_bytes=None,
                           time_seconds=60.0, comment="canard-pipe: doctor")  # fmt: skip
    code, _, trouble = client.ask(["sbatch", "--test-only", *given, "--wrap=true"])
    if code == 0:
        return ok("partition", "Slurm would take a job with the options of the settings")
    return fail("partition", f"Slurm would refuse a job with the options of the settings: {trouble}",
                "mend the settings under slurm: canard-pipe config")  # fmt: skip


def _fields(words: list[str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
