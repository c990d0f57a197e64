"""What the commands of single tasks ask for at least, since somebody retried them with more (``retry --memory``)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError
from canard_pipe.execution.resources import parse_memory, parse_seconds


@dataclass(frozen=True, slots=True)
class Override:
    """The least that each command of a task asks for; None leaves what the pipeline says."""

    memory_bytes: int | None = None
    time_seconds: float | None = None

    def __bool__(self) -> bool:
        return self.memory_bytes is not None or self.time_seconds is not None


def parse_override(memory: object, time: object) -> Override:
    """Return the override that a person asked for, None for what was not said. Raises InputError."""
    for given in (memory, time):
        if given is not None and (isinstance(given, bool) or not isinstance(given, str | int | float)):
            raise InputError(f"{given!r} is neither a size nor a time")
    return Override(
        None if memory is None else parse_memory(memory),  # type: ignore[arg-type]  # a float is refused there
        None if time is None else parse_seconds(time),  # type: ignore[arg-type]  # checked above
    )


def keep(database: Database, seqs: Collection[int], override: Override | None) -> None:
    """Write the override of tasks, within a transaction of the caller's; what it leaves open stays as it was."""
    if not override:
        return
    rows = [
        {"seq": seq, "memory_bytes": override.memory_bytes, "time_seconds": override.time_seconds} for seq in seqs
    ]
    database.store.run("keep_overrides", rows=rows, now_us=database.clock.now_us())


class Overrides:
    """The overrides of a state. Where there is none, a task that is tried once costs no question.

    ``reload`` after a retry has changed them. May be called from several threads.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._any = False
        self.reload()

    def reload(self) -> None:
        """Look again whether there are any."""
        self._any = bool(self._database.query("overrides", seq=None))

    def of(self, seq: int, attempt: int) -> Override:
        """Return the override of a task, or of the sample whose item it is, in its ``attempt``."""
        if attempt == 1 and not self._any:
            return _NONE
        rows = self._database.query("overrides", seq=seq)  # it may have been claimed before the reload
        return Override(*rows[0][1:]) if rows else _NONE


_NONE = Override()
