"""Ports for servers, and what strangers do there: random bytes, half messages, connections that say nothing."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator


def free_uri() -> str:
    """Return an address below the ports that the system gives to clients: one of those could sit there meanwhile.

    Drawn from the system: the seed of ``random`` may be the same in tests that run beside this one.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 21_000)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return f"quack:127.0.0.1:{port}"


@contextlib.contextmanager
def strangers(uri: str, count: int = 1000, *, seed: int = 5) -> Iterator[None]:
    """Make so many connections to ``quack:HOST:PORT``; half of them are gone at once, the others stay in the block."""
    chance = random.Random(seed)
    host, _, port = uri.removeprefix("quack:").rpartition(":")
    with contextlib.ExitStack() as staying:
        for at in range(count):
            stranger = socket.create_connection((host, int(port)), timeout=10)
            staying.enter_context(stranger)
            with contextlib.suppress(OSError):
                if at % 3 == 0:
                    stranger.sendall(chance.randbytes(chance.randrange(1, 2000)))
                elif at % 3 == 1:
                    stranger.sendall(b"POST /quack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"half")
            if at % 2:
                stranger.close()
        yield
