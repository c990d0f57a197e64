"""Why a target must not be published to, as errors that name the target and the way out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from canard_pipe.errors import PublishError
from canard_pipe.pipeline.outputs import Output
from canard_pipe.pipeline.staging import KeepAlive, glance, measure
from canard_pipe.pipeline.targets import Target

Owner = Callable[[str], str]
_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space, then retry",
    errno.EDQUOT: "the disk quota is used up; free some space, then retry",
    errno.EROFS: "the file system is read-only; give another results folder",
    errno.EACCES: "no permission to write; give yourself the right, or give another results folder",
    errno.EPERM: "no permission to write; give yourself the right, or give another results folder",
    errno.EXDEV: "the state and the results look like one file system but are not; move the state with --state",
    errno.ENAMETOOLONG: "the name is too long; shorten it",
    errno.ENOTDIR: "a file lies where a folder is needed; move it away",
    errno.EEXIST: "something that canard-pipe has not put there lies in its place; move it away, then retry",
    errno.EWOULDBLOCK: "another process is putting it in its place; retry",
}


def explained(error: OSError, target: str, doing: str, results: Path) -> PublishError:
    """Return the PublishError for what the file system said."""
    reason = _WAYS_OUT.get(error.errno or 0, "see the reason given by the system")
    said = os.strerror(error.errno) if error.errno else str(error)
    where = f" ({error.filename})" if error.filename else ""
    return PublishError(f"cannot {doing} {target} in {results}: {said}{where}; {reason}", target)


def refuse_other(task_id: str, task_seq: int, target: Target, output: Output | None, owner: Owner) -> None:
    """Refuse a target that belongs to another task, or lies inside a published folder."""
    if output is None:
        return
    if output.target_key != target.key:
        if output.kind == "folder":
            raise PublishError(
                f"{target.text} would lie inside {output.target}, a folder published by task {_name(output)}; "
                "publish it under another name",
                target.text,
            )
        return
    if output.task_id is None:
        return  # its task is history that retention has removed
    if owner(output.task_id) != owner(task_id):
        twin = "" if output.target == target.text else f" (as {output.target}, the same where case does not count)"
        raise PublishError(
            f"two tasks have one result {target.text}: it belongs to task {output.task_id}{twin} and task {task_id} "
            "asks for it too; give one of them another name",
            target.text,
        )
    if output.task_seq > task_seq:
        raise PublishError(
            f"{target.text} was already published by a later generation, task {output.task_id}; "
            f"task {task_id} is history",
            target.text,
        )


def refuse_place(results: Path, target: Target) -> None:
    """Refuse a target whose folder cannot be written or leads out of the results through a symbolic link."""
    folder = target.below(results).parent
    existing = folder
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        raise PublishError(f"{existing} is not a folder, so {target.text} cannot be published; move it away",
                           target.text)
    if existing.is_relative_to(results) and not existing.resolve().is_relative_to(results.resolve()):
        raise PublishError(
            f"{existing} is a symbolic link that leads out of {results}; replace it by a folder", target.text
        )
    read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
    if read_only or not os.access(existing, os.W_OK | os.X_OK):
        number = errno.EROFS if read_only else errno.EACCES
        raise explained(OSError(number, os.strerror(number), str(existing)), target.text, "publish", results)


def refuse_changed(target: Target, path: Path, source: Path, output: Output | None, keep_alive: KeepAlive) -> None:
    """Refuse to replace what we did not put there: a foreign file, or a result that was changed afterwards.

    A foreign file that holds what ``source`` holds is no loss: so a state that was lost can be made anew.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    what = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a file"
    if output is None:
        if _equal(path, source, keep_alive):
            return
        raise PublishError(
            f"{path} is there already: {what} that canard-pipe has not put there; move it away, then retry",
            target.text,
        )
    seen = glance(path)
    same = (seen.kind, seen.size) == (output.kind, output.size)
    if same and seen.newest_ns > output.accepted_us * 1000:  # only then is reading it worth while
        same = measure(path, keep_alive) == output.content
    if not same:
        raise PublishError(
            f"{path} was changed after canard-pipe had published it and would be replaced; move it away, then retry",
            target.text,
        )


def _equal(path: Path, source: Path, keep_alive: KeepAlive) -> bool:
    one, other = glance(path), glance(source)
    return (one.kind, one.size) == (other.kind, other.size) and measure(path, keep_alive) == measure(source, keep_alive)


def _name(output: Output) -> str:
    return output.task_id or f"number {output.task_seq}"
