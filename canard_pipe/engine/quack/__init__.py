"""The state while it is owned: the owner listens on this machine, other processes ask it (F2, F3, L17).

The transport is DuckDB's Quack, whose token grants arbitrary SQL; it goes into SQL only as a bound value, so that it
is in no argument list, error text or log. What a message is, on DuckDB 1.5.5: any number of statements, executed in
order in a session of its own, until one fails; the result is that of the last. ``BEGIN; …; COMMIT`` in one message is
a transaction, rolled back if a statement fails; a ``BEGIN`` is not kept for the next message.
"""

from __future__ import annotations

from canard_pipe.engine.quack.extensions import EXTENSIONS, load_extensions
from canard_pipe.engine.quack.remote import RemoteConnection, connect_to_owner, require_read
from canard_pipe.engine.quack.serving import FUNCTION, LOOPBACK, Server, address, let_ask, new_token, probe, serve

__all__ = [
    "EXTENSIONS", "FUNCTION", "LOOPBACK", "RemoteConnection", "Server", "address", "connect_to_owner",
    "let_ask", "load_extensions", "new_token", "probe", "require_read", "serve",
]  # fmt: skip
