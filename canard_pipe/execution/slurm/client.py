"""The calls of Slurm's programs: a clean environment, bounded time, answers as data.

Nothing is believed that cannot be read: a job ID is digits, a row has all its fields. An exit status tells whether a
program could be asked, never how a job is. Instants are asked for as seconds since 1970, so time zones do not matter.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canard_pipe.execution.slurm import Answer, Doubt, JobId, Limits, Refused, Seen, SlurmJob, states

CALL_SECONDS = 60.0
SUBMIT_SECONDS = 180.0  # sbatch itself retries for two minutes where the controller is full
IDS_PER_CALL, NAMES_PER_CALL = 1000, 200
ACCOUNTING_OFF_SECONDS = 600.0
_STRIPPED = ("SBATCH_", "SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SRUN_", "SALLOC_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")
_PARSABLE = re.compile(r"(\d+)(?:;(\S+))?")
_SENTENCE = re.compile(r"Submitted batch job (\d+)(?: on cluster (\S+))?")
_ID = re.compile(r"\d+(?:_\d+)?")
_IN_DOUBT = re.compile(
    r"socket timed out|timed out|unable to contact|connect failure|communication|connection|send/recv|zero bytes"
    r"|unexpected message|protocol|slurm_persist|end of file|broken pipe",
    re.IGNORECASE,
)
_LATER = re.compile(r"temporarily|MaxSubmit|MaxJobCount|too many|try again|limit reached", re.IGNORECASE)
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|not running a supported accounting_storage", re.IGNORECASE)
_SACCT = "JobID,JobName,State,ExitCode,Submit,Start,End,NodeList"
_SQUEUE = "%i|%j|%T|%r|%V|%S|%e|%N"


@dataclass(frozen=True, slots=True)
class _Said:
    code: int | None  # None: it did not end in time, or is not there
    out: str
    errors: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in (self.errors or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


class SlurmClient:
    """The programs of Slurm, found by PATH in ``environ``. See :class:`canard_pipe.execution.slurm.Client`."""

    def __init__(
        self, environ: Mapping[str, str], *, cluster: str | None = None, call_seconds: float = CALL_SECONDS,
        submit_seconds: float = SUBMIT_SECONDS, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = {
            name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_STRIPPED)
        }
        self._environ |= {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        self._cluster = [] if cluster is None else [f"--clusters={cluster}"]
        self._call_seconds, self._submit_seconds = call_seconds, submit_seconds
        self._monotonic = monotonic
        self._no_accounting_until = float("-inf")

    def missing(self) -> list[str]:
        """Return the programs that are needed and not in PATH."""
        path = self._environ.get("PATH")
        return [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name, path=path) is None]

    def submit(self, script: Path, options: Sequence[str]) -> JobId | Refused | Doubt:
        """See Client."""
        said = self._call(["sbatch", "--parsable", *options, str(script)], self._submit_seconds)
        if said.code == 0:
            for line in said.out.splitlines():
                found = _PARSABLE.fullmatch(line.strip()) or _SENTENCE.fullmatch(line.strip())
                if found:
                    return JobId(found[1], found[2])
            return Doubt(f"sbatch has printed no job ID: {said.out.strip()[:200]!r}")
        text = " ".join(line.removeprefix("sbatch: error: ").strip() for line in said.errors.splitlines()) or "no text"
        if said.code is None or said.code < 0:
            return Doubt(said.last_line)
        if said.code != 255 and _LATER.search(text):
            return Refused(text, final=False)
        if said.code != 255 and _IN_DOUBT.search(text):
            return Doubt(text)
        return Refused(text, final=True)

    def by_name(self, names: Sequence[str], since_us: int) -> Answer:
        """See Client."""
        seen: dict[str, Seen] = {}
        trouble: list[str] = []
        for some in _parts(list(names), NAMES_PER_CALL):
            rows, wrong = self._squeue([f"--name={','.join(some)}"])
            seen |= {row.name: row for row in rows}
            trouble += [wrong] if wrong else []
            left = [name for name in some if name not in seen]
            if left:
                rows, wrong = self._sacct([f"--name={','.join(left)}", f"--starttime={_local(since_us)}"])
                seen |= {row.name: row for row in rows}
                trouble += [wrong] if wrong else []
        return Answer(tuple(seen.values()), not trouble, trouble[0] if trouble else None)

    def states(self, jobs: Sequence[SlurmJob], since_us: int) -> Answer:  # noqa: ARG002 - IDs need no bound
        """See Client. squeue knows why a job waits, and more quickly what has changed; sacct knows what has been."""
        ids = sorted({job.job_id.partition("_")[0] for job in jobs if job.job_id is not None})  # whole arrays
        found: dict[tuple[str, str], Seen] = {}
        accounting = None
        for some in _parts(ids, IDS_PER_CALL):
            rows, wrong = self._sacct([f"--jobs={','.join(some)}"])
            accounting = accounting or wrong
            found |= {(row.job_id, row.name): row for row in rows}
        settled = {key for key, row in found.items() if _is_settled(row)}
        queue = None
        if any((job.job_id, job.name) not in settled for job in jobs):
            rows, queue = self._squeue([])
            found |= {(row.job_id, row.name): row for row in rows}
        missing = [job for job in jobs if (job.job_id, job.name) not in found]
        complete = not missing or (queue is None and accounting is None)
        return Answer(tuple(found.values()), complete, queue or (accounting if missing else None))

    def cancel(self, jobs: Sequence[SlurmJob]) -> str | None:
        """See Client. Only what stands in the queue under the job's own name: a number may be another's by now."""
        rows, trouble = self._squeue([])
        if trouble is not None:
            return trouble
        there = {(row.job_id, row.name) for row in rows}
        ids = [job.job_id for job in jobs if job.job_id is not None and (job.job_id, job.name) in there]
        for some in _parts(ids, 100):
            said = self._call(["scancel", *self._cluster, *some], self._call_seconds)
            if said.code != 0:
                return said.last_line
        return None

    def limits(self, partition: str | None) -> Limits:
        """See Client."""
        said = self._call(["scontrol", "--oneliner", "show", "partition", *([partition] if partition else [])],
                          self._call_seconds)
        for line in said.out.splitlines() if said.code == 0 else ():
            fields = dict(item.split("=", 1) for item in line.split() if "=" in item)
            if partition is not None or fields.get("Default") == "YES":
                memory = fields.get("MaxMemPerNode", "")
                most = int(memory) << 20 if memory.isdigit() else None
                return Limits(_limit_seconds(fields.get("MaxTime", "")), most)
        return Limits()

    def ask(self, words: Sequence[str], seconds: float | None = None) -> tuple[int | None, str, str]:
        """Call any of Slurm's programs; return its exit status (None: no answer), its output, and why it failed."""
        said = self._call(words, seconds or self._call_seconds)
        return said.code, said.out, "" if said.code == 0 else said.last_line

    # -- the programs -------------------------------------------------------------------------------------------

    def _squeue(self, more: Sequence[str]) -> tuple[list[Seen], str | None]:
        """Return rows of squeue, and why there may be others; finished jobs stay for some minutes."""
        said = self._call(
            ["squeue", "--noheader", "--array", "--states=all", f"--user={getpass.getuser()}", f"--format={_SQUEUE}",
             *self._cluster, *more], self._call_seconds,
        )  # fmt: skip
        if said.code != 0:
            return [], said.last_line
        rows = []
        for line in said.out.splitlines():
            fields = line.strip().split("|")
            if len(fields) == 8 and _ID.fullmatch(fields[0]):
                id, name, state, reason, submit, start, end, nodes = fields
                waits = states.meaning(state).waiting  # then start and end are guesses
                rows.append(Seen(
                    id, name, _word(state), "" if reason == "None" else reason, None, None, _instant(submit),
                    None if waits else _instant(start), None if waits else _instant(end), nodes, "squeue",
                ))  # fmt: skip
        return rows, None

    def _sacct(self, more: Sequence[str]) -> tuple[list[Seen], str | None]:
        """Return rows of sacct, the newest of each job, and why there may be others.

        A site without accounting is complete without it; that is asked again now and then.
        """
        if self._monotonic() < self._no_accounting_until:
            return [], None
        said = self._call(
            ["sacct", "--allocations", "--parsable2", "--noheader", f"--format={_SACCT}", *self._cluster, *more],
            self._call_seconds,
        )
        if NO_ACCOUNTING.search(said.errors + said.out):
            self._no_accounting_until = self._monotonic() + ACCOUNTING_OFF_SECONDS
            return [], None
        if said.code != 0:
            return [], said.last_line
        newest: dict[tuple[str, str], Seen] = {}
        for row in _sacct_rows(said.out):
            before = newest.get((row.job_id, row.name))
            if before is None or (row.submit_us or 0) >= (before.submit_us or 0):
                newest[row.job_id, row.name] = row
        return list(newest.values()), None

    def _call(self, words: Sequence[str], seconds: float) -> _Said:
        try:
            ended = subprocess.run(
                words, env=self._environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
                cwd="/", start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return _Said(None, "", f"{words[0]} did not answer within {seconds:g} s")
        except OSError as error:
            return _Said(None, "", f"{words[0]} cannot be started: {error.strerror}")
        return _Said(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))


def _sacct_rows(out: str) -> Iterator[Seen]:
    for line in out.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 8 or not _ID.fullmatch(fields[0]):  # steps, pending arrays as a range, sentences
            continue
        id, name, state, ends, submit, start, end, nodes = fields
        code, _, signal = ends.partition(":")
        yield Seen(
            id, name, _word(state), "", _number(code), _number(signal),
            _instant(submit), _instant(start), _instant(end), "" if nodes == "None assigned" else nodes, "sacct",
        )


def _is_settled(row: Seen) -> bool:
    """Tell whether squeue could not say more: at work, or at an end after which nothing is put back."""
    meaning = states.meaning(row.state)
    if meaning.waiting or not meaning.known:
        return False
    return not meaning.final or meaning.cause not in ("node_failure", "preempted")


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _word(state: str) -> str:
    return state.split()[0] if state.split() else ""


def _instant(text: str) -> int | None:
    return int(text) * 1_000_000 if text.isdigit() else None


def _local(instant_us: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(instant_us / 1e6))


def _limit_seconds(text: str) -> float | None:
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _parts(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))

