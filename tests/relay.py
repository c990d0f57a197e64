"""A tunnel between two hosts, as ssh makes one: ``python -m tests.relay FROM TO``, each ``tcp:PORT`` or ``unix:PATH``.

It listens at FROM, for which it wakes the loopback device, and hands what comes on to TO. Ends with its parent's kill.
With a certificate and its key after them it ends TLS, as a proxy before a server does.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import struct
import sys
import threading

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1


def wake_loopback() -> None:
    """Bring lo up: in a network namespace that was just made it is not."""
    with socket.socket() as any_socket:
        name, flags = struct.unpack("16sh", fcntl.ioctl(any_socket, GET_FLAGS, struct.pack("16sh", b"lo", 0)))
        if not flags & UP:
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", name, flags | UP))


def connected(where: str) -> socket.socket:
    """Connect to an end of the tunnel."""
    kind, _, place = where.partition(":")
    if kind == "tcp":
        return socket.create_connection(("127.0.0.1", int(place)))
    there = socket.socket(socket.AF_UNIX)
    there.connect(place)
    return there


def listening(where: str) -> socket.socket:
    """Listen at an end of the tunnel."""
    kind, _, place = where.partition(":")
    if kind == "tcp":
        return socket.create_server(("127.0.0.1", int(place)))
    here = socket.socket(socket.AF_UNIX)
    here.bind(place)
    here.listen(64)
    return here


def join(one: socket.socket, target: str, tls: ssl.SSLContext | None) -> None:
    """Hand on what comes from either side until both have ended; an end where nobody listens closes the other."""
    if tls is not None:
        try:
            one = tls.wrap_socket(one, server_side=True)
        except OSError:
            one.close()
            return
    with one, contextlib.suppress(OSError), connected(target) as other:
        back = threading.Thread(target=pump, args=(other, one), daemon=True)
        back.start()
        pump(one, other)
        back.join()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes until it ends."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main(source: str, target: str, *pair: str) -> None:
    """Serve until the process ends."""
    tls = None
    if pair:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*pair)
    wake_loopback()
    with listening(source) as here:
        print("listening", flush=True)
        while True:
            one, _ = here.accept()
            threading.Thread(target=join, args=(one, target, tls), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
