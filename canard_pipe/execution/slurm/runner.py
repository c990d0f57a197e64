"""The program of a job, on the node: run one command under supervision and write its record, ``status.json``.

Started by the batch script as ``python -I -S runner.py FOLDER``, with the standard library only; what runs and ends the
command is the launcher's code (see launcher.py), whose files must be visible on the node. ``FOLDER/job.json`` says what
to do. The files ``started`` and ``revoked`` keep a job out that should not be there:

- ``started`` is made exclusively, with job ID and restart count. Another job that finds it leaves; the same job, put
  back in the queue by Slurm, takes it over.
- where ``revoked`` is, the run has given up on this job and may have submitted another one: nothing is started, and no
  record is written.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # typing is not imported: start-up
if TYPE_CHECKING:
    from typing import Any

    from canard_pipe.execution import launcher, tries
else:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    import launcher

JOB, STARTED, REVOKED = "job.json", "started", "revoked"
LOOK_SECONDS = 15.0
OWN_VARIABLES = ("SLURM_", "SBATCH_", "SRUN_", "SLURMD_")
TERMINATED = "terminated"  # by Slurm: it knows why


class Runner(launcher.Launcher):
    """A launcher of one command, without a run at the other end."""

    def __init__(self, message: dict[str, Any]) -> None:
        self._revoked = f"{message['folder']}/{REVOKED}"
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._asked = self._told = False
        self.exit_code = 0
        super().__init__()
        signal.signal(signal.SIGTERM, self._on_term)
        self.start(message)

    def _on_term(self, _number: int, _frame: object) -> None:
        self._asked = True

    def send(self, event: dict[str, Any] | None = None) -> None:
        """Hear of the end; there is nobody to tell."""
        if event is not None and event["event"] == "ended":
            record = event["record"]
            self.exit_code = record["exit_code"] if record["exit_code"] is not None else 1
            if event["not_written"]:
                print(f"canard-pipe: the record could not be written: {event['not_written']}", file=sys.stderr)
            self.quitting = True

    def advance(self, now: float) -> None:
        """End the command if Slurm asks for it, or if the run has given up on the job."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._asked = self._asked or os.path.exists(self._revoked)  # noqa: PTH110 (no pathlib here: start-up)
        if self._asked and not self._told:
            self._told = True
            for attempt in list(self.tries.values()):
                self.stop(attempt, TERMINATED, attempt.grace)
        super().advance(now)

    def finish(self, attempt: tries.Try, undead: list[int]) -> None:
        """Write the record, unless the run has given up on the job."""
        if os.path.exists(self._revoked):  # noqa: PTH110
            del self.tries[attempt.token]
            self.quitting = True
            return
        super().finish(attempt, undead)


def take(folder: str, job_id: str, restarts: int) -> str | None:
    """Make ``started`` for this job; return why it may not run."""
    content = json.dumps({"job_id": job_id, "restarts": restarts, "host": os.uname().nodename, "at": time.time()})
    path = f"{folder}/{STARTED}"
    fresh = f"{path}.{job_id}.{restarts}"
    with open(fresh, "w") as file:  # noqa: PTH123
        file.write(content)
    try:
        os.link(fresh, path)  # exclusive, and whole when it is there
    except FileExistsError:
        with open(path) as file:  # noqa: PTH123
            there = json.load(file)
        if there["job_id"] != job_id or there["restarts"] >= restarts:
            os.unlink(fresh)  # noqa: PTH108
            return f"job {there['job_id']} (start {there['restarts'] + 1}) has begun with this try already"
        os.replace(fresh, path)  # noqa: PTH105
    else:
        os.unlink(fresh)  # noqa: PTH108
    return "the run has given up on this job" if os.path.exists(f"{folder}/{REVOKED}") else None  # noqa: PTH110


def environment(message: dict[str, Any]) -> dict[str, str]:
    """Return the command's variables; with lines of the site's profile those that they have set count, too."""
    if not message["from_node"]:
        return dict(message["env"])
    node = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    return node | {name: message["env"][name] for name in message["own"]}


def main(folder: str) -> int:
    """Run the command of a try; return its exit code."""
    with open(f"{folder}/{JOB}") as file:  # noqa: PTH123
        message = json.load(file)
    job_id, element = os.environ.get("SLURM_JOB_ID", "0"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if element is not None:
        job_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{element}"
    if os.path.exists(f"{folder}/{REVOKED}"):  # noqa: PTH110
        refusal: str | None = "the run has given up on this job"
    else:
        refusal = take(folder, job_id, int(os.environ.get("SLURM_RESTART_COUNT") or 0))
    if refusal is not None:
        print(f"canard-pipe: {refusal}; nothing was started", file=sys.stderr)
        return 0
    message["env"] = environment(message)
    message["identity"]["job_id"] = job_id
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), launcher.CONTROL)
    runner = Runner(message)
    runner.run()
    ours.close()
    return runner.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
