"""The engine's rules once more, as plainly as they can be said: no database, no threads, one dict of tasks.

The laws compare the engine with it after every action. Ids such as S4 are those of docs/parity.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

FINAL = ("completed", "failed", "cancelled")
FAR_US = 253_402_214_400_000_000  # 9999-12-31: a task that waits without a time limit


@dataclass(frozen=True)
class Op:
    """One step of a handler: kind step, sleep or wait."""

    kind: str
    value: object = None
    seconds: float | None = None  # of a sleep; the time limit of a wait
    events: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


@dataclass
class Lease:
    """What one claim knows."""

    id: str
    attempt: int
    seconds: float
    place: int = 0  # how many steps this attempt has passed


@dataclass
class Task:
    id: str
    seq: int
    priority: int
    max_failures: int
    created_us: int
    available_us: int
    updated_us: int
    state: str = "ready"
    attempt: int = 0
    failures: int = 0
    error: str | None = None
    result: object = None
    deadline_us: int | None = None
    lease: Lease | None = None
    script: list[Op] = field(default_factory=list)  # what its handler does, as far as it ever came
    saved: list[object] = field(default_factory=list)  # one value for each saved step, by place
    marker_until_us: tuple[int | None] | None = None  # a wait that has begun at place len(saved)
    history: list[tuple[int, str]] = field(default_factory=list)

    def leave(self, state: str, now_us: int, outcome: str | None) -> None:
        """End an attempt, or leave a state in which there is none."""
        if outcome is not None:
            self.history.append((self.attempt, outcome))
        self.state, self.updated_us, self.lease, self.deadline_us = state, now_us, None, None


class Lost(Exception):
    """The claim is not current (S27)."""


class Suspended(Exception):
    """The handler is unwound."""


class Model:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.events: dict[str, object] = {}
        self.next_seq = 1

    # -- what anybody does ------------------------------------------------------------------------------------

    def spawn(self, id: str, priority: int, max_failures: int, now_us: int) -> bool:
        """False for a SpawnConflict (S22)."""
        known = self.tasks.get(id)
        if known is not None:
            return (known.priority, known.max_failures) == (priority, max_failures)
        self.tasks[id] = Task(id, self.next_seq, priority, max_failures, now_us, now_us, now_us)
        self.next_seq += 1
        return True

    def emit(self, name: str, value: object) -> bool:
        """L1: the first value stands."""
        first = name not in self.events
        self.events.setdefault(name, value)
        return first

    def cancel(self, id: str, now_us: int) -> bool:
        """F14, S36."""
        task = self.tasks.get(id)
        if task is None or task.state in FINAL:
            return False
        task.leave("cancelled", now_us, "cancelled" if task.state == "running" else None)
        return True

    def retry(self, id: str, from_place: int | None, now_us: int) -> None:
        """G14: the one verb that leaves a final state."""
        task = self.tasks[id]
        if from_place is not None:
            del task.script[from_place:], task.saved[from_place:]
            task.marker_until_us = None
        task.state, task.failures, task.error, task.result = "ready", 0, None, None
        task.available_us = task.updated_us = now_us

    # -- what workers and maintenance do ----------------------------------------------------------------------

    def claim(self, limit: int, lease_seconds: float, now_us: int) -> list[Lease]:
        """S4, S5, S7."""
        eligible = [
            task for task in self.tasks.values()
            if (task.state == "ready" and task.available_us <= now_us)
            or (self._expired(task, now_us) and task.failures + 1 < task.max_failures)
        ]
        eligible.sort(key=lambda task: (-task.priority, task.available_us, task.created_us, task.seq))
        leases = []
        for task in eligible[:limit]:
            if task.state == "running":
                task.history.append((task.attempt, "expired"))
                task.failures += 1
                task.error = "worker lease expired"
            task.state, task.updated_us = "running", now_us
            task.attempt += 1
            task.lease = Lease(task.id, task.attempt, lease_seconds)
            task.deadline_us = now_us + round(lease_seconds * 1e6)
            leases.append(task.lease)
        return leases

    def sweep(self, now_us: int) -> int:
        """S4, S9, G27."""
        gone = [task for task in self.tasks.values()
                if self._expired(task, now_us) and task.failures + 1 >= task.max_failures]
        for task in gone:
            task.failures += 1
            task.error = "worker lease expired"
            task.leave("failed", now_us, "expired")
        return len(gone)

    def wake(self, now_us: int) -> int:
        """Level-triggered: only what is there counts, not when it came. What is awake is as old as it is (S7)."""
        awake = [task for task in self.tasks.values() if task.state == "suspended"
                 and (task.available_us <= now_us or self._is_there(task.script[len(task.saved)]))]
        for task in awake:
            task.state, task.available_us, task.updated_us = "ready", task.created_us, now_us
        return len(awake)

    def interrupt(self, now_us: int) -> int:
        """A dead owner's work costs nothing."""
        running = [task for task in self.tasks.values() if task.state == "running"]
        for task in running:
            task.leave("ready", now_us, "interrupted")
        return len(running)

    def set_clock(self, shift_us: int, then_us: int, now_us: int) -> None:
        """Leases move along; sleepers keep their wall time; what was due stays due."""
        for task in self.tasks.values():
            if task.deadline_us is not None:
                task.deadline_us += shift_us
            if task.state in ("ready", "suspended") and now_us < task.available_us <= then_us:
                task.available_us = now_us

    def retain(self, age_us: int, keep: int, now_us: int) -> int:
        """L5: nothing unfinished, nothing that somebody waits for."""
        final = sorted((task for task in self.tasks.values() if task.state in FINAL),
                       key=lambda task: (task.updated_us, task.seq), reverse=True)
        waited_for = {id for task in self.tasks.values() if task.state not in FINAL
                      and task.marker_until_us is not None for id in task.script[len(task.saved)].tasks}
        gone = [task for task in final[keep:] if task.updated_us <= now_us - age_us and task.id not in waited_for]
        for task in gone:
            del self.tasks[task.id]
        return len(gone)

    # -- what the holder of a claim does ----------------------------------------------------------------------

    def proceed(self, lease: Lease, op: Op, now_us: int) -> object:
        """The handler's next step: ``op`` if it never came so far, otherwise what it did there before."""
        task = self._held(lease, now_us)
        self._renew_at_entry(task, lease, now_us)
        place = lease.place
        if place == len(task.script):
            task.script.append(op)
        op = task.script[place]
        if place < len(task.saved):
            lease.place += 1
            return task.saved[place]
        if op.kind == "sleep":
            assert op.seconds is not None
            task.saved.append(None)
            task.leave("ready", now_us, "suspended")
            task.available_us = now_us + round(op.seconds * 1e6)
            raise Suspended
        value = op.value if op.kind == "step" else self._wait(task, op, now_us)
        task.saved.append(value)
        task.marker_until_us = None
        lease.place += 1
        self.heartbeat(lease, lease.seconds, now_us)
        return value

    def heartbeat(self, lease: Lease, seconds: float, now_us: int) -> None:
        """S10, S11: the later of both."""
        task = self._held(lease, now_us)
        assert task.deadline_us is not None
        task.deadline_us, task.updated_us = max(task.deadline_us, now_us + round(seconds * 1e6)), now_us

    def complete(self, lease: Lease, result: object, now_us: int) -> None:
        """F12, S20."""
        task = self._held(lease, now_us)
        task.leave("completed", now_us, "completed")
        task.result, task.error = result, None

    def fail(self, lease: Lease, message: str, delay_seconds: float, fatal: bool, now_us: int) -> None:
        """F13, S21."""
        task = self._held(lease, now_us)
        task.failures += 1
        task.error = message
        task.leave("failed" if fatal or task.failures >= task.max_failures else "ready", now_us, "failed")
        task.available_us = now_us + round(delay_seconds * 1e6)

    def release(self, lease: Lease, now_us: int) -> None:
        """Section 8.7: nothing is counted."""
        self._held(lease, now_us).leave("ready", now_us, "released")

    # -- inside -----------------------------------------------------------------------------------------------

    def _wait(self, task: Task, op: Op, now_us: int) -> object:
        if task.marker_until_us is not None:
            (until_us,) = task.marker_until_us
        else:
            until_us = None if op.seconds is None else now_us + round(op.seconds * 1e6)
        if not self._is_there(op) and (until_us is None or now_us < until_us):
            task.marker_until_us = (until_us,)
            task.leave("suspended", now_us, "suspended")
            task.available_us = FAR_US if until_us is None else until_us
            raise Suspended
        events = {name: self.events[name] for name in op.events if name in self.events}
        tasks = {id: self.tasks[id].state for id in op.tasks if self._ended([id])}
        missing = [name for name in op.events if name not in events] + [id for id in op.tasks if id not in tasks]
        return events, tasks, tuple(missing)

    def _is_there(self, op: Op) -> bool:
        return all(name in self.events for name in op.events) and self._ended(op.tasks)

    def _ended(self, ids: Collection[str]) -> bool:
        return all(id in self.tasks and self.tasks[id].state in FINAL for id in ids)

    def _expired(self, task: Task, now_us: int) -> bool:
        return task.deadline_us is not None and task.deadline_us <= now_us

    def _held(self, lease: Lease, now_us: int) -> Task:
        """G4: the token, state running and a deadline that is not over."""
        task = self.tasks.get(lease.id)
        if task is None or task.lease is not lease or self._expired(task, now_us):
            raise Lost
        return task

    def _renew_at_entry(self, task: Task, lease: Lease, now_us: int) -> None:
        assert task.deadline_us is not None
        if (task.deadline_us - now_us) / 1e6 < lease.seconds / 2:
            self.heartbeat(lease, lease.seconds, now_us)
