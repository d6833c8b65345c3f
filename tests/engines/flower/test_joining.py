"""Certificates, refusals before anything starts, and what a client lets a server choose."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization

from coterie.cli.main import call
from coterie.config import loads
from coterie.core.errors import ConfigError, DataError
from coterie.engines.flower import certs, nginx
from coterie.engines.flower.exchange import RemoteClient
from coterie.studies.remote.agreement import Agreement, agree
from coterie.studies.remote.clients import OwnData, PartitionClient
from coterie.studies.remote.federation import setup

FEW_SHOTS = ["newcomers.share=0.2", "newcomers.shots=[1]"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    certs.make(folder, ["berlin", "lyon"], ["fed.example.org", "203.0.113.9"])
    return folder


def openssl(*words: object) -> str:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl on this machine")
def test_the_authority_vouches_for_the_server_under_its_names(made: Path) -> None:
    pem, ca = made / "server" / "server.pem", made / "server" / "ca.pem"
    openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", ca, pem)
    text = openssl("x509", "-in", pem, "-noout", "-text")
    for name in ("DNS:fed.example.org", "IP Address:203.0.113.9", "DNS:localhost"):
        assert name in text


def test_a_clients_key_is_the_one_the_server_lists(made: Path) -> None:
    assert list(certs.listed(made / "server")) == ["berlin", "lyon"]
    key = serialization.load_ssh_private_key(
        (made / "clients" / "lyon" / "client.key").read_bytes(), None
    )
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert certs.listed(made / "server")["lyon"] == pem


def test_secrets_are_their_owners_alone_and_stay_where_they_belong(made: Path) -> None:
    secrets = [made / "authority/ca.key", made / "server/server.key"]
    secrets += [made / "clients" / n / "client.key" for n in ("berlin", "lyon")]
    assert sorted(made.rglob("*.key")) == sorted(secrets)
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}


def test_more_clients_change_nothing_of_the_others(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    certs.make(folder, ["berlin", "lyon", "porto"])
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert before.items() <= after.items()
    assert list(certs.listed(folder / "server")) == ["berlin", "lyon", "porto"]


@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on this machine")
def test_nginx_accepts_its_configuration(made: Path, tmp_path: Path) -> None:
    text = nginx.configuration(made / "server", 9093, "127.0.0.1:44321")
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/err;\nevents {{}}\n"
        f"http {{ access_log off; {text} }}\n"
    )
    command = ["nginx", "-t", "-c", str(conf), "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["serve", "e.toml"], 2, "a server needs certificates"),
        (["serve", "e.toml", "--insecure", "--host", "0.0.0.0"], 2, "open to everybody"),
        (["serve", "e.toml", "--insecure", "--host", "192.168.7.7"], 2, "open to everybody"),
        (["serve", "e.toml", "--certs", "nowhere"], 8, "there is no nowhere/ca.pem"),
        (["serve", "e.toml", "--insecure", *FEW_SHOTS], 2, "join with all their samples"),
        (["serve", "--proxy", "apache", "--insecure"], 2, "no configuration"),
        (["join", "fed.example.org", "--data", "digits"], 2, "needs the key"),
        (["join", "fed.example.org", "--data", "digits", "--insecure"], 2, "another machine"),
        (["join", "localhost", "--data", "digits", "--insecure"], 2, "needs a name"),
        (["certs", "c", "--clients", "../x"], 2, "is no name"),
        (["run", "e.toml"], 2, "coterie serve FILE"),
    ],
)
@pytest.mark.row(29, counts="bad connections")
def test_what_is_refused_before_anything_starts(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.toml").write_text('[engine]\nname = "flower"\n')
    assert call(words) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("superlink*"))


CSV = "a,b,label\n" + "".join(f"{i},{i % 7},{'cat' if i % 2 else 'dog'}\n" for i in range(40))


def told(text: str = "", classes: tuple[str, ...] = ("cat", "cow", "dog")) -> dict[str, Any]:
    return setup(loads(f'[model]\nname = "mclr"\n{text}')) | {
        "classes": list(classes),
        "shape": [2],
    }


def test_a_client_reads_its_own_data_and_numbers_labels_as_all_do(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(CSV)
    host = OwnData("berlin", str(tmp_path / "own.csv"))
    facts = host.introduce(told('[data]\nlabel = "label"\n'))
    assert facts == {"samples": 32, "classes": ["cat", "dog"], "shape": [2]}
    client = host.client(told('[data]\nlabel = "label"\n'), 0)
    assert (client.name, len(client), len(client.y_test)) == ("berlin", 32, 8)
    assert set(client.y.tolist()) == {0, 2}
    with pytest.raises(DataError, match="no class 'dog'"):
        host.client(told('[data]\nlabel = "label"\n', classes=("cat", "cow")), 0)


@pytest.mark.row(27, counts="hostile files and names")
def test_a_server_cannot_choose_files_or_code(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(CSV)
    np.savez(tmp_path / "secret.npz", x=np.zeros((4, 2)), y=np.zeros(4))
    host = OwnData("berlin", str(tmp_path / "own.csv"))
    question = told('[data]\nlabel = "label"\n')
    question["data"]["reader"]["test_source"] = str(tmp_path / "secret.npz")
    assert host.data(question).x_test is None
    question["model"]["name"] = "os:system"
    with pytest.raises(ConfigError, match="not coterie's"):
        host.layout(question)


def test_a_share_of_a_partition_is_the_client_of_the_experiment(tmp_path: Path) -> None:
    from coterie.studies.run.experiment import population

    text = '[partition]\nkind = "rotation:0,180"\nclients = 4\n'
    (tmp_path / "e.toml").write_text(text)
    ours, theirs = PartitionClient(tmp_path / "e.toml", 3), population(loads(text))[3]
    client = ours.client({}, 0)
    assert ours.name == theirs.name
    assert client.x.equal(theirs.x)
    assert client.y_test.equal(theirs.y_test)
    with pytest.raises(ConfigError, match="no client 4"):
        PartitionClient(tmp_path / "e.toml", 4)


def test_clients_agree_on_classes_and_order(tmp_path: Path) -> None:
    a = RemoteClient("10", 1, 5, ("dog", "cat"), (2,))
    b = RemoteClient("9", 2, 7, ("cow",), (2,))
    agreed = agree({"10": a, "9": b}, ["11"])
    assert agreed.names == ("9", "10", "11")
    assert agreed.sizes == (7, 5, 0)
    assert agreed.classes == ("cat", "cow", "dog")
    assert agree({"10": a}, []).classes == ("dog", "cat")
    assert Agreement.load(tmp_path) is None
    agreed.save(tmp_path)
    assert Agreement.load(tmp_path) == agreed
    other = RemoteClient("8", 3, 7, ("cow",), (3,))
    with pytest.raises(ConfigError, match="different shapes"):
        agree({"10": a, "8": other}, [])


def test_the_example_app_is_two_apps() -> None:
    import sys

    home = Path(__file__).parents[3] / "examples" / "flower_app"
    sys.path.insert(0, str(home))
    try:
        from coterie_app import client_app, server_app  # type: ignore[import-not-found]
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
    finally:
        sys.path.remove(str(home))
    assert isinstance(client_app.app, ClientApp)
    assert isinstance(server_app.app, ServerApp)
