"""Programs on PATH and their versions, as they tell them themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from canard_pipe.execution.health import Finding, fail, ok

ANSWER_SECONDS = 10.0
_VERSION = re.compile(r"\d+\.\d[\w.+-]*")
_LONGEST = 80


def check_tools(tools: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each declared tool: where it is and which version, or that it is not there."""
    found = []
    for tool in tools:
        place = shutil.which(tool, path=environ.get("PATH"))
        if place is None:
            out = "install it, or activate its environment, then start again"
            found.append(fail("tools", f"{tool} is not on PATH", out))
        else:
            version = version_of(place, environ)
            found.append(ok("tools", f"{tool}: {place}" + (f", {version}" if version else ", tells no version")))
    return found


def version_of(program: str, environ: Mapping[str, str], *, seconds: float = ANSWER_SECONDS) -> str | None:
    """Return the line in which a program tells its version; None if it tells none in ``seconds``.

    It is called with ``--version``, then (bwa tells it so) without any argument, with no input and in an empty folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        for more in (["--version"], []):
            try:
                said = subprocess.run(
                    [program, *more], env=dict(environ), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                    timeout=seconds, check=False, start_new_session=True,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired):
                continue
            text = b"\n".join([said.stdout, said.stderr]).decode(errors="replace")
            candidates = [line.strip() for line in text.splitlines()[:20] if _VERSION.search(line)]
            telling = [line for line in candidates if "version" in line.lower()]
            if telling or candidates:
                return (telling or candidates)[0][:_LONGEST]
    return None
