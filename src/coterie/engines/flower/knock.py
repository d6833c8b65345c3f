"""Before a client joins: is a server there, and does it speak as the client was told to?

Flower tries again for ever and without a word, whether a server is away or will never take it.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from coterie.core.errors import AccessError

SECONDS = 5.0  # in which a server must take a connection
PAUSE = 1.0  # seconds until a server that is not there is tried again


def refused(server: str, code: str, why: str, fix: str) -> AccessError:
    """The error about a server that does not let a client in."""
    return AccessError(f"{server} does not let this client in", code=code, why=why, fix=fix)


def wait_for(
    server: str, ca: Path | None, away: Callable[[], None], seconds: float | None = None
) -> bool:
    """Until a server is there, which may be never; False after so many seconds without one."""
    began, told = time.monotonic(), False
    while not is_there(server, ca):
        if not told:
            away()
        told = True
        if seconds is not None and time.monotonic() - began >= seconds:
            return False
        time.sleep(PAUSE)
    return True


def is_there(server: str, ca: Path | None) -> bool:
    """Whether a server is there; one that will never take this client is an error."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    context = trusting(server, ca)
    try:
        with (
            socket.create_connection((host, int(port)), SECONDS) as wire,
            context.wrap_socket(wire, server_hostname=host),
        ):
            pass
    except ssl.SSLCertVerificationError as fault:
        why = f"its certificate cannot be trusted: {fault.verify_message}"
        raise refused(server, "A002", why, "use the ca.pem of this server") from fault
    except ssl.SSLError as fault:
        if ca is None:
            return True  # it does not speak TLS, nor do we
        if fault.reason not in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return False  # it may be just starting or ending
        why = "it speaks without TLS, and everybody could read what crosses"
        raise refused(server, "A002", why, "start it with coterie serve --certs") from fault
    except OSError:
        return False
    if ca is None:
        fix = "give --certs with the folder from the federation's server"
        raise refused(server, "A002", "it asks for TLS and a key; this client has neither", fix)
    return True


def trusting(server: str, ca: Path | None) -> ssl.SSLContext:
    """How TLS is tried: with the authority that is trusted, or only to see if it is spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as fault:
        fix = "use the ca.pem of this server"
        raise refused(server, "A002", f"{ca} is no certificate: {fault}", fix) from fault
    return context
