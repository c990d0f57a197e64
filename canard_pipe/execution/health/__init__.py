"""Is this machine ready? What was found, as data: each check yields findings and changes nothing that is there.

- ``filesystems.py``: the folders' file systems, by name and by trying: locks, renames, syncs, space;
- ``machine.py``: platform, clock, limits of processes;
- ``programs.py``: programs and their versions;
- Slurm's checks are in ``execution/slurm/site.py`` and ``trial.py``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line for people. ``level``: ok, warn (it works, but) or fail (a run would suffer). ``topic`` is one word for
    what was looked at; ``way_out`` says what to do, empty where there is nothing to do."""

    level: str
    topic: str
    message: str
    way_out: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it for machines."""
        return asdict(self)


def ok(topic: str, message: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(OK, topic, message)


def warn(topic: str, message: str, way_out: str) -> Finding:
    """Return a finding that works and has a snag."""
    return Finding(WARN, topic, message, way_out)


def fail(topic: str, message: str, way_out: str) -> Finding:
    """Return a finding that has to be mended."""
    return Finding(FAIL, topic, message, way_out)
