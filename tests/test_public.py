"""The public names: each loads, costs nothing before it is used, and has its type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coterie as ct
from coterie.methods import METHODS

SCRIPT = """
import coterie as ct

clients = ct.partition("digits", "rotation", clients=4)
result = ct.fit(ct.Kin(), clients, "cnn-s", rounds=2, every=2, out="runs/mine")
result = ct.fit("fedavg", clients, "cnn-s", rounds=2)
mean: float = result.accuracy.mean()
found = ct.compare(["fedavg", ct.Kin()], clients, "mlp", rounds=2, seeds=[0], last_k=2)
named = ct.Population.of({"lyon": ([[1.0]], [0])}, test_share=0)
ct.fit(ct.Kin(), clients, "cnn-s", rounds="two")  # wrong
ct.fit(3, clients, "cnn-s", rounds=2)  # wrong
ct.fit(ct.Kin(), "digits", "cnn-s", rounds=2)  # wrong
ct.fit(ct.Kin(), clients, 7, rounds=2)  # wrong
ct.fit(ct.Kin(), clients, "mlp", rounds=2, evry=3)  # wrong
ct.fit(ct.Kin(), clients, "mlp", rounds=2, every="third")  # wrong
ct.fit(ct.Kin(), clients, "mlp", rounds=2, device="cuda")  # wrong
ct.fit(ct.Kin(), clients, "mlp")  # wrong
ct.compare([ct.Kin(), 3], clients, "mlp", rounds=1)  # wrong
ct.compare([ct.Kin()], clients, "mlp", rounds=1, workerz=2)  # wrong
ct.partition("digits", "iid", client=4)  # wrong
ct.Population.of([([1.0], [0])], clases=3)  # wrong
result.acuracy  # wrong
result.accuracy.meen()  # wrong
result.model(client=1.5)  # wrong
result.place(3)  # wrong
result.history.rows[0].acuracy  # wrong
len(result.clusters["a"])  # wrong
ct.Solver(lr="fast")  # wrong
ct.Solver(optimizer="adam")  # wrong
ct.Solver(optimiser="adam")  # wrong
ct.IFCA(k=4)  # wrong
ct.IFCA(clusters="four")  # wrong
ct.IFCA(share="al")  # wrong
ct.FedAvg(fraction=[1])  # wrong
ct.Rotation(angle=3)  # wrong
ct.Dirichlet(alpha="x")  # wrong
ct.Train(ct.SGD())  # wrong
ct.grouping.cut(3, 0.5)  # wrong
ct.Solverr()  # wrong
for state in ct.run(ct.FedAvg(), result.fed, rounds=2):
    state.modells  # wrong
try:
    ct.open_run("runs/mine").acuracy  # wrong
except ct.CheckpointErrr:  # wrong
    pass
except ct.CoterieError as error:
    error.cod  # wrong


@ct.dataclass(frozen=True)
class Mine:
    share: ct.Share = "half"  # wrong
"""


@pytest.mark.parametrize("name", ct.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(ct, name) is not None


def test_every_method_is_public() -> None:
    assert {entry.cls for entry in METHODS.values()} <= set(ct.__all__)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Solverr'"):
        ct.Solverr  # noqa: B018


def test_importing_coterie_costs_no_torch() -> None:
    code = (
        "import sys, coterie; assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_a_type_checker_finds_the_mistakes_of_a_script(tmp_path: Path) -> None:
    """As a user has it: a script somewhere, the package installed, no configuration of ours."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "script.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    told = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    wrong = {i for i, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# wrong")}
    assert told == wrong, done.stdout + done.stderr


def test_the_installed_package_says_that_it_has_types() -> None:
    assert (Path(ct.__file__).parent / "py.typed").exists()


def test_what_is_printed_is_short_and_holds_no_tensor() -> None:
    people = ct.partition("digits", "rotation", clients=4, seed=0)
    result = ct.fit(ct.FedAvg(), people, "mclr", rounds=1)
    placed = result.place((people[0].x, people[0].y), epochs=0)
    shown = (result, result.state, people, people[0], result.history, people.data, placed)
    for thing in shown:
        assert "tensor(" not in repr(thing)
        assert len(repr(thing)) < 400, type(thing).__name__
    assert repr(result).startswith("Result(FedAvg: 4 clients, 1 round, accuracy ")
