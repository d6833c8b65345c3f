"""What a server says: where it is, how to join it, and each thing once."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.cli.federation import invite, telling
from coterie.engines.flower.serving import ServerAddress


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (("127.0.0.1", 9093), "coterie join localhost --certs certs/clients/NAME --data FOLDER"),
        (("127.0.0.1", 7000), "coterie join localhost:7000 --certs certs/clients/NAME"),
        (("0.0.0.0", 9093), "coterie join THIS-MACHINE --certs certs/clients/NAME"),
    ],
)
def test_a_client_is_told_what_to_type(
    address: tuple[str, int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    invite(ServerAddress(Path("certs/server"), *address))
    heard = capsys.readouterr().err
    assert f"{address[0]}:{address[1]}" in heard
    assert said in heard


def test_how_many_are_waited_for_is_said_when_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hear = telling(lambda event: None)
    for there in (0, 0, 0, 1, 1):
        hear({"event": "waiting", "clients": there, "of": 3})
    assert capsys.readouterr().err.count("of 3 clients are there") == 2
