"""A federation whose server or clients die at any storage operation, or at any named point.

Server and clients are in this process, over the grid of `tests.engines.flower.fake`: a client that
dies is started again and asked again; a server that dies is served again. The real processes are
killed in tests/engines/flower/test_kill_points.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from flwr.app import Error, Message

from coterie import config as configs
from coterie.core.events import silence
from coterie.core.points import POINTS
from coterie.studies.remote import federation
from coterie.studies.remote.clients import PartitionClient
from tests.engines.flower.fake import FakeClock, FakeGrid
from tests.faults.commands import SMALL, saved_rounds, strays, written
from tests.faults.disk import HOWS, Disk, How, PowerCut
from tests.faults.points import listening, reached
from tests.faults.test_crash import SPARSE, places_of

Figure = Callable[..., None]
CLIENTS = 3
OF_CLIENTS = ("introduced", "asked", "kept")  # points in a client's process
RUN = f'method = "ditto"\n{SMALL}'.replace("clients = 4", f"clients = {CLIENTS}").replace(
    "serial", "flower"
)


class Mortal(FakeGrid):
    """A grid whose clients may die over a message: they are started again, and are back."""

    dies: Callable[[], None] = staticmethod(lambda: None)
    deaths = 0

    def push(self, message: Message) -> str:
        try:
            return super().push(message)
        except PowerCut:
            self.deaths += 1
            self.dies()
            key, node = f"{len(self.sent) - 1}", message.metadata.dst_node_id
            self.replies[key] = [Message(Error(5, "node unavailable"), reply_to=message)]
            self.came[node] = f"{self.deaths}"
            return key


class Federation:
    """A federation in a folder: the server's part and the clients'."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        (home / "e.toml").write_text(RUN)
        self.home, self.out, self.states = home, home / "run", home / "clients"
        self.config = configs.load(home / "e.toml", [("train.rounds", 2)])
        owners = [PartitionClient(home / "e.toml", i) for i in range(CLIENTS)]
        for owner in owners:
            owner.model = self.states / owner.name / "model.safetensors"
        self.grid = Mortal(owners, self.states, FakeClock())

    def serve(self) -> None:
        """`coterie serve`, or `coterie serve --resume` where a run has begun."""
        self.grid.replies.clear()  # a server that was started again asks for none of them
        again = (self.out / "run.toml").exists()
        federation.run_federation(self.grid, self.config, self.out, silence, resume=again)

    def left(self) -> dict[str, bytes]:
        """What server and clients have in the end, but for the run's own name, which is drawn."""
        models = {k: v for k, v in written(self.states).items() if "model" in k}
        kept = sorted(v for k, v in written(self.states).items() if "model" not in k)
        memories = {f"memory {i}": data for i, data in enumerate(kept)}
        server = {k: v for k, v in written(self.out).items() if "manifest" not in k}
        return {**server, **unnamed(models), **memories}


def unnamed(models: dict[str, bytes]) -> dict[str, bytes]:
    """Models without the name of the experiment, which no two runs share."""
    from safetensors.torch import load, save

    return {name: save(dict(sorted(load(data).items()))) for name, data in models.items()}


@pytest.fixture(autouse=True)
def pageless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are crashed elsewhere, and take their time."""
    monkeypatch.setattr("coterie.studies.run.training.write_page", lambda *_: None)


def crash(name: str, how: How, home: Path, every: int = 1) -> int:
    """Crash the server ("serve") or the clients ("join") at each of their operations."""
    whole = Federation(home / "whole")
    with Disk(watched(whole, name)).watched() as disk:
        whole.serve()
    expected, operations = whole.left(), disk.names
    places = places_of(how, operations)[every // 2 :: every]
    for n in places:
        fed = Federation(home / str(n))
        place = f"{name}: {how} at operation {n}, {operations[n - 1]}"
        with Disk(watched(fed, name), n, how).watched() as disk:
            fed.grid.dies = reviving(disk)
            with pytest.raises(PowerCut) if name == "serve" else nullcontext():
                fed.serve()
        saved_rounds(fed.out)
        if name == "serve":
            fed.serve()
        assert fed.grid.deaths == (name == "join"), place
        assert fed.left() == expected, place
        assert strays(fed.home) == [], place
        shutil.rmtree(fed.home)
    return len(places)


def reviving(disk: Disk) -> Callable[[], None]:
    def revive() -> None:
        disk.dead, disk.last = False, float("inf")

    return revive


def watched(fed: Federation, name: str) -> Path:
    return fed.out if name == "serve" else fed.states


@pytest.mark.row(2)
@pytest.mark.thorough
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ["serve", "join"])
def test_a_crash_of_server_or_client_at_every_storage_operation_costs_nothing(
    name: str, how: How, tmp_path: Path, figure: Figure
) -> None:
    tried = crash(name, how, tmp_path)
    figure("storage crash points", tried)
    figure("identical resumes", tried)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["serve", "join"])
def test_a_crash_of_server_or_client_at_some_storage_operations_costs_nothing(
    name: str, tmp_path: Path
) -> None:
    for how in HOWS:
        (tmp_path / how).mkdir()
        assert crash(name, how, tmp_path / how, SPARSE) > 0


@contextmanager
def struck_at(n: int) -> Iterator[None]:
    """The n-th point is the end of whoever reaches it."""
    left = [n]

    def hear(point: str, about: tuple[object, ...]) -> None:
        left[0] -= 1
        if not left[0]:
            raise PowerCut

    with listening(hear):
        yield


@pytest.mark.row(2, 5, 7)
@pytest.mark.slow
def test_whoever_dies_at_a_named_point_the_federation_ends_the_same(
    tmp_path: Path, figure: Figure
) -> None:
    """In an introduction, an agreement, a question, a hand-over, a commit, a farewell."""
    whole = Federation(tmp_path / "whole")
    points = reached(whole.serve)
    expected = whole.left()
    kinds = [point.split()[0] for point in points]
    assert set(kinds) == set(POINTS)
    for n in chosen(kinds):
        fed = Federation(tmp_path / str(n))
        of_client = kinds[n - 1] in OF_CLIENTS
        with struck_at(n), nullcontext() if of_client else pytest.raises(PowerCut):
            fed.serve()
        if not of_client:
            fed.serve()
        assert fed.grid.deaths == of_client
        assert fed.left() == expected, points[n - 1]
        figure("named points struck", 1)


def chosen(kinds: list[str]) -> list[int]:
    """The first, a middle and the last of each kind of point, counted from 1."""
    found: dict[str, list[int]] = {}
    for n, kind in enumerate(kinds, 1):
        found.setdefault(kind, []).append(n)
    return sorted({n for them in found.values() for n in (them[0], them[len(them) // 2], them[-1])})


def test_every_point_is_explained_and_in_the_code() -> None:
    import re

    import coterie

    home = Path(coterie.__file__).parent
    texts = [file.read_text() for file in home.rglob("*.py") if file.name != "points.py"]
    said = {name for text in texts for name in re.findall(r'points\.reach\(\s*"(\w+)"', text)}
    assert said == set(POINTS)
