"""The one word for how a try of a command failed: what policies, reports and people go by.

| word | means |
| --- | --- |
| exit | a member ended with another exit code than 0 |
| signal | a member was ended by a signal |
| broken_pipe | a member was ended by SIGPIPE: the next one stopped reading, and nothing else failed |
| oom | memory ran out: killed by the kernel, or by us since it used more than its ``memory`` |
| timeout | it ran longer than its time |
| not_found, not_executable | a program is not there, or cannot be executed (127 and 126 of a shell too) |
| disk_full | the disk was full when it ended, it failed and its last words say so, or its folder cannot be made |
| output | it ended with 0, but a declared output is missing, empty or damaged, or ``check`` found something |
| node_failure, preempted | a cluster took the machine away |
| lost, unsure_submission | a scheduler does not know the job any more, or never got it |
| not_submitted, never_starts | a scheduler has refused the job, or lets it wait for what does not come |
| cancelled | somebody took the job from the scheduler |
| no_record | the job has ended, and its folder does not say how |

Nothing here knows an executor: all of it follows from the record and the folder of a try.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from canard_pipe.execution.record import Record

EXIT, SIGNAL, BROKEN_PIPE, OOM, TIMEOUT = "exit", "signal", "broken_pipe", "oom", "timeout"
NOT_FOUND, NOT_EXECUTABLE, DISK_FULL, OUTPUT = "not_found", "not_executable", "disk_full", "output"
NODE_FAILURE, PREEMPTED, LOST, UNSURE_SUBMISSION = "node_failure", "preempted", "lost", "unsure_submission"
NOT_SUBMITTED, NEVER_STARTS, CANCELLED, NO_RECORD = "not_submitted", "never_starts", "cancelled", "no_record"
WORDS = (
    EXIT, SIGNAL, BROKEN_PIPE, OOM, TIMEOUT, NOT_FOUND, NOT_EXECUTABLE, DISK_FULL, OUTPUT, NODE_FAILURE, PREEMPTED,
    LOST, UNSURE_SUBMISSION, NOT_SUBMITTED, NEVER_STARTS, CANCELLED, NO_RECORD,
)  # fmt: skip
HOPELESS = frozenset({NOT_FOUND, NOT_EXECUTABLE, NOT_SUBMITTED, NEVER_STARTS})  # the same would happen again
NOT_ITS_FAULT = frozenset({NODE_FAILURE, PREEMPTED, LOST, UNSURE_SUBMISSION})  # tried again, and not counted

_OF_SHELL = {127: NOT_FOUND, 126: NOT_EXECUTABLE}
_NO_SPACE = re.compile(
    rb"no space left on device|disk quota exceeded|file system is full|not enough (?:disk )?space", re.IGNORECASE
)
_LEAST_FREE_BYTES = 1 << 20
NEXT_TO_NOTHING_BYTES = 1 << 16  # what a writer that met the end of a disk leaves of it
_LAST_WORDS_BYTES = 1 << 16


def of_record(record: Record, folder: Path) -> str | None:
    """Return the word for a try by its record and its last words; None if it succeeded, as far as those tell."""
    if record.ended_by == "timeout":
        return TIMEOUT
    if record.oom:
        return OOM
    if record.succeeded:
        return None
    word = record.cause or _OF_SHELL.get(record.exit_code or 0)
    if word is None and says_no_space(folder):
        word = DISK_FULL
    if word is None and record.signal is not None:
        word = BROKEN_PIPE if record.signal == "SIGPIPE" else SIGNAL
    return word or EXIT


def full_disk(folder: Path) -> str | None:
    """Return what shows that the disk of a try that has just failed is full, or None.

    Many tools end with 0 on a full disk, so this is asked of bad outputs too (BUGS 7).
    """
    return "its last words say so" if says_no_space(folder) else no_space_left(folder)


def no_space_left(folder: Path, least_bytes: int = _LEAST_FREE_BYTES) -> str | None:
    """Return what shows that no ``least_bytes`` more can be written below ``folder`` now, or None."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    # Most file systems keep some blocks for root alone.
    free = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
    if free < least_bytes and disk.f_blocks:
        return f"{free} bytes are free there"
    if disk.f_files and disk.f_favail == 0:
        return "no more files can be made there"
    return None


def ended_on_a_full_disk(folder: Path) -> bool:
    """Tell whether a command that has just ended with 0 may have met the end of the disk: next to nothing is free.

    Some file systems tell nonsense about what is free, so it is tried as well.
    """
    if no_space_left(folder, NEXT_TO_NOTHING_BYTES) is None:
        return False
    probe = folder / "tmp.probe"
    try:
        with probe.open("xb", buffering=0) as file:
            file.write(os.urandom(NEXT_TO_NOTHING_BYTES))
            os.fsync(file.fileno())
            return file.tell() < NEXT_TO_NOTHING_BYTES
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        probe.unlink(missing_ok=True)


def says_no_space(folder: Path) -> bool:
    """Tell whether the last words of a command, on either output, are those of a full disk."""
    return any(_NO_SPACE.search(_end(folder / name)) for name in ("stderr.log", "stdout.log"))


def _end(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _LAST_WORDS_BYTES))
            return opened.read()
    except OSError:
        return b""
