"""A real SuperLink, and who must not get anywhere with it: without a key, or behind our back."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from coterie.engines.flower import certs
from coterie.engines.flower.exchange import Exchange
from coterie.engines.flower.guard import LARGEST
from coterie.engines.flower.runtime import Endpoint
from coterie.engines.flower.serving import ServerAddress, serving
from tests.engines.flower.machine import children, free_port
from tests.engines.flower.test_guard import PUSH, peak

pytestmark = [
    pytest.mark.federation,
    pytest.mark.slow,
    pytest.mark.xdist_group("outsiders"),  # they share the server
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what Flower uses
]


class Server:
    """A server that lists the clients 0 and 1, and what an outsider on its machine knows of it."""

    def __init__(self, home: Path, grid: Any, registered: Any, port: int, link: int) -> None:
        self.home, self.grid, self.registered, self.port, self.link = (
            home, grid, registered, port, link,
        )  # fmt: skip
        self.ca = (home / "certs" / "server" / "ca.pem").read_bytes()

    def reached(self, kind: Any, *interceptors: Any) -> Any:
        return kind.from_server_address(
            server_address=f"127.0.0.1:{self.port}",
            insecure=False,
            root_certificates=self.ca,
            interceptors=interceptors,
        )

    def activate(self, key: ec.EllipticCurvePrivateKey) -> int:
        """Come as a node with this key."""
        signed = NodeAuthHttpInterceptor(key, key.public_key())
        pem = public_key_to_bytes(key.public_key())
        with self.reached(FleetHttpClient, signed) as fleet:
            request = ActivateNodeRequest(public_key=pem, heartbeat_interval=30)
            return int(fleet.ActivateNode(request).node_id)

    def owner(self, name: str) -> ec.EllipticCurvePrivateKey:
        file = self.home / "certs" / "clients" / name / "client.key"
        key = serialization.load_ssh_private_key(file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("outsiders")
    certs.make(home / "certs", ["0", "1"])
    port, before = free_port(), set(children(os.getpid()))
    with serving(ServerAddress(home / "certs" / "server", port=port), home / "run") as found:
        (link,) = set(children(os.getpid())) - before
        yield Server(home, *found[:2], port, link)


@pytest.mark.row(28, counts="strangers and keys")
def test_scorecard_28_an_outsider_cannot_register_a_key(server: Server) -> None:
    """It has all but the secret: the authority's certificate, a key, and the loopback."""
    key = public_key_to_bytes(ec.generate_private_key(ec.SECP384R1()).public_key())
    with server.reached(ControlHttpClient) as control:
        for call, request in (
            (control.RegisterNode, RegisterNodeRequest(public_key=key, name="1")),
            (control.ListNodes, ListNodesRequest()),
        ):
            with pytest.raises(httpx.HTTPStatusError, match="401"):
                call(request)
    ours = Endpoint(server.port, (server.home / "run" / "secret").read_bytes(), ca(server))
    with ours.connect(ControlHttpClient) as control:  # who knows the secret is let in
        assert len(control.ListNodes(ListNodesRequest()).nodes_info) == 2
    events: list[dict[str, Any]] = []
    Exchange(server.grid, tell=events.append, registered=server.registered).look()
    assert {
        "event": "refused",
        "node": "127.0.0.1",
        "why": "all but the clients' interface is the server's",
    } in events


def ca(server: Server) -> Path:
    return server.home / "certs" / "server" / "ca.pem"


@pytest.mark.row(28, counts="strangers and keys")
def test_scorecard_28_a_key_registered_behind_our_back_is_never_admitted(server: Server) -> None:
    outsider = ec.generate_private_key(ec.SECP384R1())
    ours = Endpoint(server.port, (server.home / "run" / "secret").read_bytes(), ca(server))
    with ours.connect(ControlHttpClient) as control:
        pem = public_key_to_bytes(outsider.public_key())
        control.RegisterNode(RegisterNodeRequest(public_key=pem, name="1"))
    with pytest.raises(httpx.HTTPStatusError, match="412"):
        server.activate(outsider)
    node = server.activate(server.owner("0"))  # the one that is listed
    assert server.registered()[node] == "0"
    assert [n.node_id for n in server.grid.get_nodes()] == [node]
    events: list[dict[str, Any]] = []
    strict = Exchange(server.grid, tell=events.append, registered=dict)
    strict.look()
    assert [e["why"] for e in events if e["node"] == str(node)] == [
        "this server did not register its key"
    ]


def flood(server: Server, size: int) -> None:
    """A POST without a key, until it is cut off: under TLS a peer that ends reads on, and drops."""
    context = ssl.create_default_context(cadata=server.ca.decode())
    sent, part = 0, b"x" * 65536
    head = f"POST {PUSH} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n"
    head += "content-type: application/protobuf\r\n\r\n"
    try:
        with (
            socket.create_connection(("127.0.0.1", server.port), 60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wire,
        ):
            wire.sendall(head.encode())
            while sent < size:
                wire.sendall(part)
                sent += len(part)
    except OSError:
        pass


@pytest.mark.row(17)
def test_scorecard_17_a_flood_without_a_key_takes_no_memory_of_the_superlink(
    server: Server,
) -> None:
    flood(server, 1000)
    before = peak(server.link)
    flood(server, 700 << 20)
    assert peak(server.link) - before < 2 * LARGEST
