"""Every setting by its name, with its kind, and the check of a value: the one list that files, variables and
``canard-pipe config`` go by.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from canard_pipe.errors import InputError


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. ``name`` is dotted where it stands in a table; ``kind`` is a key of :data:`KINDS`.

    ``default`` None: the machine or the scheduler decides.
    """

    name: str
    kind: str
    what: str
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Return the environment variable that sets it."""
        return PREFIX + self.name.replace(".", "_").upper()

    def checked(self, value: object) -> Any:
        """Return a value of a file as the program uses it. Raises InputError with the rule that it breaks."""
        if self.choices:
            if value not in self.choices:
                raise InputError(f"must be {' or '.join(self.choices)}, not {value!r}")
            return value
        return KINDS[self.kind].check(value)

    def from_text(self, text: str) -> Any:
        """Return the value of a variable. Raises InputError."""
        return self.checked(KINDS[self.kind].read(text))


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one kind look: ``check`` takes what TOML gives, ``read`` makes that of a variable's text."""

    words: str
    check: Callable[[Any], Any]
    read: Callable[[str], Any]


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise InputError(f"must be a whole number of at least 1, not {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"must be a number above 0, not {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"must be a text in quotes, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, not {value!r}")
    return value


def _size(value: Any) -> int:
    from canard_pipe.execution.resources import parse_memory  # late: it needs psutil, which most commands do not

    return parse_memory(value)


def _seconds(value: Any) -> float:
    from canard_pipe.execution.resources import parse_seconds

    return parse_seconds(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise InputError(f'must be a list of texts such as ["one", "two"], not {value!r}')
    return tuple(value)


def _amounts(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise InputError(f"must be a table of names and whole numbers, not {value!r}")
    for name, amount in value.items():
        if not name or isinstance(amount, bool) or not isinstance(amount, int) or amount < 1:
            raise InputError(f"{name} must be a whole number of at least 1, not {amount!r}")
    return dict(value)


def _path(value: Any) -> str:
    return os.path.expandvars(os.path.expanduser(_text(value)))  # noqa: PTH111 - texts; relative ones stay so


def _as_number(text: str) -> object:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _as_flag(text: str) -> object:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)


def _as_amounts(text: str) -> dict[str, object]:
    pairs = (item.partition("=") for item in text.split(",") if item.strip())
    return {name.strip(): _as_number(amount.strip() or "1") for name, _, amount in pairs}


def _as_texts(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


KINDS: Mapping[str, Kind] = {
    "whole": Kind("a whole number", _whole, _as_number),
    "number": Kind("a number", _number, _as_number),
    "text": Kind("a text", _text, str),
    "flag": Kind("true or false", _flag, _as_flag),
    "size": Kind('a size such as "32G"', _size, str),
    "duration": Kind('a duration such as "30s"', _seconds, str),
    "path": Kind("a path", _path, str),
    "texts": Kind("a list of texts (in a variable: with commas)", _texts, _as_texts),
    "amounts": Kind("a table of names and whole numbers (in a variable: a=1,b=2)", _amounts, _as_amounts),
}
PREFIX = "CANARD_PIPE_"

KEYS: tuple[Key, ...] = (
    Key("cpus", "number", "how many cpus commands may use at once; all of the machine by default"),
    Key("memory", "size", "how much memory commands may ask for at once; all of the machine by default"),
    Key("slots", "whole", "how many samples may be in work at once; 32, or 4 a cpu if that is more, by default"),
    Key("limits", "amounts", "named limits that commands ask for with limits=, such as licences"),
    Key("executor", "text", "where commands run", "local", ("local", "slurm")),
    Key("state", "path", "the folder of the state", ".canard"),
    Key("work", "path", "where commands run", "work"),
    Key("results", "path", "where results are published", "results"),
    Key("events", "path", "a file that gets a JSON line for every event of a run"),
    Key("drop_intermediates", "flag", "remove what a sample's commands made as soon as the sample is done", False),
    Key("slurm.partition", "text", "the partition of jobs"),
    Key("slurm.account", "text", "the account of jobs"),
    Key("slurm.qos", "text", "the quality of service of jobs"),
    Key("slurm.constraint", "text", "the features that nodes must have"),
    Key("slurm.gres", "text", "generic resources, such as gpu:1"),
    Key("slurm.reservation", "text", "the reservation of jobs"),
    Key("slurm.options", "texts", "further options of sbatch, as they are typed"),
    Key("slurm.cluster", "text", "the cluster of jobs, where there are several"),
    Key("slurm.lines", "texts", "lines of the job's script before the command, such as module load"),
    Key("slurm.python", "path", "the Python on the nodes that watches over a command; the run's own by default"),
    Key("slurm.requeue", "flag", "let Slurm put jobs back into the queue by itself"),
    Key("slurm.max_jobs", "whole", "how many jobs may be in Slurm at once; 1000 by default"),
    Key("slurm.per_minute", "whole", "how many jobs may be submitted in a minute; 1200 by default"),
    Key("slurm.array", "flag", "submit commands that ask for the same together, as a job array"),
    Key("slurm.array_window", "duration", "how long commands wait for others of their array; 5 s by default"),
    Key("slurm.cancel_jobs", "flag", "a second Ctrl-C cancels the jobs"),
    Key("slurm.interval", "duration", "how often Slurm is asked for the states of all jobs; 10 s by default"),
    Key("slurm.wait_for_record", "duration", "for a job's record and outputs, on a slow shared disk; 60 s by default"),
    Key("slurm.wait_for_requeue", "duration", "for Slurm to put back a job whose node has failed; 2 min by default"),
    Key("slurm.wait_when_unknown", "duration", "for a job that Slurm does not know; 5 min by default"),
    Key("slurm.wait_in_doubt", "duration", "for a job that Slurm may not have got; 20 s by default"),
    Key("slurm.wait_when_hopeless", "duration", "for a job whose reason for waiting does not pass; 1 h by default"),
)  # fmt: skip
BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}
TABLES: frozenset[str] = frozenset(key.name.partition(".")[0] for key in KEYS if "." in key.name)
