"""The user's proxies, set aside in this process's environment under other names, and put back for commands.

With one set, DuckDB's client sends each request to an owner **and the token** to the proxy: libcurl reads the
small-letter variables at each request, DuckDB the capital ones when a database is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

ASIDE = "CANARD_SET_ASIDE_"


def set_proxies_aside(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Rename the proxy variables in ``environment``, for the whole life of the process; return those that there were.

    May be repeated; :func:`users_environment` has them under their own names.
    """
    names = [name for name in environment if name.lower().endswith("_proxy") and not name.startswith(ASIDE)]
    found = {name: environment.pop(name) for name in names}
    environment.update({ASIDE + name: value for name, value in found.items()})
    return found


def users_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a copy of ``environment`` as the user gave it, proxies included."""
    return {name.removeprefix(ASIDE): value for name, value in environment.items()}
