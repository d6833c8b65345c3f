"""Samples without labels are predicted as the same samples with them are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import coterie as ct
from coterie.cli.main import call
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unlabelled") / "r"
    people = ct.Population.of(clients(4), classes=4)
    ct.fit(ct.FedAvg(SOLVER), people, network(), rounds=1, out=out, page=False)
    return out


def samples() -> np.ndarray:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1)).numpy()


def predicted(capsys: pytest.CaptureFixture[str], *words: object) -> list[list[str]]:
    assert call(["predict", *(str(w) for w in words)]) == 0
    return [line.split(",") for line in capsys.readouterr().out.splitlines()]


def write(path: Path, kind: str) -> Path:
    x = samples()
    if kind == "npz":
        np.savez(path / "x.npz", x=x)
        return path / "x.npz"
    head = ["a,b,c,d,e,f"] if kind == "head" else ["a,b,c,d,e,f,label"] if kind == "label" else []
    more = ",?" if kind == "label" else ""
    lines = [",".join(map(repr, map(float, row))) + more for row in x]
    (path / "x.csv").write_text("\n".join([*head, *lines]) + "\n")
    return path / "x.csv"


@pytest.mark.parametrize("kind", ["npz", "head", "bare", "label"])
def test_every_kind_of_table_gives_what_the_model_says(
    kind: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, *rows = predicted(capsys, run, "--data", write(tmp_path, kind), "--no-labels")
    assert head[:2] == ["sample", "prediction"]
    model = ct.open_run(run, model=network()).model(cluster=0)
    with torch.no_grad():
        expected = model(torch.from_numpy(samples())).argmax(1).tolist()
    assert [int(row[1]) for row in rows] == expected


def test_a_folder_of_images_and_one_of_them(tmp_path: Path) -> None:
    from coterie.data.unlabelled import load_unlabelled

    for i in range(3):
        Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(tmp_path / f"{i}.png")
    assert load_unlabelled(str(tmp_path), {}).x[:, 0, 0, 0].tolist() == [0, 40, 80]
    assert load_unlabelled(str(tmp_path / "2.png"), {}).x.shape == (1, 1, 8, 8)


@pytest.mark.parametrize("text", ["", "a,b\n", "1,2\n3\n", "1,2\n3,x\n"])
def test_what_is_no_table_of_numbers_is_told(text: str, tmp_path: Path) -> None:
    from coterie.data.unlabelled import load_unlabelled

    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ct.DataError):
        load_unlabelled(str(tmp_path / "x.csv"), {})


def test_columns_that_the_run_left_out_are_left_out(tmp_path: Path) -> None:
    from coterie.data.unlabelled import load_unlabelled

    (tmp_path / "x.csv").write_text("a,State,b,machine,site\n1,ok,2,press 4,north\n")
    told = {"label": "state", "owner": "machine", "about": "site"}
    assert load_unlabelled(str(tmp_path / "x.csv"), told).x.flatten().tolist() == [1, 2]
