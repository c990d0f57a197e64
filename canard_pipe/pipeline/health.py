"""What the engine and the state say of themselves: versions, extension, schema, owner."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from canard_pipe.errors import CanardError, InputError
from canard_pipe.execution.health import Finding, fail, ok, warn

if TYPE_CHECKING:
    from canard_pipe.engine.database import Database

TOGETHER = ("duckdb", "duckdb-extension-httpfs", "duckdb-extension-quack")


def check_versions(launch: Path) -> Iterator[Finding]:
    """Open a database in memory, and let it listen as a run does; nothing is written."""
    yield ok("versions", f"python {platform.python_version()} ({platform.python_implementation()})")
    yield check_packages({name: _installed(name) for name in TOGETHER})
    try:
        from canard_pipe.engine.database import Database  # late: what is to be found out is whether it can be imported

        with Database(None, root=launch) as database:
            found = database.runtime()
            yield ok(
                "versions", f"canard-pipe {found.canard_pipe}, duckdb {found.duckdb}, state schema {found.schema}"
            )
            yield _extension(database)
    except (ImportError, CanardError) as error:
        yield fail("versions", f"the engine does not start: {error}", "install canard-pipe anew in a fresh environment")


def _extension(database: Database) -> Finding:
    try:
        database.serve()
    except CanardError as error:
        return warn(
            "extension", f"quack: {error}. Runs work; other terminals see only status.json, and no worker can join",
            "pip install " + " ".join(f"{name}=={_installed('duckdb')}" for name in TOGETHER[1:]),
        )
    return ok("extension", f"quack {database.runtime().quack} is loaded from its wheel, and listens on this machine")


def check_packages(installed: dict[str, str | None]) -> Finding:
    """Tell whether the packages that have to be of one version are."""
    text = ", ".join(f"{name} {version or 'is missing'}" for name, version in installed.items())
    if len(set(installed.values())) == 1 and None not in installed.values():
        return ok("versions", text)
    return warn("versions", f"{text}: they have to be of one version", "install canard-pipe anew")


def check_stored(state: Path, launch: Path) -> Finding:
    """Say what the state holds, who owns it, and whether this release can read it; nothing is changed."""
    from canard_pipe.pipeline.access import FILE, living_owner, open_view

    if not (state / FILE).exists():
        return ok("state", f"{state}: nothing was run with it yet")
    try:
        owner = living_owner(state)
        with open_view(state, launch) as view:
            if view.source == "snapshot":
                return warn("state", f"{state}: only its status.json can be read ({view.reason})",
                            "ask from the machine, or as the user, of the run")  # fmt: skip
            ((version,),) = view.query("newest_schema")
    except InputError as error:
        return fail("state", str(error), "name another state: --state DIR")
    except CanardError as error:
        return fail("state", f"{state}: {error}", "mend it before a run, which would say the same")
    held = "no run is going on" if owner is None else f"a run is going on (process {owner.pid})"
    return ok("state", f"{state}: schema {version}, {held}")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
