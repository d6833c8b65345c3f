"""A real federation: SuperLink and SuperNodes as processes, over TLS with keys, and with faults."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.cli.main import call
from coterie.engines.flower.guard import UNLISTED
from coterie.runs import newcomers
from tests.engines.flower.machine import Machine, alive, children, coterie, free_port, machine, wait

pytestmark = [pytest.mark.federation, pytest.mark.slow]
# What clients keep, what a server holds; fedclust has its bits compared with optimisers below.
FIVE = [
    *("ditto", "feddsmic"),
    *(pytest.param(x, marks=pytest.mark.thorough) for x in ("fedavg", "fedclust", "dapfl")),
]


def final(folder: Path) -> bytes:
    """Models and who holds which, at the end."""
    last = sorted((folder / "checkpoints").glob("[0-9]*"))[-1]
    return (last / "state.safetensors").read_bytes()


def listening(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def serial(m: Machine, *settings: str) -> Path:
    out = m.home / f"serial-{m.file.stem}{len(settings) or ''}"
    words = ["run", str(m.file), *settings, "--engine", "serial", "--out", str(out), "--quiet"]
    assert call(words) == 0  # in this process, which has PyTorch already
    return out


def accuracies(folder: Path) -> list[str]:
    lines = (folder / "metrics.csv").read_text().splitlines()
    return [x for x in lines if ",accuracy," in x or ",loss," in x]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Four clients that outlive their servers."""
    with machine(tmp_path_factory.mktemp("five")) as m:
        for i in range(4):
            m.join(i)
        yield m


@pytest.mark.xdist_group("standing")  # they share the clients
@pytest.mark.parametrize("method", FIVE)
def test_five_methods_have_the_bits_of_the_serial_engine(standing: Machine, method: str) -> None:
    standing.write(method, 2)
    want = serial(standing)
    out = f"run-{method}"
    assert standing.serve(out).wait(1800) == 0, standing.said(out)()
    assert final(standing.home / out) == final(want)
    assert accuracies(standing.home / out) == accuracies(want)
    assert standing.outside() == []


OPTIMISED = (
    "train.optimiser=adamw",
    "train.clip=1.0",
    "train.schedule=cosine",
    "server.optimiser=yogi",
    'evaluate.metrics=["macro_f1","per_class_accuracy"]',
)


@pytest.mark.xdist_group("standing")
def test_optimisers_schedules_and_metrics_have_the_bits_of_the_serial_engine(
    standing: Machine,
) -> None:
    standing.write("fedclust", 2)
    want = serial(standing, *OPTIMISED)
    assert standing.serve("optimised", *OPTIMISED).wait(1800) == 0, standing.said("optimised")()
    assert final(standing.home / "optimised") == final(want)
    there, here = (
        (folder / "metrics.csv").read_text() for folder in (standing.home / "optimised", want)
    )
    told = [line for line in here.splitlines() if "macro_f1" in line or ",class_" in line]
    assert told
    assert told == [line for line in there.splitlines() if "macro_f1" in line or ",class_" in line]


def supernode(process: subprocess.Popen[bytes]) -> int:
    (pid,) = children(process.pid)
    return pid


@pytest.mark.parametrize("method", ["ditto", pytest.param("fedclust", marks=pytest.mark.thorough)])
def test_killed_processes_change_nothing(method: str, tmp_path: Path) -> None:
    """A SuperNode, a client, the SuperLink and the server die, each in another round."""
    with machine(tmp_path, method=method, clients=3, rounds=5) as m:
        want = serial(m)
        joined = [m.join(i) for i in range(3)]
        server = m.serve("run")
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 1)
        os.kill(supernode(joined[1]), signal.SIGKILL)
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 2)
        (link,) = children(server.pid)
        os.kill(link, signal.SIGKILL)
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 3)
        orphans = [*children(server.pid), *children(joined[2].pid)]
        joined[2].kill()
        server.kill()
        wait(lambda: not alive(orphans), 60)
        again = m.serve("run", resume=True)
        m.join(2)
        assert again.wait(1800) == 0, m.said("run")()
        assert final(m.home / "run") == final(want)
        assert accuracies(m.home / "run") == accuracies(want)
        assert m.outside() == []


@pytest.mark.row(5)
def test_a_client_that_dies_is_left_out_and_the_round_goes_on(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedavg", clients=3, rounds=3) as m:
        joined = [m.join(i) for i in range(3)]
        server = m.serve("run", "engine.quorum=0.5", "engine.deadline=120")
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 1)
        joined[2].kill()
        assert server.wait(1800) == 0, m.said("run")()
        assert any(e["event"] == "missing" and e["client"] == "2" for e in m.events("run"))


