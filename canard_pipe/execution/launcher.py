"""The launcher: a small program of its own that starts all commands of a run and ends whatever they leave.

Started by ``LocalExecutor`` as ``python -I -S launcher.py [FD...]`` in a session of its own. One thread, standard
library only. Why a process of its own: after SIGKILL of the run its children must die too, sessions of their own
included; a thread of the run cannot do that, and forking from the run is slow and unsafe beside DuckDB's threads.

- Standard input is one end of a socket pair; messages and events are JSON objects, one a line. End of file means
  that the run is gone: every descendant is killed at once.
- It is a child subreaper, so a daemon that a command leaves becomes its child instead of init's (Linux).
- ``FD...`` are descriptors that stay open for its life and are not passed on: the owner's lock is free only when
  the launcher is gone too.

Messages: ``start`` (one try of a command), ``stop`` (TERM to its tree, KILL after ``grace``), ``quit``.
Events: ``ready``, ``started``, ``memory``, ``ended`` (with the record that also is status.json, see record.py).

A try ends when its members have ended and no descendant is left. Descendants in the command's own session are
waited for a little (``linger``: bash does not wait for ``>(gzip > x.gz)``); then, and daemons at once, TERM and KILL.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing is not imported: start-up
if TYPE_CHECKING:
    from typing import Any

    from canard_pipe.execution import groups, spawning, tries
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (no pathlib: start-up)
    import groups
    import spawning
    import tries

CONTROL = 0
_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # the run decides; it tells by message
SAMPLE_SECONDS = 1.0
WATCH_SECONDS = 0.25  # while a try has a limit of memory
LOOK_SECONDS = 0.02
GIVE_UP_SECONDS = 30.0  # a process in uninterruptible sleep does not die; the try ends without it and says so


class Launcher:
    """The loop: messages, ended children, time."""

    def __init__(self) -> None:
        self.tries: dict[str, tries.Try] = {}
        self.tree = tries.Tree(self.tries, subreaper=_become_subreaper())
        self.groups: groups.Place | None = None
        self._looked_for_groups = False
        self.quitting = False
        self._received = b""
        self._to_send = b""
        self._next_sample = 0.0
        self._wake = _wake_on_children()
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(CONTROL, select.POLLIN)
        self._run = _watch_parent()  # a fork of the run could hold the other end of the socket open
        if self._run is not None:
            self._poll.register(self._run, select.POLLIN)
        os.set_blocking(CONTROL, False)

    def run(self) -> None:
        """Work until told to quit, or until the run is gone."""
        self.send({"event": "ready", "subreaper": self.tree.subreaper})
        while True:
            self.reap()
            self.advance(time.monotonic())
            if self.quitting and not self.tries:
                return
            for descriptor, events in self._poll.poll(self._timeout()):
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                    continue
                if descriptor == self._run:
                    self.end_everything()
                    return
                if events & select.POLLOUT:
                    self.send()
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and not self._receive():
                    self.end_everything()
                    return

    def _timeout(self) -> float | None:
        """Milliseconds until something is due, or None: sleep until a child or the run says something."""
        due = [self._next_sample] if self.tries else []
        for attempt in self.tries.values():
            if attempt.stage == tries.RUNNING:
                due += [attempt.deadline] if attempt.deadline is not None else []
            else:
                due.append(attempt.look_at)
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    # --- the run ---

    def send(self, event: dict[str, Any] | None = None) -> None:
        """Send an event, or what is left of earlier ones; never blocks, also if the run is stopped."""
        if event is not None:
            self._to_send += json.dumps(event, separators=(",", ":")).encode() + b"\n"
        while self._to_send:
            try:
                sent = os.write(CONTROL, self._to_send)
            except BlockingIOError:
                break
            except OSError:  # the run is gone; reading will tell
                self._to_send = b""
                break
            self._to_send = self._to_send[sent:]
        self._poll.modify(CONTROL, select.POLLIN | (select.POLLOUT if self._to_send else 0))

    def _receive(self) -> bool:
        try:
            chunk = os.read(CONTROL, 1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not chunk:
            return False
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))
        return True

    def handle(self, message: dict[str, Any]) -> None:
        """Obey a message of the run."""
        if message["op"] == "start":
            self.start(message)
        elif message["op"] == "stop" and message["token"] in self.tries:
            self.stop(self.tries[message["token"]], message["reason"], message["grace"])
        elif message["op"] == "quit":
            self.quitting = True
            for attempt in list(self.tries.values()):
                self.stop(attempt, "stop", message["grace"])

    # --- tries ---

    def start(self, message: dict[str, Any]) -> None:
        """Start the members of a command; what cannot be started is a fact of its record."""
        if not self.tries:
            self.tree.look_at_kills()  # what was ended before is none of this one's
        attempt = tries.Try(message, self.tree.newest())
        if not self.tries:
            self._next_sample = attempt.started + SAMPLE_SECONDS
        if attempt.memory_limit:
            self._next_sample = min(self._next_sample, attempt.started + WATCH_SECONDS)
        self.tries[attempt.token] = attempt
        attempt.group = self._enter_group(message)
        try:
            attempt.failure = spawning.start(message, attempt.add)
        finally:
            if attempt.group is not None:
                attempt.group.leave(int(attempt.memory_limit * tries.MEMORY_TOLERANCE))
        if attempt.failure is not None:
            self.tree.signal(attempt.alive, signal.SIGKILL)
            return
        pids = [member.pid for member in attempt.members]
        self.send({"event": "started", "token": attempt.token, "pids": pids, "at": attempt.started_at})

    def _enter_group(self, message: dict[str, Any]) -> groups.Group | None:
        """Enter a new group for a try with a limit of memory, where that can be enforced."""
        if not message["memory"] or not message.get("enforce"):
            return None
        if not self._looked_for_groups:
            self._looked_for_groups = True
            self.groups = groups.find({os.getpid(), os.getppid()})
        group = self.groups.make() if self.groups else None
        if group is None or group.enter():
            return group
        group.remove()
        return None

    def stop(self, attempt: tries.Try, reason: str, grace: float) -> None:
        """TERM to the whole tree; KILL after ``grace`` seconds. A second stop can only make it sooner."""
        now = time.monotonic()
        if attempt.ended_by is None and attempt.alive:
            attempt.ended_by = reason
        if attempt.stage != tries.STOPPING:
            attempt.stage, attempt.kill_at = tries.STOPPING, now + grace
            self.tree.terminate(self.tree.survivors(attempt, now))
        attempt.kill_at = min(attempt.kill_at, now + grace)
        attempt.look_at = now

    def reap(self) -> None:
        """Take the exit statuses of all children that have ended; adopted ones have none that matters."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for attempt in self.tries.values():
                if pid in attempt.alive:
                    attempt.member_ended(pid, status, usage)
                    if attempt.lack_of_memory is None and attempt.members_killed():
                        attempt.lack_of_memory = self.tree.lack_of_memory(attempt)
                    break
            for attempt in self.tries.values():
                if attempt.stage != tries.RUNNING:
                    attempt.look_at = 0.0

    def advance(self, now: float) -> None:
        """Do what is due."""
        if self.tries and now >= self._next_sample:
            self._look_at_memory(now)
        for attempt in list(self.tries.values()):
            if attempt.stage == tries.RUNNING:
                if not attempt.alive:
                    self._members_are_gone(attempt, now)
                elif attempt.deadline is not None and now >= attempt.deadline:
                    self.stop(attempt, tries.TIMEOUT, attempt.grace)
            if attempt.stage != tries.RUNNING and now >= attempt.look_at and attempt.token in self.tries:
                self._look(attempt, now)

    def _look_at_memory(self, now: float) -> None:
        memory = self.tree.sample()
        watched = any(attempt.memory_limit for attempt in self.tries.values())
        self._next_sample = now + max(WATCH_SECONDS if watched else SAMPLE_SECONDS, 50 * self.tree.cost)
        self.send({"event": "memory", "bytes": memory})
        for attempt in list(self.tries.values()):
            if attempt.stage != tries.RUNNING:
                continue
            used = self.tree.over_memory(attempt, memory[attempt.token])
            if used is not None:
                attempt.lack_of_memory = f"it used {used} bytes and had asked for {attempt.memory_limit}"
            if used is not None or attempt.killed_at_limit():
                self.stop(attempt, tries.MEMORY, 0.0)  # at once, as the kernel would: it takes others' memory

    def _members_are_gone(self, attempt: tries.Try, now: float) -> None:
        left = self.tree.survivors(attempt, now)
        if not left:
            self.finish(attempt, [])
            return
        attempt.left_over = len(left)
        daemons_only = not self.tree.in_own_session(attempt, left)
        attempt.stage = tries.LINGERING
        attempt.linger_until = now if daemons_only else now + attempt.linger
        attempt.look_at = now

    def _look(self, attempt: tries.Try, now: float) -> None:
        left = self.tree.survivors(attempt, now)
        if not left and not attempt.alive:
            self.finish(attempt, [])
        elif attempt.stage == tries.LINGERING:
            if now >= attempt.linger_until:
                self.stop(attempt, "itself", attempt.grace)
        elif now >= attempt.kill_at:
            self.tree.signal(left, signal.SIGKILL)
            if now >= attempt.kill_at + GIVE_UP_SECONDS:
                self.finish(attempt, sorted(left))
        attempt.look_at = now + max(LOOK_SECONDS, 10 * self.tree.cost)

    def finish(self, attempt: tries.Try, undead: list[int]) -> None:
        """Write the record, tell the run, forget the try."""
        del self.tries[attempt.token]
        self.tree.give_up(undead)
        if attempt.killed_at_limit() and attempt.ended_by in (None, "itself"):
            attempt.ended_by = tries.MEMORY  # whatever its other processes made of that
        if attempt.group is not None:
            self.tree.look_at_kills(explained=attempt.group.kills())
        record = attempt.record(undead)
        error = attempt.write(record)
        if record["ended_by"] != "itself" or record["signal"] is not None:
            self._run_enders(attempt)
        self.send({"event": "ended", "token": attempt.token, "record": record, "not_written": error})
        self.tree.signal(self.tree.forget(attempt), signal.SIGKILL)
        if self.groups is not None:
            self.groups.remove(attempt.group)

    def _run_enders(self, attempt: tries.Try) -> None:
        """Start what ends the rest of a try, such as its containers; nobody waits for it, and nobody ends it."""
        # Without the marks by which what a run has left is found and killed.
        own = {name: value for name, value in attempt.message["env"].items() if not name.startswith("CANARD_")}
        self.tree.give_up([spawning.start_apart(ender, own) for ender in attempt.message["enders"]])

    def end_everything(self) -> None:
        """The run is gone: kill every descendant, at once, until none is left (BUGS 50)."""
        self.reap()
        over = [attempt for attempt in self.tries.values() if not attempt.alive and attempt.ended_by is None]
        for attempt in self.tries.values():
            self._run_enders(attempt)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            self.reap()
            left = self.tree.all()
            if not left:
                break
            self.tree.signal(left, signal.SIGKILL)
            if select.select([self._wake], [], [], 0.01)[0]:
                os.read(self._wake, 4096)
        if self.groups is not None:
            for attempt in self.tries.values():
                self.groups.remove(attempt.group)
        for attempt in over:  # ended by itself before the run did: that is an outcome
            attempt.write(attempt.record([]))


def _become_subreaper() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def _watch_parent() -> int | None:
    """Return a descriptor that becomes readable when the run ends, where the system has such."""
    try:
        return os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return None


def _wake_on_children() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def main(arguments: list[str]) -> None:
    """Run the launcher; ``arguments`` are the descriptors to keep."""
    for argument in arguments:
        os.set_inheritable(int(argument), False)
    try:
        Launcher().run()
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
