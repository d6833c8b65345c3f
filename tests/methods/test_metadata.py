from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import coterie
from coterie.core.errors import DataError
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.methods.metadata import Metadata
from coterie.methods.oracle import Oracle
from coterie.tasks.solver import Solver
from tests.methods.formulas import close, initial, logistic, own, slope, trained
from tests.tiny import clients, federation, same

SOLVER = Solver(lr=0.1, batch=8)
HALVES = ["north"] * 4 + ["south"] * 4


def with_columns(**columns: list[str]) -> Front:
    fed = federation()
    fed.columns, fed.groups = columns, None
    return fed


def test_with_one_value_it_is_fedavg_to_the_bit() -> None:
    ours = trained(Metadata(SOLVER, 0.5), with_columns(region=["here"] * 8))
    assert same(ours, trained(FedAvg(SOLVER, 0.5), federation()))


def test_on_the_planted_column_it_is_the_oracle_to_the_bit() -> None:
    ours = trained(Metadata(SOLVER, 0.5, column="group"), federation())
    theirs = trained(Oracle(SOLVER, 0.5), federation())
    assert same(ours, theirs)
    assert same(trained(Metadata(SOLVER, 0.5), with_columns(region=HALVES)), theirs)


def test_with_a_value_for_each_it_is_local_to_the_bit() -> None:
    alone = federation()
    end = trained(Metadata(SOLVER), with_columns(id=list("abcdefgh")))
    trained(Local(SOLVER), alone)
    for i, row in own(alone).items():
        assert torch.equal(end.of(torch.tensor([i]))[0], row)


def test_it_is_its_formulas() -> None:
    fed = logistic(columns={"region": list("ababcabc")})
    end = trained(Metadata(Solver(lr=0.2, steps=2, batch=0)), fed, 2)
    models = dict.fromkeys("abc", initial(fed))
    for _ in range(2):
        made: dict[str, list[np.ndarray]] = {v: [] for v in "abc"}
        for value, who in zip("ababcabc", fed.population, strict=True):
            w = models[value]
            for _ in range(2):
                w = w - 0.2 * slope(w, who)
            made[value].append(w * len(who))
        for v in "abc":
            sizes = [len(w) for u, w in zip("ababcabc", fed.population, strict=True) if u == v]
            models[v] = sum(made[v]) / sum(sizes)
    assert end.assign.tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    close(end.models, np.stack([models[v] for v in "abc"]))


def test_a_newcomer_joins_those_of_its_value_or_else_the_model_that_fits() -> None:
    fed = with_columns(region=HALVES)
    end = trained(Metadata(replace(SOLVER, epochs=5)), fed, 3)
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([1, 6]), -1))
    fed.columns = {"region": ["north", "south", *HALVES[2:6], "east", "south"]}
    placed = Metadata(SOLVER).place(late, fed.at(3))
    assert placed.assign.tolist() == [0, 1, 0, 0, 1, 1, 1, 1], "1 was told, 6 fits the south best"
    assert fed.ledger[-1].clients.tolist() == [6]


@pytest.mark.parametrize(
    ("columns", "column", "said"),
    [
        ({}, "", "no column to group them by"),
        ({"region": HALVES}, "regoin", "no column 'regoin'"),
        ({"region": HALVES, "age": HALVES}, "", "several columns"),
    ],
)
def test_without_the_column_there_is_an_error_that_says_what_to_do(
    columns: dict[str, list[str]], column: str, said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        Metadata(SOLVER, column=column).init(with_columns(**columns))
    assert caught.value.code == "D049"
    assert "metadata.column" in str(caught.value)


def table(path: Path, sites: str = "aabb") -> Path:
    rows = [
        f"{i}.{j},{j},{owner},{site},{j % 2}"
        for i, (owner, site) in enumerate(zip("wxyz", sites, strict=True))
        for j in range(10)
    ]
    path.write_text("\n".join(["one,two,patient,site,label", *rows]) + "\n")
    return path


def test_a_table_says_it_of_its_owners(tmp_path: Path) -> None:
    data = load(table(tmp_path / "t.csv"), owner="patient", about="site")
    assert data.shape == (2,)
    people = partition(data, "natural", clients=None)
    assert people.columns == {"site": ("a", "a", "b", "b")}
    assert partition(data, "iid", clients=4).columns == {}, "the clients are not the owners"
    assert partition(data, "natural", clients=None).key == people.key
    other = load(table(tmp_path / "t.csv", "abbb"), owner="patient", about="site")
    assert partition(other, "natural", clients=None).key != people.key
    result = coterie.fit("metadata", people, "mclr", rounds=1)
    assert result.clusters == {"w": 0, "x": 0, "y": 1, "z": 1}


def test_a_table_that_says_two_things_of_an_owner_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv")
    path.write_text(path.read_text().replace("3.9,9,z,b", "3.9,9,z,c"))
    with pytest.raises(DataError, match="z has 'c' in column 'site', and 'b' before") as caught:
        load(path, owner="patient", about="site")
    assert caught.value.code == "D043"
    with pytest.raises(DataError, match="without an owner"):
        load(path, about="site")


def test_clients_from_python_bring_their_columns() -> None:
    people = Population.of(clients(3), 4, columns={"region": ["n", "s", "n"]})
    assert people.columns == {"region": ("n", "s", "n")}
    with pytest.raises(DataError, match="2 values for 3 clients"):
        Population.of(clients(3), 4, columns={"region": ["n", "s"]})