def test_a_federation_of_three_ends_with_its_page_and_its_newcomer(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedclust", clients=3, rounds=2) as m:
        for i in range(3):
            m.join(i)
        server = m.serve("run", "newcomers.share=0.3", "newcomers.epochs=1")
        assert server.wait(1800) == 0, m.said("run")()
        page = (tmp_path / "run" / "report.html").read_text()
        assert "every client keeps its data on its own machine" in page
        assert '<section class="block" id="newcomers">' in page
        joined = newcomers.read(tmp_path / "run")
        assert joined
        assert [row.epochs for row in joined.rows] == [0, 1]
        assert all(row.cluster is not None and row.accuracy is not None for row in joined.rows)


def test_a_server_that_was_killed_goes_on_without_those_it_held_out(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedclust", clients=3, rounds=3) as m:
        held = ["newcomers.share=0.3", "newcomers.epochs=1"]
        coterie("run", m.file, "--engine", "serial", "--out", "want", "-q", *held, cwd=tmp_path)
        for i in range(3):
            m.join(i)
        server = m.serve("run", *held)
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 1)
        server.kill()
        server.wait()
        assert m.serve("run", resume=True).wait(1800) == 0, m.said("run")()
        want, found = (newcomers.read(tmp_path / name) for name in ("want", "run"))
        assert want
        assert found
        unknown = {"group": None, "right": None}  # a server cannot know what was planted
        assert found.rows == tuple(row._replace(**unknown) for row in want.rows)
        assert final(tmp_path / "run") == final(tmp_path / "want")
        assert accuracies(tmp_path / "run") == accuracies(tmp_path / "want")


@pytest.mark.row(9)
def test_nobody_comes(tmp_path: Path) -> None:
    with machine(tmp_path) as m:
        server = m.serve("run", "engine.connect_timeout=3")
        assert server.wait(900) == 4, m.said("run")()
        assert "0 of 4 clients came" in m.said("run")()


@pytest.mark.row(28, 29, 31, counts="strangers and keys")
def test_scorecard_28_29_who_has_no_listed_key_another_name_authority_or_no_tls_is_refused(
    tmp_path: Path,
) -> None:
    with machine(tmp_path, rounds=5000) as m:
        other = tmp_path / "other"
        coterie("certs", other, "--clients", "4")
        coterie("certs", tmp_path / "certs", "--clients", "5")  # 4 is listed, and no client's name
        (tmp_path / "certs" / "server" / "clients" / "3.pub").unlink()
        (tmp_path / "certs" / "clients" / "4" / "name").write_text("3\n")
        m.serve("run", "engine.connect_timeout=1800")
        joined = [m.join(i) for i in range(3)]
        m.wait_for("run", lambda e: e["event"] == "joined" and e["client"] == "2")
        share = ["--data", "digits", "--client", "3", "--partition-from", m.file]
        at = ["join", f"localhost:{m.port}", *share]
        unlisted = m.start("unlisted", *at, "--certs", "certs/clients/3", "--state", "s3")
        wrong = m.start("wrong", *at, "--certs", other / "clients" / "3", "--state", "s4")
        plain = m.start("plain", *at, "--insecure", "--state", "s5")
        renamed = m.start("renamed", *at, "--certs", "certs/clients/4", "--state", "s6")
        assert wrong.wait(900) == 8, m.said("wrong")()
        assert "certificate cannot be trusted" in m.said("wrong")()
        assert unlisted.wait(900) == 8, m.said("unlisted")()
        assert "does not list the key" in m.said("unlisted")()
        assert plain.wait(900) == 8, m.said("plain")()
        assert "it asks for TLS and a key" in m.said("plain")()
        assert renamed.wait(900) == 8, m.said("renamed")()
        assert "it calls itself 3, its key belongs to 4" in m.said("renamed")()
        refused = {e["why"] for e in m.events("run") if e["event"] == "refused"}
        assert refused >= {UNLISTED, "it calls itself 3, its key belongs to 4"}
        assert {e.get("client") for e in m.events("run") if e["event"] == "joined"} == {
            "0",
            "1",
            "2",
        }
        assert all(process.poll() is None for process in joined)


def reached(host: str, port: int, path: str, ca: Path) -> int:
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=20)
    kind = "application/protobuf"
    connection.request("POST", path, b"", {"content-type": kind, "accept": kind})
    status = connection.getresponse().status
    connection.close()
    return status


