"""What the tries of a command so far tell: what the next asks for, and whether there is a next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canard_pipe.execution import causes
from canard_pipe.execution.command import Command
from canard_pipe.execution.folders import Attempt
from canard_pipe.execution.record import Record
from canard_pipe.execution.resources import Most, Request
from canard_pipe.execution.retry import Again, Failed, Tries, decide

Tried = Sequence[tuple[Attempt, Record | None]]
_OUTCOMES = ("itself", "timeout", "memory", "scheduler")  # the others say nothing of the command


def request(command: Command, tried: Tried, most: Most) -> Request:
    """Return what to ask for after these tries: more after a lack of memory, but no more than there is."""
    grown = command.request(sum(1 for _, record in tried if record and record.oom))
    first = command.request().memory_bytes
    if most.memory_bytes is None or first > most.memory_bytes:  # then the executor says what is wrong
        return grown
    return replace(grown, memory_bytes=min(grown.memory_bytes, most.memory_bytes))


def seconds(command: Command, tried: Tried, most: Most) -> float | None:
    """Return after how many seconds the try after these is ended: more after timeouts, but no more than there is."""
    grown = command.seconds(sum(1 for _, record in tried if record and record.ended_by == "timeout"))
    first = command.seconds()
    if grown is None or first is None or most.seconds is None or first > most.seconds:
        return grown
    return min(grown, most.seconds)


def again(command: Command, tried: Tried, word: str, tries: Tries, most: Most) -> Again:
    """Say whether another try follows the last of ``tried``, which has failed for the cause ``word``.

    ``tries`` is what the pipeline declares; the command's own come first.
    """
    before, (attempt, record) = tried[:-1], tried[-1]
    assert record is not None  # noqa: S101 - the last one has ended
    failed = [
        Failed(causes.of_record(earlier, place.folder) or causes.OUTPUT, earlier.exit_code)
        for place, earlier in before
        if earlier is not None and earlier.ended_by in _OUTCOMES and place.number != attempt.number
    ]
    memory = [request(command, some, most).memory_bytes for some in (before, tried)]
    time = [seconds(command, some, most) or 0.0 for some in (before, tried)]
    grows = (word == causes.OOM and memory[1] > memory[0]) or (word == causes.TIMEOUT and time[1] > time[0])
    return decide(
        [*failed, Failed(word, record.exit_code)], command.tries.before(tries),
        grows=grows, over_its_own=record.ended_by == "memory",
    )  # fmt: skip
