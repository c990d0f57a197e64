"""The environment of commands: clean, by an allow-list, and the same under every executor.

A command gets

- of the run's environment only: PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ, TERM and the proxy
  variables (http_proxy, https_proxy, ftp_proxy, all_proxy, no_proxy in either case);
- TMPDIR: ``tmp`` in the folder of the try;
- CANARD_CPUS and, where memory was asked for, CANARD_MEMORY_BYTES; OMP_NUM_THREADS, OPENBLAS_NUM_THREADS,
  MKL_NUM_THREADS and NUMEXPR_NUM_THREADS set to the cpus asked for;
- CANARD_ATTEMPT and CANARD_RUN, by which left-over processes are found;
- with ``modules=`` what the module command needs, with ``container=`` what docker and the like need outside of the
  container (see surroundings.py);
- what ``env=`` asks for, which wins over all but CANARD_ATTEMPT and CANARD_RUN. A value of None there means: as
  the run has it.

So PYTHONPATH, PYTHONHOME, R_LIBS_USER, LD_LIBRARY_PATH, CONDA_PREFIX, VIRTUAL_ENV, SLURM_* and SBATCH_* of the user
do not reach a tool unless asked for (BUGS 41, 59). PATH is the run's own: an activated environment stays first
there, since whoever activated it wanted its tools; canard-pipe itself adds nothing to it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PROXIES = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
_PASSED = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM")
_FOR_MODULES = re.compile(r"MODULE|LMOD_|LUA_|LOADEDMODULES$|_LMFILES_$|BASH_FUNC_(module|ml)(%%|\(\))$")
_FOR_CONTAINERS = re.compile(r"(DOCKER|CONTAINER|APPTAINER|SINGULARITY)_|XDG_RUNTIME_DIR$|DBUS_SESSION_BUS_ADDRESS$")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def passed(run: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the run's environment that every command gets."""
    return {"PATH": os.defpath} | {name: value for name, value in run.items() if _is_passed(name)}


@cache
def _is_passed(name: str) -> bool:  # the same names for every command of a run
    return bool(_PASSED.fullmatch(name) or PROXIES.fullmatch(name))


def of_modules(run: Mapping[str, str]) -> dict[str, str]:
    """Return what the module command needs of the run's environment."""
    return {name: value for name, value in run.items() if _FOR_MODULES.match(name)}


def of_containers(run: Mapping[str, str]) -> dict[str, str]:
    """Return what programs that start containers need of the run's environment; it does not get into the container."""
    return {name: value for name, value in run.items() if _FOR_CONTAINERS.match(name)}


def of_command(
    run: Mapping[str, str], asked: Mapping[str, str | None], *, cpus: float, memory_bytes: int | None
) -> dict[str, str]:
    """Return the environment of a command, as yet without what depends on the folder of the try."""
    environment = passed(run)
    environment["CANARD_CPUS"] = f"{cpus:g}"
    if memory_bytes:
        environment["CANARD_MEMORY_BYTES"] = str(memory_bytes)
    environment |= dict.fromkeys(_THREADS, str(max(1, math.floor(cpus))))
    for name, value in asked.items():
        if value is not None:
            environment[name] = value
        elif name in run:
            environment[name] = run[name]
    return environment


def of_try(environment: Mapping[str, str], folder: Path, *, token: str, run_token: str) -> dict[str, str]:
    """Return the whole environment of one try."""
    own = {"CANARD_ATTEMPT": token, "CANARD_RUN": run_token}
    return {"TMPDIR": str(folder / "tmp"), **environment, **own}
