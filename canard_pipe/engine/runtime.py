"""What executes the statements: the versions to note when a set-up has been validated (F5)."""

from __future__ import annotations

import platform
import socket
from dataclasses import asdict, dataclass
from importlib import metadata

from canard_pipe.engine.store import Store


@dataclass(frozen=True, slots=True)
class Runtime:
    """Versions of the process that has the file open. ``quack`` is None where the extension is not installed;
    ``schema`` is the file's."""

    canard_pipe: str
    python: str
    duckdb: str
    quack: str | None
    schema: int
    host: str

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the facts by name (``canard-pipe``, ``python``, ...), as they stand in ``runs.versions``."""
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


def runtime(store: Store) -> Runtime:
    """Ask the database and this process. Raises StorageError."""
    ((library, schema, loaded),) = store.query("runtime")
    return Runtime(
        canard_pipe=_installed("canard-pipe") or "not installed",
        python=platform.python_version(),
        duckdb=library.removeprefix("v"),
        quack=loaded or _installed("duckdb-extension-quack"),
        schema=schema,
        host=socket.gethostname(),
    )


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
