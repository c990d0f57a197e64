"""The tries of commands of one pipeline, as recorded."""

from __future__ import annotations

from dataclasses import dataclass

from canard_pipe.pipeline.access import View


@dataclass(frozen=True, slots=True)
class Tried:
    """One try of one command. ``seq`` is that of the row's task, also for an item's command; ``item`` its path, or "".

    ``folder`` is as stored: relative to the launch folder where it lies below it. Instants are UTC microseconds; what
    is not known is None.
    """

    kind: str
    sample: str
    seq: int
    item: str
    map: str
    step: str
    ordinal: int
    attempt: int
    state: str
    cause: str | None
    exit_code: int | None
    signal: str | None
    executor: str
    job_id: str | None
    host: str | None
    cpus: float | None
    memory_bytes: int | None
    peak_memory_bytes: int | None
    cpu_seconds: float | None
    read_bytes: int | None
    written_bytes: int | None
    submitted_us: int | None
    started_us: int | None
    ended_us: int | None
    folder: str
    live: bool

    @property
    def label(self) -> str:
        """Return the name under which commands of one kind are counted: the step, with the map of an item before."""
        return "/".join(dict.fromkeys(part for part in (self.map, self.step) if part)) or "(no step)"

    @property
    def command(self) -> tuple[int, str, str, int]:
        """Return what its tries have in common: row, item, step, place in the step."""
        return self.seq, self.item, self.step, self.ordinal

    @property
    def good(self) -> bool:
        """Whether it ended well."""
        return self.state == "done"

    @property
    def bad(self) -> bool:
        """Whether it ended, and not well."""
        return not self.live and not self.good

    @property
    def seconds(self) -> float | None:
        """Return how long it ran; None while that is not known."""
        if self.started_us is None or self.ended_us is None:
            return None
        return max(self.ended_us - self.started_us, 0) / 1e6


def read_tries(view: View, pipeline: str) -> list[Tried]:
    """Return all tries of the rows of the plan, those of a row together and in the order of time."""
    return [Tried(*row) for row in view.query("report_tries", pipeline=pipeline)]