def elsewhere() -> str:
    """An address of this machine that is not the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses an address
            address: str = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but the loopback")
    return address


PATHS = ("/v1/control/start-run", "/v1/control/list-nodes", "/v1/runtime/acquire-task", "/docs")


def test_only_the_clients_interface_can_be_reached_from_outside(tmp_path: Path) -> None:
    outside = elsewhere()
    with machine(tmp_path) as m:
        m.serve("run", "--host", "0.0.0.0")
        log = tmp_path / "run" / "flower" / "superlink.log"
        wait(lambda: log.exists() and "RegisterNode" in log.read_text(), 900, m.said("run"))
        ca = tmp_path / "certs" / "server" / "ca.pem"
        assert [reached(outside, m.port, p, ca) for p in PATHS] == [404] * len(PATHS)
        assert reached("127.0.0.1", m.port, "/v1/control/list-nodes", ca) == 401  # no credential
        assert reached(outside, m.port, "/v1/fleet/pull-messages", ca) == 412


@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on this machine")
def test_a_client_joins_through_nginx_and_nothing_else_passes(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedavg", clients=2, rounds=1) as m:
        front = free_port()
        at = ["--certs", "certs/server", "--port", m.port, "--listen", front]
        text = coterie("serve", "--proxy", "nginx", *at, cwd=tmp_path).stdout
        conf = tmp_path / "nginx.conf"
        conf.write_text(
            f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/nginx.err;\n"
            f"events {{}}\nhttp {{ access_log {tmp_path}/nginx.log;\n{text}}}\n"
        )
        proxy = subprocess.Popen(["nginx", "-c", str(conf), "-p", str(tmp_path)])
        try:
            server = m.serve("run")
            inside, m.port = m.port, front
            for i in range(2):
                m.join(i)
            assert server.wait(1800) == 0, m.said("run")()
            log = (tmp_path / "nginx.log").read_text()
            assert "POST /v1/fleet/pull-messages" in log
            server = m.start(
                "again", "serve", m.file, "--out", "again", "--certs", "certs/server",
                "--port", inside, "--json",
            )  # fmt: skip
            m.wait_for("again", lambda e: e["event"] == "joined")
            ca = tmp_path / "certs" / "server" / "ca.pem"
            for host in ("127.0.0.1", elsewhere()):
                assert [reached(host, front, p, ca) for p in PATHS] == [404] * len(PATHS)
        finally:
            proxy.terminate()
            proxy.wait(20)


def test_a_stopped_server_says_how_to_go_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedavg", clients=2, rounds=500) as m:
        joined = [m.join(i) for i in range(2)]
        server = m.serve("run")
        m.wait_for("run", lambda e: e["event"] == "round" and e["round"] == 1)
        theirs = [p for process in (server, *joined) for p in children(process.pid)]
        assert len(theirs) == 3
        for process in (server, *joined):
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 130
        assert alive(theirs) == []


APP = """
method = "fedavg"
[partition]
clients = 2
[model]
name = "mclr"
[train]
rounds = 1
[engine]
name = "flower"
quorum = 1.0
"""


def test_the_example_app_runs_on_a_federation_that_is_there(tmp_path: Path) -> None:
    """Flower's own commands, as its users start them; nothing of coterie's but the app."""
    shutil.copytree(Path(__file__).parents[3] / "examples" / "flower_app", tmp_path / "app")
    file = tmp_path / "app" / "coterie_app" / "experiment.toml"
    file.write_text(APP)
    coterie("run", file, "--engine", "serial", "--out", tmp_path / "serial", "--quiet")
    port, bin = free_port(), Path(sys.executable).parent
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )
    environment = {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }

    def start(*words: str) -> subprocess.Popen[bytes]:
        with open(tmp_path / "flower.log", "ab") as log:
            return subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=log, stderr=log)

    processes = [
        start("flower-superlink", "--insecure", "--port", str(port), "--database", "f.db",
              "--disable-runtime-dependency-installation")
    ]  # fmt: skip
    try:
        wait(lambda: listening(port), 300)
        for i in range(2):
            node = f'partition-id={i} state="{tmp_path}/state{i}"'
            processes.append(
                start("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}",
                      "--port", str(free_port()), "--node-config", node)
            )  # fmt: skip
        config = f'out="{tmp_path}/run"'
        assert start("flwr", "run", "app", "here", "--run-config", config).wait(300) == 0
        wait(lambda: (tmp_path / "run" / "summary.json").exists(), 1800)
        assert final(tmp_path / "run") == final(tmp_path / "serial")
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)
