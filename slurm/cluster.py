#!/usr/bin/env python3
"""A throw-away Slurm cluster with accounting on one Linux machine: for trying out, and for the tests.

    slurm/cluster.py start            start what is not running; returns when the nodes are ready
    slurm/cluster.py env              print what a shell needs: eval "$(slurm/cluster.py env)"
    slurm/cluster.py status           one line for each daemon; exit status 0 if all are up
    slurm/cluster.py stop | wipe      end every process that was started | and delete the folder
    slurm/cluster.py kill NAME        SIGKILL a daemon: slurmctld, slurmdbd, slurmd.n1 ...
    slurm/cluster.py pause NAME       stop a daemon with SIGSTOP; continue NAME lets it go on
    slurm/cluster.py lose N           node N loses its power: its daemon, its jobs and their processes are gone
    slurm/cluster.py run NAME         start one daemon again

Needs root and Debian's packages slurmctld, slurmd, slurmdbd, slurm-client, munge and mariadb-server. No systemd, no
cgroups, loopback only; configuration, database, logs and sockets are below --folder, nothing in /etc is used. It is no
example of how to set up Slurm for people.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_STEPD = "/usr/sbin/slurmstepd"
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sbatch")
PACKAGES = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "munge", "mariadb-server")


class ClusterError(Exception):
    """The cluster does not do what was asked."""


@dataclass(frozen=True)
class Cluster:
    """A cluster below ``folder`` that listens on ``port`` and some after it. ``extra`` is added to slurm.conf."""

    folder: Path
    port: int = 27800
    nodes: int = 2
    cpus: int = 4
    memory_mib: int = 4000
    extra: str = ""

    # -- what people do -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what is not running and wait until jobs can run."""
        missing = [name for name in PROGRAMS if not _find(name)]
        if missing:
            raise ClusterError(f"{', '.join(missing)} not found: apt-get install {' '.join(PACKAGES)}")
        if self._pid("slurmctld") is None:
            self._configure()
        for name in self.daemons():
            self.run(name)
        self._wait(self._nodes_are_ready, "the nodes")

    def stop(self) -> None:
        """End the jobs and every process that was started."""
        if self._pid("slurmctld") is not None and any(self._steps(f"n{n}") for n in range(1, self.nodes + 1)):
            with contextlib.suppress(subprocess.SubprocessError):
                self.call(["scancel", "--quiet", "--user=root"], seconds=5)
        for node in range(1, self.nodes + 1):
            self.lose(node)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self.kill(name, signal.SIGTERM)

    def wipe(self) -> None:
        """Stop, and delete the folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemons(self) -> list[str]:
        """Return the names of the daemons in the order of starting."""
        return ["munged", "mariadbd", "slurmdbd", "slurmctld", *(f"slurmd.n{n}" for n in range(1, self.nodes + 1))]

    def environ(self) -> dict[str, str]:
        """Return the variables that a client needs."""
        return {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}

    def call(self, words: Sequence[str], *, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Call a program of Slurm."""
        environ = {"PATH": _PATH, "LC_ALL": "C", "MYSQL_UNIX_PORT": str(self._run / "mysql.sock"), **self.environ()}
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=seconds, check=False)

    # -- faults -------------------------------------------------------------------------------------------------

    def run(self, name: str) -> None:
        """Start a daemon, if it is not running, and wait for it."""
        if self._pid(name) is None:
            words, extra = self._command(name)
            log, writing = str(self.folder / "log" / f"{name}.out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
            streams = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, writing, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            environ = {"PATH": _PATH, **self.environ(), **extra}
            pid = os.posix_spawn(_find(words[0]) or words[0], words, environ, file_actions=streams, setsid=True)
            (self._run / f"{name}.pid").write_text(f"{pid} {_born(pid)}")
        self._wait(lambda: self._is_up(name), name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon and wait until it is gone."""
        pid = self._pid(name)
        if pid is not None:
            os.kill(pid, number)
            try:
                self._wait(lambda: self._pid(name) is None, f"the end of {name}", seconds=10)
            except ClusterError:
                os.kill(pid, signal.SIGKILL)
        (self._run / f"{name}.pid").unlink(missing_ok=True)

    def pause(self, name: str) -> None:
        """Let a daemon hang."""
        os.kill(self._pid_or_raise(name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let a daemon that hangs go on."""
        os.kill(self._pid_or_raise(name), signal.SIGCONT)

    def lose(self, node: int) -> None:
        """Let a node lose its power."""
        self.kill(f"slurmd.n{node}")
        for step in self._steps(f"n{node}"):
            for pid in _tree(step):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _run(self) -> Path:
        return self.folder / "run"

    def _command(self, name: str) -> tuple[list[str], dict[str, str]]:
        run, etc = self._run, self.folder
        if name == "munged":
            return [
                "munged", "-F", "-f", f"--key-file={etc}/munge/key", f"--socket={run}/munge.sock", "--num-threads=2",
                f"--pid-file={run}/munged.own", f"--seed-file={etc}/munge/seed", f"--log-file={etc}/log/munged.log",
            ], {}
        if name == "mariadbd":
            if not (etc / "mysql" / "mysql").is_dir():
                subprocess.run(
                    ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={etc}/mysql", "--skip-test-db",
                     "--auth-root-authentication-method=normal"],
                    check=True, capture_output=True, stdin=subprocess.DEVNULL,
                )  # fmt: skip
            return [
                "mariadbd", "--no-defaults", "--user=root", f"--datadir={etc}/mysql", f"--socket={run}/mysql.sock",
                f"--pid-file={run}/mariadbd.own", "--skip-networking", "--innodb-buffer-pool-size=64M",
                "--innodb-flush-log-at-trx-commit=2", "--innodb-lock-wait-timeout=900", "--performance-schema=OFF",
            ], {}
        if name == "slurmdbd":
            return ["slurmdbd", "-D"], {"MYSQL_UNIX_PORT": f"{run}/mysql.sock"}
        if name == "slurmctld":
            return ["slurmctld", "-D"], {}
        if name.startswith("slurmd.n"):
            node = name.removeprefix("slurmd.")
            (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
            return ["slurmd", "-D", "-N", node], {}
        raise ClusterError(f"no daemon is named {name!r}; they are {', '.join(self.daemons())}")

    def _is_up(self, name: str) -> bool:
        if name == "munged":
            return self._says(["munge", "-S", str(self._run / "munge.sock"), "-n"], lambda out: bool(out))
        if name == "mariadbd":
            sql = "create database if not exists slurm_acct"
            return self._says(
                ["mariadb", "--no-defaults", "-uroot", "-S", str(self._run / "mysql.sock"), "-e", sql], lambda _: True
            )
        if name == "slurmdbd":
            if not self._says(["sacctmgr", "-n", "show", "cluster", "format=cluster"], lambda _: True):
                return False
            return self._says(["sacctmgr", "-n", "show", "cluster", "format=cluster"], lambda out: "canard" in out) or (
                self._says(["sacctmgr", "-i", "add", "cluster", "canard"], lambda _: True)
            )
        if name == "slurmctld":
            return self._says(["scontrol", "ping"], lambda out: "is UP" in out)
        return self._pid(name) is not None

    def _nodes_are_ready(self) -> bool:
        """Tell whether jobs can run; a node that the controller has drained, as after a crash, is taken back."""
        try:
            states = self.call(["sinfo", "-h", "-N", "-o", "%T"], seconds=15).stdout.split()
        except subprocess.TimeoutExpired:
            return False
        if any(state.startswith("drain") for state in states):
            self.call(["scontrol", "update", f"nodename=n[1-{self.nodes}]", "state=resume"])
        good = ("idle", "mixed", "allocated", "completing")
        return len(states) >= self.nodes and all(state in good for state in states)

    def _says(self, words: Sequence[str], good: Callable[[str], bool]) -> bool:
        try:
            said = self.call(words, seconds=15)
        except subprocess.TimeoutExpired:
            return False
        return said.returncode == 0 and good(said.stdout)

    def _wait(self, condition: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= end:
                raise ClusterError(f"waited for {what} in vain; see {self.folder / 'log'}")
            time.sleep(0.05)

    def _pid(self, name: str) -> int | None:
        """Return the process of a daemon, if it is the very one that was started."""
        try:
            pid, born = (self._run / f"{name}.pid").read_text().split()
        except (OSError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(pid), os.WNOHANG)
        return int(pid) if _born(int(pid)) == born else None

    def _pid_or_raise(self, name: str) -> int:
        pid = self._pid(name)
        if pid is None:
            raise ClusterError(f"{name} is not running")
        return pid

    def _steps(self, node: str) -> list[int]:
        """Return the step daemons of a node: they hold its log open."""
        log = str(self.folder / "log" / f"slurmd.{node}.log")
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if os.path.realpath(folder / "exe") == os.path.realpath(_STEPD):
                    links = [str(descriptor.readlink()) for descriptor in (folder / "fd").iterdir()]
                    found += [int(folder.name)] if log in links else []
        return found

    def _configure(self) -> None:
        for name in ("etc", "run", "log", "ctld", "spool", "munge", "mysql"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            (self.folder / name).chmod(0o755)
        key = self.folder / "munge" / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        host = socket.gethostname().split(".")[0]
        bound = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" if _is_loopback(host) else ""
        (self.folder / "etc" / "slurm.conf").write_text(self._slurm_conf(host, bound))
        secret = self.folder / "etc" / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(_SLURMDBD.format(port=self.port + 1, bound=bound, folder=self.folder))

    def _slurm_conf(self, host: str, bound: str) -> str:
        nodes = "\n".join(
            f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 10 + n}"
            for n in range(1, self.nodes + 1)
        )
        return _SLURM.format(
            host=host, port=self.port, accounting=self.port + 1, bound=bound, folder=self.folder, cpus=self.cpus,
            memory=self.memory_mib, nodes=nodes, extra=self.extra,
        )


_SLURM = """\
ClusterName=canard
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/run/munge.sock
{bound}
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.own
SlurmdPidFile={folder}/run/slurmd.%n.own
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
MailProg=/bin/true
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={folder}/run/munge.sock
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
# a node that is gone is noticed in seconds and comes back by itself
SlurmdTimeout=10
ReturnToService=2
KillWait=3
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs={cpus} RealMemory={memory} State=UNKNOWN
{nodes}
PartitionName=DEFAULT Nodes=ALL State=UP
PartitionName=main Default=YES PriorityTier=10 PreemptMode=OFF
PartitionName=short MaxTime=2 PriorityTier=10 PreemptMode=OFF
PartitionName=lowcancel PriorityTier=1 PreemptMode=CANCEL
PartitionName=lowrequeue PriorityTier=1 PreemptMode=REQUEUE
{extra}
"""
_SLURMDBD = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
{bound}
SlurmUser=root
AuthInfo=socket={folder}/run/munge.sock
PidFile={folder}/run/slurmdbd.own
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm_acct
StorageUser=root
"""


def _find(program: str) -> str | None:
    return shutil.which(program, path=_PATH)


def _is_loopback(host: str) -> bool:
    try:
        return socket.gethostbyname(host).startswith("127.")
    except OSError:
        return False


def _born(pid: int) -> str:
    """Return when a process began, "" if it is gone: tells it from a later one of the same number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += _tree(int(child))
    return found


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = ["start", "stop", "wipe", "status", "env", "kill", "pause", "continue", "lose", "run"]
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("what", nargs="?", default="", help="the name of a daemon, or the number of a node")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "canard-slurm"))
    parser.add_argument("--port", type=int, default=27800)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--extra", default="", help="lines for slurm.conf, read by start")
    given = parser.parse_args()
    cluster = Cluster(given.folder.absolute(), given.port, given.nodes, extra=given.extra)
    actions: dict[str, Callable[[], None]] = {
        "start": cluster.start, "stop": cluster.stop, "wipe": cluster.wipe,
        "kill": lambda: cluster.kill(given.what), "pause": lambda: cluster.pause(given.what),
        "continue": lambda: cluster.go_on(given.what), "run": lambda: cluster.run(given.what),
        "lose": lambda: cluster.lose(int(given.what)),
    }
    if given.verb == "env":
        print("\n".join(f"export {name}={value}" for name, value in cluster.environ().items()))
        return 0
    if given.verb == "status":
        up = {name: cluster._pid(name) is not None for name in cluster.daemons()}
        print("\n".join(f"{name} {'up' if is_up else 'down'}" for name, is_up in up.items()))
        return 0 if all(up.values()) else 1
    try:
        actions[given.verb]()
    except (ClusterError, ValueError) as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
