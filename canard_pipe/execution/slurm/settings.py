"""What a run is told about Slurm: the site's profile, and how much it may ask of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from canard_pipe.errors import InputError
from canard_pipe.execution.slurm.judging import Patience
from canard_pipe.execution.slurm.script import Site

LONGEST_INTERVALS = 6


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """``max_jobs`` may be in Slurm at once, ``per_minute`` be submitted in any minute. Slurm is asked for the states of
    all jobs every ``interval_seconds``, and less often, up to ``longest_interval_seconds``, while nothing changes.

    ``array``: commands that ask for the same and come within ``array_window_seconds`` are submitted as one job array.
    ``cancel_jobs``: the second Ctrl-C cancels the jobs. ``grace_seconds``: between TERM and KILL on a node.
    """

    site: Site = field(default_factory=Site)
    max_jobs: int = 1000
    per_minute: int = 1200
    interval_seconds: float = 10.0
    longest_interval_seconds: float = 10.0 * LONGEST_INTERVALS
    patience: Patience = field(default_factory=Patience)
    array: bool = False
    array_window_seconds: float = 5.0
    cancel_jobs: bool = False
    grace_seconds: float = 10.0


_OF_SITE = ("partition", "account", "qos", "constraint", "gres", "reservation", "cluster", "python", "requeue")
_LISTS = ("options", "lines")
_PLAIN = ("max_jobs", "per_minute", "array", "cancel_jobs")
_PATIENCE = {
    "wait_for_record": "record", "wait_for_requeue": "requeue", "wait_when_unknown": "silence",
    "wait_in_doubt": "doubt", "wait_when_hopeless": "hopeless",
}  # fmt: skip
_OWN = ("--job-name", "-J", "--output", "-o", "--error", "-e", "--array", "-a", "--chdir", "-D", "--parsable", "--wrap")


def from_table(table: Mapping[str, Any]) -> SlurmSettings:
    """Return the settings of a table ``slurm``. Raises InputError for names it has not and options that are ours."""
    known = {*_OF_SITE, *_LISTS, *_PLAIN, *_PATIENCE, "interval", "array_window"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(f"slurm has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
    site: dict[str, Any] = {name: table[name] for name in _OF_SITE if table.get(name) is not None}
    site |= {name: tuple(table[name]) for name in _LISTS if table.get(name)}
    for option in site.get("options", ()):
        if option.split("=")[0] in _OWN:
            raise InputError(f"canard-pipe itself sets the option {option!r} of sbatch: take it out of slurm.options")
    given: dict[str, Any] = {name: table[name] for name in _PLAIN if table.get(name) is not None}
    if table.get("interval") is not None:
        interval = float(table["interval"])
        given |= {"interval_seconds": interval, "longest_interval_seconds": interval * LONGEST_INTERVALS}
    if table.get("array_window") is not None:
        given["array_window_seconds"] = float(table["array_window"])
    patience = Patience(**{_PATIENCE[name]: float(table[name]) for name in _PATIENCE if table.get(name) is not None})
    return SlurmSettings(site=Site(**site), patience=patience, **given)
