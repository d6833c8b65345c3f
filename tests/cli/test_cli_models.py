"""Models taken away from a run: used without coterie, they say what they said in it."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.models import loading
from tests.cli.test_cli import call
from tests.studies.test_federation import Server

# Loaders as docs/export.md prints them, in a process that has no coterie.
DOCS = Path(__file__).parents[2] / "docs" / "export.md"
SECTION = DOCS.read_text().partition("## Used without coterie")[2].partition("\n## ")[0]
[FIRST, SECOND] = re.findall(r"^```text\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
LOADERS = dict(zip(("safetensors", "pt2", "onnx"), (FIRST, *SECOND.split("\n\n")), strict=True))
HEAD = """
import sys; sys.modules["coterie"] = None
import json, numpy as np, torch
from collections import OrderedDict
from torch import nn
x = np.load("x.npy")
"""
MORE = {
    "safetensors": "from safetensors import safe_open\nx = torch.tensor(x)\n",
    "pt2": "x = torch.tensor(x)\n",
    "onnx": "import onnxruntime\n",
}
TAIL = """
assert card["classes"][3] == "3" and card["client"] == "2", card
np.save("y.npy", np.asarray(torch.as_tensor(logits).detach()))
"""
SMALL = ["partition.clients=4", "train.rounds=2", "engine.name=serial", "model.name=cnn-s"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, method: str = "fedclust") -> ct.Result:
    words = ("run", *SMALL, "--method", method, *words, "--out", "r", "--no-report", "--quiet")
    assert call([*words]) == 0
    return ct.open_run("r")


def stored_samples(result: ct.Result, i: int) -> str:
    """A client's test samples as they are stored, in a file."""
    digits, index = ct.load("digits"), result.population.partition.test[i]
    np.savez("mine.npz", x=digits.x[index].numpy(), y=digits.y[index].numpy())
    return "mine.npz"


def said(name: str) -> list[dict[str, str]]:
    """The lines of a file of predictions."""
    return list(csv.DictReader(io.StringIO(Path(name).read_text())))


