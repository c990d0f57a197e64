"""A Slurm that lives in this process: it takes jobs, and ends them when it is told to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canard_pipe.execution.slurm import Answer, Doubt, JobId, Limits, Refused, Seen, SlurmJob


@dataclass
class FakeSlurm:
    """A Client. ``submissions`` are answers to come in place of the right one; ``calls`` counts by method."""

    submissions: list[JobId | Refused | Doubt] = field(default_factory=list)
    jobs: dict[str, tuple[Seen, Path]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    options: list[Sequence[str]] = field(default_factory=list)
    answers: bool = True
    lost_answers: int = 0
    limit: Limits = field(default_factory=Limits)
    first: int = 1

    def submit(self, script: Path, options: Sequence[str]) -> JobId | Refused | Doubt:
        self._count("submit")
        if self.submissions:
            return self.submissions.pop(0)
        number = str(self.first + len(self.jobs))
        name = next(option for option in options if option.startswith("--job-name=")).partition("=")[2]
        self.options.append(options)
        array = [option for option in options if option.startswith("--array=0-")]
        if array:
            listed = shlex.split(script.read_text().partition("folders=(")[2].partition(")\n")[0])
            assert len(listed) == int(array[0].partition("-")[2].rpartition("-")[2]) + 1
            for place, folder in enumerate(listed):
                element = f"{number}_{place}"
                self.jobs[element] = (Seen(element, name, "PENDING", "Priority"), Path(folder))
        else:
            self.jobs[number] = (Seen(number, name, "PENDING", "Priority"), script.parent)
        if self.lost_answers:
            self.lost_answers -= 1
            return Doubt("Socket timed out on send/recv operation")
        return JobId(number)

    def by_name(self, names: Sequence[str], since_us: int) -> Answer:  # noqa: ARG002
        self._count("by_name")
        if not self.answers:
            return Answer((), False, "Unable to contact slurm controller")
        return Answer(tuple(seen for seen, _ in self.jobs.values() if seen.name in names), True)

    def states(self, jobs: Sequence[SlurmJob], since_us: int) -> Answer:  # noqa: ARG002
        self._count("states")
        if not self.answers:
            return Answer((), False, "Unable to contact slurm controller")
        asked = {job.job_id for job in jobs}
        return Answer(tuple(seen for number, (seen, _) in self.jobs.items() if number in asked), True)

    def cancel(self, jobs: Sequence[SlurmJob]) -> str | None:
        self._count("cancel")
        self.cancelled += [job.job_id for job in jobs if job.job_id is not None]
        for job in jobs:
            self.becomes(str(job.job_id), "CANCELLED")
        return None

    def limits(self, partition: str | None) -> Limits:  # noqa: ARG002
        return self.limit

    def becomes(self, number: str, state: str, reason: str = "") -> None:
        seen, folder = self.jobs[number]
        self.jobs[number] = (replace(seen, state=state, reason=reason, start_us=1, end_us=2), folder)

    def ends(self, number: str, exit_code: int = 0, outputs: dict[str, int] | None = None) -> None:
        """The job has run its command and written its record, with the sizes of ``outputs``."""
        folder = self.jobs[number][1]
        message = json.loads((folder / "job.json").read_text())
        end = {"exit_code": exit_code, "signal": None}
        content = {
            "version": 1, "token": message["token"], "digest": message["digest"], **message["identity"],
            "members": [{"argv": argv, **end} for argv in message["members"]], **end, "cause": None, "error": None,
            "started_at": "2026-12-01T00:00:00Z", "ended_at": "2026-12-01T00:01:00Z", "host": "n1", "boot_id": "b",
            "peak_memory_bytes": 1, "cpu_seconds": 0.1, "ended_by": "itself", "oom": False, "left_over": 0,
            "outputs": outputs or {}, "job_id": number,
        }  # fmt: skip
        (folder / "status.json").write_text(json.dumps(content))
        self.becomes(number, "COMPLETED" if exit_code == 0 else "FAILED")

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
