"""Loading DuckDB's extensions for Quack from their wheels, with the user's proxies out of the way."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import duckdb

from canard_pipe.engine.proxies import set_proxies_aside
from canard_pipe.errors import ExtensionError

# For databases that only send messages. DuckDB would hash 50 MB of the wheels' files each time, for 0.2 s, to see that
# they are signed; only our own SQL is executed there. The owner's database, where that of others is, does check.
CLIENT: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1, "memory_limit": "512MB", "autoinstall_known_extensions": False, "autoload_known_extensions": False,
    "allow_unsigned_extensions": True,
}
EXTENSIONS = ("httpfs", "quack")  # in this order: quack's client asks httpfs for its transport


def load_extensions(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Load httpfs and quack from their wheels, without a download; repeating it does nothing.

    Proxy variables are set aside first, and returned (proxies.py).
    Raises ExtensionError, which says what is missing.
    """
    proxies = set_proxies_aside()
    for name in EXTENSIONS:
        path = str(_extension_file(name)).replace("'", "''")
        try:
            connection.execute(f"LOAD '{path}'")
        except duckdb.Error as error:
            raise ExtensionError(f"DuckDB cannot load its extension {name}: {first_line(error)}") from error
    # The database may have been opened while HTTP_PROXY was still set. Nothing is sent twice on its own (G8).
    connection.execute("SET GLOBAL http_proxy = ''")
    connection.execute("SET GLOBAL http_retries = 0")
    return proxies


def _extension_file(name: str) -> Path:
    package = f"duckdb_extension_{name}"
    try:
        folder = Path(str(resources.files(package))) / "extensions"
    except ImportError as error:
        raise ExtensionError(f"the package duckdb-extension-{name}=={duckdb.__version__} is not installed") from error
    path = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise ExtensionError(
            f"the installed package duckdb-extension-{name} does not fit duckdb {duckdb.__version__}; "
            f"install duckdb-extension-{name}=={duckdb.__version__}"
        )
    return path


def first_line(error: Exception) -> str:
    """Return the first line of an error's text: the rest quotes the statement."""
    return str(error).partition("\n")[0]
