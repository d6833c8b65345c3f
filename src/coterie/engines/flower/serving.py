"""A server and a client as commands: Flower's programs with safe settings, and us beside them."""

from __future__ import annotations

import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.core import storage
from coterie.core.errors import AccessError, ConfigError
from coterie.core.events import Listener, silence
from coterie.engines.flower import certs as keys
from coterie.engines.flower import runtime
from coterie.engines.flower.children import Child, free_port
from coterie.engines.flower.client import Host, client_app
from coterie.engines.flower.guard import UNLISTED, UNSIGNED, Refusals
from coterie.engines.flower.knock import refused, wait_for
from coterie.engines.flower.runtime import Endpoint, Reached, answer_for_ever, wait_until_up

PORT = 9093
RETURN = 90.0  # seconds in which a SuperLink must be back
FORGOTTEN = 45.0  # seconds after which a client's process that died no longer holds its key
BAD_KEY = (46, 47)  # 302 and 303 as a process ends with them


@dataclass(frozen=True)
class ServerAddress:
    """Where and how a server stands. `certs` None: without TLS, which must be meant."""

    certs: Path | None
    host: str = "127.0.0.1"
    port: int = PORT

    def check(self) -> None:
        """Refuse what would be open to everybody, and certificates that are not there."""
        if self.certs is None and not loopback(self.host):
            raise ConfigError(
                f"a server on {self.host} without TLS would be open to everybody",
                code="C053",
                why="whoever reaches it could read and change what crosses, and take part",
                fix="make certificates with `coterie certs DIR --clients NAMES` and give "
                "--certs DIR/server",
            )
        for name in ("ca.pem", "server.pem", "server.key") if self.certs else ():
            expect(self.certs / name)  # type: ignore[operator]

    def plain(self) -> dict[str, Any]:
        """As a run remembers it, to be served again."""
        certs = str(self.certs.resolve()) if self.certs else None
        return {"certs": certs, "host": self.host, "port": self.port}

    @property
    def names(self) -> list[str]:
        """The clients whose keys are listed; without TLS nobody is asked for one."""
        return list(keys.listed(self.certs)) if self.certs else []


def loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> loopback("127.0.0.1"), loopback("::1"), loopback("localhost"), loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def serving(
    server: ServerAddress, home: Path
) -> Iterator[tuple[Reached, Callable[[], Mapping[int, str] | None], Callable[[], None]]]:
    """A SuperLink with its database in `home`, the listed clients registered, and a run of it."""
    server.check()
    secret = remembered(home)
    arguments = [
        *("--host", server.host, "--port", str(server.port)),
        *("--database", str(home / "superlink.db")),
        *("--isolation", "process", "--superexec-auth-secret-file", str(home / "secret")),
        "--disable-runtime-dependency-installation",
    ]
    if server.certs is None:
        arguments.append("--insecure")
    else:
        arguments += ["--enable-supernode-auth"]
        arguments += ["--ssl-ca-certfile", str(server.certs / "ca.pem")]
        arguments += ["--ssl-certfile", str(server.certs / "server.pem")]
        arguments += ["--ssl-keyfile", str(server.certs / "server.key")]
    endpoint = Endpoint(server.port, secret, server.certs / "ca.pem" if server.certs else None)
    refusals = Refusals(home / "refused")
    refusals.new()  # of an earlier server
    with Child("superlink", arguments, home, certs=server.certs) as child:
        wait_until_up(endpoint, child)
        nodes = runtime.register(endpoint, keys.listed(server.certs)) if server.certs else None
        with runtime.server_run(endpoint, RETURN) as grid:
            grid.refusals = refusals.new
            yield grid, lambda: nodes, child.check


def joining(
    server: str,
    host: Host,
    home: Path,
    *,
    certs: Path | None,
    seconds: float | None = None,
    away: Callable[[], None] = lambda: None,
    tell: Listener = silence,
) -> None:
    """A SuperNode for one client, and the answers to what it receives. Returns never, but raises
    when the server does not let it in; or returns after so many seconds without a server. `away`
    is called if the server is not there yet; `tell` hears what is asked and answered."""
    secret, port = remembered(home), free_port()
    if ":" not in server.rsplit("]", 1)[-1]:
        server = f"{server}:{PORT}"
    if not wait_for(server, expect(certs / "ca.pem") if certs else None, away, seconds):
        return
    arguments = [
        *("--superlink", server, "--host", "127.0.0.1", "--port", str(port)),
        *("--isolation", "process", "--superexec-auth-secret-file", str(home / "secret")),
    ]
    if certs is None:
        arguments.append("--insecure")
    else:
        arguments += ["--root-certificates", str(expect(certs / "ca.pem"))]
        arguments += ["--auth-supernode-private-key", str(expect(certs / "client.key"))]
    refusals: list[float] = []

    def judge(code: int, log: str) -> None:
        """Why a SuperNode ended; what may pass is tried again."""
        if "Failed to initialize the connection" not in log and code not in BAD_KEY:
            refusals.clear()  # it was let in before it ended
            return
        if "certificate" in log.lower():
            raise refused(server, "A002", last_words(log), "use the ca.pem of this server")
        if code in BAD_KEY:
            raise refused(server, "A002", last_words(log), "use the key made by coterie certs")
        refusals.append(time.monotonic())
        if UNLISTED in log or UNSIGNED in log or refusals[-1] - refusals[0] >= FORGOTTEN:
            fix = "let the server list this client's public key; end another process that uses it"
            raise refused(server, "A001", last_words(log), fix)

    def turned_away(why: str) -> None:
        """What the server says to a client whose key it knows and that it does not want."""
        child.fault = refused(server, "A001", why, "join as the client that this key was made for")

    app = client_app(lambda context: (host, home / "memory"), turned_away, tell)
    with Child("supernode", arguments, home, judge) as child:
        answer_for_ever(Endpoint(port, secret), app, child, seconds=seconds)


def last_words(log: str) -> str:
    """What a log says of why it ended.

    >>> last_words("INFO: up\\nERROR: Exit Code: 305\\nFailed: no key.\\nINFO: down")
    'Exit Code: 305\\nFailed: no key.'
    """
    plain = re.sub(r"\x1b\[\d+m", "", log)
    told = plain[plain.rindex("Exit Code") :] if "Exit Code" in plain else plain[-500:]
    lines = [line.strip() for line in told.splitlines()]
    return "\n".join(x for x in lines if x and not x.startswith(("INFO", "For more")))


def expect(path: Path) -> Path:
    """A file that must be there."""
    if not path.is_file():
        raise AccessError(
            f"there is no {path}",
            code="A002",
            fix="`coterie certs DIR --clients NAMES` makes DIR/server for the server and "
            "DIR/clients/NAME for each",
        )
    return path


def remembered(home: Path) -> bytes:
    """A secret of this folder, by which our own processes know each other."""
    file = home / "secret"
    storage.make_folder(home)
    home.chmod(0o700)
    if not file.exists():
        keys.secret(file, secrets.token_bytes(32))
    return file.read_bytes()
