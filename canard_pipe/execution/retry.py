"""How often a command is tried, by how it failed: what a pipeline declares, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from canard_pipe.engine.retry_policy import RetryPolicy
from canard_pipe.errors import InputError
from canard_pipe.execution import causes
from canard_pipe.execution.resources import parse_seconds

ANY = "any"
NOT_ITS_FAULT_IN_A_ROW = 10  # from then on such ends are counted: something is wrong with the place or the job
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 60.0
Given = int | Mapping[int | str, int]


class Tries:
    """How often a command is tried at most, by how it fails, and how long it rests in between.

    ``Tries({75: 5, "timeout": 2, "exit": 1})``: keys are exit codes, words for causes (see causes.py) or ``any``;
    the first that fits counts, in this order. A number alone means ``any``. What is not named here goes by the
    pipeline's ``tries``, then by the rules of docs/pipelines.md, "Failures". ``first`` is the rest after the first
    failure; it doubles up to ``longest``, times a random 0.5 to 1.

    Where ``tries=`` is asked for, a number or a dict does as well. Raises InputError.
    """

    __slots__ = ("allowed", "first_seconds", "longest_seconds")

    def __init__(
        self, allowed: Given | None = None, *, first: str | float | None = None, longest: str | float | None = None
    ) -> None:
        self.allowed: dict[int | str, int] = _checked({} if allowed is None else allowed)
        self.first_seconds = None if first is None else parse_seconds(first)
        self.longest_seconds = None if longest is None else parse_seconds(longest)

    def before(self, other: Tries) -> Tries:
        """Return what holds where this is asked first, and ``other`` for what it does not name."""
        made = Tries(other.allowed | self.allowed)
        made.first_seconds = other.first_seconds if self.first_seconds is None else self.first_seconds
        made.longest_seconds = other.longest_seconds if self.longest_seconds is None else self.longest_seconds
        return made

    def rest_seconds(self, failures: int, random: Callable[[], float]) -> float:
        """Return the rest after a failure that follows ``failures`` earlier ones; ``random`` gives 0 to 1."""
        first = FIRST_SECONDS if self.first_seconds is None else self.first_seconds
        longest = LONGEST_SECONDS if self.longest_seconds is None else self.longest_seconds
        return RetryPolicy(first, max(first, longest), random=random).delay_seconds(failures)

    def __repr__(self) -> str:
        return f"Tries({self.allowed!r})"


def tries_of(given: Tries | Given | None) -> Tries:
    """Return what an option ``tries=`` means. Raises InputError."""
    return given if isinstance(given, Tries) else Tries(given)


@dataclass(frozen=True, slots=True)
class Failed:
    """One failed try: its cause in a word, its exit code."""

    word: str
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Again:
    """What follows a failed try. ``final``: no other is made; else ``counted`` against the task's max_failures, or not.

    ``earlier`` failed tries of this command came before it; ``tries`` says how long to rest. ``because`` says why it
    is final, for people.
    """

    final: bool
    counted: bool
    earlier: int
    tries: Tries
    because: str = ""


def decide(failed: Sequence[Failed], tries: Tries, *, grows: bool, over_its_own: bool) -> Again:
    """Say what follows the last of the ``failed`` tries of one command.

    ``grows``: what it lacked (memory, time), the next try gets more of: such a failure uses no budget, and
    ends when nothing more can be given. ``over_its_own``: it used more memory than it had asked for, so that another
    try with the same must end the same.
    """
    last, earlier = failed[-1], len(failed) - 1
    key = next((key for key in (last.exit_code, last.word, ANY) if key in tries.allowed), None)
    if key is not None:
        allowed = tries.allowed[key]
        done = sum(1 for each in failed if key in (each.exit_code, each.word, ANY))
        because = f"{done} of {allowed} tries allowed by tries= for {_shown(key)} are used"
        return Again(done >= allowed, False, earlier, tries, because if done >= allowed else "")
    if last.word in causes.HOPELESS:
        return Again(True, True, earlier, tries, "another try would end the same")
    if grows or (last.word in causes.NOT_ITS_FAULT and _in_a_row(failed) < NOT_ITS_FAULT_IN_A_ROW):
        return Again(False, False, earlier, tries)
    if over_its_own:
        return Again(True, True, earlier, tries, "another try would get no more memory: see Escalate")
    return Again(False, True, earlier, tries)


def _in_a_row(failed: Sequence[Failed]) -> int:
    """Return how many of the last tries have ended for no fault of their command."""
    return next((n for n, each in enumerate(reversed(failed)) if each.word not in causes.NOT_ITS_FAULT), len(failed))


def _shown(key: int | str) -> str:
    return "whatever happens" if key == ANY else f"exit code {key}" if isinstance(key, int) else f"{key!r}"


def _checked(given: Given) -> dict[int | str, int]:
    allowed: dict[int | str, int] = {**given} if isinstance(given, Mapping) else {ANY: given}
    known = (*causes.WORDS, ANY)
    for key, value in allowed.items():
        if isinstance(key, bool) or not (key in known or (isinstance(key, int) and 1 <= key <= 255)):
            raise InputError(
                f"tries knows exit codes from 1 to 255 and the causes {', '.join(known)}, but not {key!r}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"tries must be a number of tries from 1, not {value!r}")
    return allowed