@pytest.mark.parametrize("format", list(LOADERS))
def test_an_export_says_without_coterie_what_the_model_says(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    result = run()
    words = ["export", "r", "--client", "2", "--format", format, "--out", f"m.{format}"]
    assert call(words) == 0
    x = ct.load("digits").x[:37]
    np.save("x.npy", x.numpy())
    script = HEAD + MORE[format] + LOADERS[format].replace("berlin.", "m.") + TAIL
    subprocess.run([sys.executable, "-c", script], check=True)
    with torch.no_grad():
        expected = result.model("2")(result.population.data.scaler(x))
    torch.testing.assert_close(torch.tensor(np.load("y.npy")), expected, atol=1e-5, rtol=0)
    loaded = ct.load_model(f"m.{format}", allow_code=format == "pt2")
    torch.testing.assert_close(loaded(x), expected, atol=1e-5, rtol=0)
    assert loaded.about == {"client": "2", "cluster": result.clusters["2"], "round": 2}


@pytest.mark.parametrize("format", list(LOADERS))
def test_every_export_predicts_what_the_run_predicts(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    data = stored_samples(run(method="fedavg"), 3)
    file, code = f"m.{format}", ["--allow-code"] if format == "pt2" else []
    assert call(["export", "r", "--format", format, "--out", file]) == 0
    assert call(["predict", file, "--data", data, "--out", "p.csv", *code]) == 0
    assert call(["predict", "r", "--cluster", "0", "--data", data, "--out", "q.csv"]) == 0
    mine, theirs = (said(name) for name in ("p.csv", "q.csv"))
    assert [row["prediction"] for row in mine] == [row["prediction"] for row in theirs]
    for k in map(str, range(10)):
        likely = [float(row[f"p({k})"]) for row in mine]
        assert likely == pytest.approx([float(row[f"p({k})"]) for row in theirs], abs=1e-5)


def test_a_program_is_read_only_where_code_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("m.pt2", "w") as file:
        file.writestr("data/x", b"")
    assert call(["predict", "m.pt2", "--data", "digits"]) == 2
    assert "error[C036]: m.pt2 may run code when it is read" in capsys.readouterr().err
    assert call(["predict", "m.pt2", "--data", "digits", "--allow-code"]) == 5
    assert "error[K014]" in capsys.readouterr().err


def test_a_graph_without_its_runtime_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("m.onnx").write_bytes(b"no graph")
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    assert call(["predict", "m.onnx", "--data", "digits"]) == 5
    said = capsys.readouterr().err
    assert "run by onnxruntime, which is not installed" in said
    assert 'pip install "coterie[onnx]"' in said


def test_a_graph_of_another_program_is_refused() -> None:
    pytest.importorskip("onnxruntime")
    Path("m.onnx").write_bytes(b"no graph")
    with pytest.raises(ct.CheckpointError, match="no model that can be used"):
        ct.load_model("m.onnx")


@pytest.mark.parametrize("method", ["fedclust", "ditto", "kin"])
def test_predictions_have_the_accuracy_of_the_records(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(method=method)
    data = stored_samples(result, 3)
    assert call(["predict", "r", "--data", data, "--client", "3", "--out", "p.csv"]) == 0
    assert call(["export", "r", "--client", "3", "--out", "m.safetensors"]) == 0
    assert call(["predict", "m.safetensors", "--data", data, "--out", "q.csv"]) == 0
    rows = said("p.csv")
    right = [row["label"] == row["prediction"] for row in rows]
    assert sum(right) / len(right) == pytest.approx(result.accuracy["3"], abs=1e-9)
    assert sum(float(rows[0][f"p({k})"]) for k in range(10)) == pytest.approx(1, abs=1e-4)
    assert Path("q.csv").read_bytes() == Path("p.csv").read_bytes()


def test_somebody_new_hears_which_cluster_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("partition.kind=rotation:0,180", "fedclust.clusters=2")
    digits = ct.load("digits")
    np.savez("new.npz", x=digits.x[:80].flip(2, 3).numpy(), y=digits.y[:80].numpy())
    turned = result.population.group.tolist().index(1)
    capsys.readouterr()
    assert call(["predict", "r", "--data", "new.npz"]) == 0
    said = capsys.readouterr()
    assert f"given the model of cluster {result.clusters[str(turned)]}, by the rule of" in said.err
    assert "right on these samples: cluster 0" in said.err
    assert len(said.out.splitlines()) == 81


def test_every_client_has_a_file_and_one_must_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    run(method="ditto")
    capsys.readouterr()
    assert call(["export", "r"]) == 2
    assert "--client NAME, --cluster C or --all" in capsys.readouterr().err
    assert call(["export", "r", "--all"]) == 0
    files = sorted(p.name for p in Path("r/export").iterdir())
    assert files == [f"{i}.safetensors" for i in range(4)]
    assert call(["export", "r", "--client", "nobody"]) == 2
    assert "error[C037]" in capsys.readouterr().err
    assert call(["export", "r", "--client", "1", "--out", "m.bin"]) == 2
    assert "error[C057]" in capsys.readouterr().err


def test_the_model_that_all_share_need_not_be_named() -> None:
    run(method="fedavg")
    assert call(["export", "r"]) == 0
    assert ct.load_model("r/export/cluster-0.safetensors").about == {"cluster": 0, "round": 2}


def test_a_federation_is_exported_and_asked(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.run()
    out = str(server.out)
    assert call(["export", out, "--client", "1", "--out", "m.safetensors"]) == 0
    assert call(["predict", "m.safetensors", "--data", "digits", "--out", "p.csv"]) == 0
    assert call(["export", out, "--client", "1", "--out", "m.pt2"]) == 0
    assert call(["predict", "m.pt2", "--data", "digits", "--out", "o.csv", "--allow-code"]) == 0
    both = [[row["prediction"] for row in said(name)] for name in ("p.csv", "o.csv")]
    assert both[0] == both[1]
    assert call(["predict", out, "--data", "digits", "--out", "q.csv"]) == 0
    assert len(Path("q.csv").read_text().splitlines()) == 1798
    with pytest.raises(ct.CheckpointError, match="how its samples are scaled"):
        ct.load_model("m.safetensors")(torch.zeros(1, 1, 8, 8))


def test_samples_of_a_client_that_is_named_need_no_owner(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{int(a > b)},{i % 3}" for i, (a, b) in enumerate(rng.random((60, 2)))]
    Path("all.csv").write_text("\n".join(["a,b,state,who", *rows]))
    own = ["data.label=state", "data.owner=who", "partition.kind=natural", "model.name=mclr"]
    words = ["run", "--data", "all.csv", *own, "--method", "fedavg", "--rounds", "1", "--out", "r"]
    assert call([*words, "-q", "--no-report"]) == 0
    Path("new.csv").write_text("a,b,state\n0.1,0.9,0\n0.9,0.1,1\n")
    capsys.readouterr()
    assert call(["predict", "r", "--data", "new.csv", "--client", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert call(["predict", "r", "--data", "new.csv"]) != 0  # whose newcomer is it?
    assert "no column 'who'" in capsys.readouterr().err
    assert call(["predict", "r", "--data", "all.csv", "--client", "2", "--no-labels"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 61
