"""One sentence of advice for a failure, by its cause."""

from __future__ import annotations

from typing import Any

_BY_KIND = {
    "not_found": (
        "a program is missing: install it, or mend PATH, then retry. Name it in tools=[...] of the pipeline to be told "
        "before anything starts"
    ),
    "not_executable": (
        "the program is there but cannot be executed: see its permissions, and for what machine it was built"
    ),
    "timeout": "it needs more time: raise time= in the pipeline; Escalate gives a retry more",
    "disk_full": (
        "make room on the disk of its folder, then retry; canard-pipe retry --failed takes all that failed so"
    ),
    "broken_pipe": "where a later program of the pipe may end early (as head does), give sigpipe_ok=True",
    "lease": (
        "its Python code ran longer than the lease (30 s) without a step or a command: put long work into a command, "
        "or into a function that ctx.call runs"
    ),
    "kills_the_run": "run after run died while it ran, and nothing was saved: see its function, then retry it alone",
    "bad_input": "an input file is missing, cut or damaged: put it right under the same name, then retry",
    "budget": "the step asks for more cpus or memory than this run has: see --cpus and --memory",
    "items": "mend what the items failed of; a retry runs only those again, one alone with --item ITEM",
    "output": "the command said that all is well, but what it had to write is not: see its stderr",
    "oom": "it needs more memory: raise memory= in the pipeline; Escalate gives a retry more",
}
_OUT_OF_MEMORY = (
    "it was killed from outside, mostly for lack of memory: raise memory= in the pipeline, or run fewer at once "
    "(--memory)"
)


def hint(cause: dict[str, Any], exit_code: int | None, signal: str | None) -> str | None:
    """Return advice for the facts of a failure, or None where there is nothing to add."""
    kind = str(cause.get("kind") or "")
    exit_code = cause.get("exit_code") if exit_code is None else exit_code
    signal = cause.get("signal") if signal is None else signal
    if cause.get("oom"):
        return _BY_KIND["oom"]
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if signal == "SIGKILL" or exit_code == 137:
        return _OUT_OF_MEMORY
    if exit_code == 141:
        return _BY_KIND["broken_pipe"]
    return None
