"""A client knows at once whether a server will ever take it, and waits only for one that may."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.cli.main import call
from coterie.core.errors import AccessError
from coterie.engines.flower import certs, knock
from tests.engines.flower.machine import free_port


@contextmanager
def listening(folder: Path | None) -> Iterator[str]:
    """A server with the certificate of a folder, or without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        context = None
        if folder:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "server.key")

        def serve() -> None:
            while True:
                try:
                    wire = door.accept()[0]
                except OSError:
                    return
                with wire:
                    try:
                        if context:
                            context.wrap_socket(wire, server_side=True).close()
                        else:
                            wire.recv(1000)
                            wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"localhost:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    certs.make(folder, ["berlin"])
    return folder / "server"


def test_a_server_that_speaks_as_the_client_does_is_there(ours: Path) -> None:
    with listening(ours) as server:
        assert knock.is_there(server, ours / "ca.pem")
    with listening(None) as server:
        assert knock.is_there(server, None)
    assert not knock.is_there(f"localhost:{free_port()}", None)
    assert not knock.is_there(f"localhost:{free_port()}", ours / "ca.pem")


@pytest.mark.row(29, counts="bad connections")
def test_scorecard_29_a_server_that_asks_for_tls_refuses_a_client_without(ours: Path) -> None:
    with listening(ours) as server, pytest.raises(AccessError, match="asks for TLS") as told:
        knock.is_there(server, None)
    assert (told.value.code, told.value.exit) == ("A002", 8)


@pytest.mark.row(29, counts="bad connections")
def test_scorecard_29_a_server_without_tls_is_no_server_for_a_client_with_a_key(
    ours: Path,
) -> None:
    with listening(None) as server, pytest.raises(AccessError, match="speaks without TLS"):
        knock.is_there(server, ours / "ca.pem")


@pytest.mark.row(29, counts="bad connections")
def test_scorecard_29_another_authority_is_refused(ours: Path, tmp_path: Path) -> None:
    certs.make(tmp_path, [])
    with listening(ours) as server, pytest.raises(AccessError, match="cannot be trusted"):
        knock.is_there(server, tmp_path / "server" / "ca.pem")


@pytest.mark.row(29, counts="bad connections")
def test_scorecard_29_a_certificate_that_has_run_out_is_refused(tmp_path: Path) -> None:
    certs.authority(tmp_path / "authority", 10)
    certs.make(tmp_path, [], days=0)
    server_folder = tmp_path / "server"
    with listening(server_folder) as server, pytest.raises(AccessError, match="has expired"):
        knock.is_there(server, server_folder / "ca.pem")


def test_what_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(AccessError, match=r"ca\.pem is no certificate"):
        knock.is_there("localhost:9", tmp_path / "ca.pem")


def test_a_server_that_is_away_is_waited_for(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knock, "PAUSE", 0.01)
    away: list[float] = []
    server = f"localhost:{free_port()}"
    began = time.monotonic()
    assert not knock.wait_for(server, None, lambda: away.append(0.0), seconds=0.2)
    assert 0.2 <= time.monotonic() - began < 10
    assert len(away) == 1
    with listening(ours) as server:
        assert knock.wait_for(server, ours / "ca.pem", lambda: away.append(0.0))
    assert len(away) == 1


@pytest.mark.row(29, counts="bad connections")
def test_scorecard_29_join_without_tls_ends_at_once_and_says_why(
    ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", "digits", "--insecure", "--name", "berlin", "--state", str(tmp_path / "s")]
    with listening(ours) as server:
        assert call(["join", server, *words]) == 8
    said = capsys.readouterr().err
    assert "does not let this client in" in said
    assert "--certs" in said


@pytest.mark.row(28, counts="strangers and keys")
def test_scorecard_28_join_with_anothers_key_ends_at_once_and_says_why(
    ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.toml").write_text('[partition]\nkind = "rotation:0,180"\nclients = 4\n')
    words = ["--client", "3", "--partition-from", str(tmp_path / "e.toml"), "--data", "digits"]
    words += ["--certs", str(ours.parent / "clients" / "berlin"), "--state", str(tmp_path / "s")]
    assert call(["join", f"localhost:{free_port()}", *words]) == 8
    assert "was made for client berlin, and this is client 3" in capsys.readouterr().err
