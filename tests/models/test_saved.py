"""A model's file: everything needed to use it is in it, and it runs no code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from coterie.core.errors import CheckpointError, ConfigError, DataError
from coterie.core.layout import Layout
from coterie.models.factory import importable
from coterie.models.loading import load_model
from coterie.models.saved import KEY, read_model, save_model
from coterie.models.spec import ModelSpec
from coterie.models.zoo import MODELS
from coterie.studies.run.training import build_layout

SCALING = {"how": "standard", "peak": 16.0, "mean": [[[0.3]]], "std": [[[0.4]]]}
SHAPE, CLASSES = (1, 8, 8), ("cat", "dog", "owl")


class Twisted(nn.Module):
    """No straight line: only code can build it."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x.flatten(1)).relu() + 1)


def twisted(width: int = 5) -> Twisted:
    return Twisted(width)


def saved(model: Any, to: Path, **options: Any) -> tuple[Path, Layout, Tensor]:
    """A file with a model that is not the initial one."""
    layout = build_layout(model, SHAPE, 3, options=options)
    row = layout.fresh(torch.Generator().manual_seed(1))
    spec = ModelSpec.of(layout, SHAPE, CLASSES, SCALING)
    return save_model(to / "m.safetensors", layout, row, spec, {"client": "berlin"}), layout, row


def stored(n: int = 6) -> Tensor:
    return torch.randint(0, 17, (n, *SHAPE), generator=torch.Generator().manual_seed(2)).byte()


def scaled(x: Tensor) -> Tensor:
    return (x.float() / 16 - 0.3) / 0.4


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.fits(SHAPE)])
def test_a_network_of_the_zoo_comes_back_with_its_numbers(name: str, tmp_path: Path) -> None:
    path, layout, row = saved(name, tmp_path)
    model = load_model(path)
    torch.testing.assert_close(model(stored()), layout.predict(row, scaled(stored())))
    assert model.about == {"client": "berlin"}
    assert (model.spec.network, model.classes) == (name, CLASSES)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_networks_that_are_no_straight_line_come_back(norm: str, tmp_path: Path) -> None:
    shape = (3, 16, 16)
    layout = build_layout("resnet9", shape, 3, options={"norm": norm})
    spec = ModelSpec.of(layout, shape, CLASSES)
    path = save_model(tmp_path / "m.safetensors", layout, layout.initial, spec)
    x = torch.rand(2, *shape)
    torch.testing.assert_close(load_model(path)(x), layout.predict(layout.initial, x))


def test_a_line_of_layers_given_in_python_needs_no_code(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.Tanh())
    net.extend([nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3, bias=False)])
    net[0].weight.requires_grad_(False)  # the row holds it behind what learns
    path, layout, row = saved(net, tmp_path)
    model = load_model(path)
    assert model.spec.network == ""
    torch.testing.assert_close(model(stored()), layout.predict(row, scaled(stored())))
    again = Layout(model.spec.module())
    assert again.slices == layout.slices


@pytest.mark.row(27, counts="hostile files and names")
def test_a_factory_is_imported_only_where_code_is_allowed(tmp_path: Path) -> None:
    path, layout, row = saved(twisted, tmp_path, width=7)
    with pytest.raises(ConfigError, match="not coterie's") as error:
        load_model(path)
    assert error.value.code == "C036"
    for how in ({"allow_code": True}, {"model": twisted}, {"model": Twisted(7)}):
        torch.testing.assert_close(
            load_model(path, **how)(stored()), layout.predict(row, scaled(stored()))
        )


def test_a_network_without_a_name_is_given_again(tmp_path: Path) -> None:
    path, layout, row = saved(Twisted(4), tmp_path)
    with pytest.raises(ConfigError, match="has no name") as error:
        load_model(path)
    assert "load_model(file, model=net)" in error.value.fix
    torch.testing.assert_close(
        load_model(path, model=Twisted(4))(stored()), layout.predict(row, scaled(stored()))
    )
    with pytest.raises(CheckpointError) as other:
        load_model(path, model=Twisted(5))
    assert other.value.code == "K014"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (twisted, f"{__name__}:twisted"),
        (Twisted, f"{__name__}:Twisted"),
        (lambda: Twisted(), ""),
        (Twisted().forward, ""),  # a method of one object
        ("cnn-s", "cnn-s"),
    ],
)
def test_only_what_is_found_again_has_a_name(model: Callable[..., nn.Module], name: str) -> None:
    assert importable(model) == name


@pytest.mark.row(26, counts="hostile pickles")
def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "other.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\x00" * 30)
    for name in ("other", "broken", "absent"):
        with pytest.raises(CheckpointError) as error:
            load_model(tmp_path / f"{name}.safetensors")
        assert error.value.code == "K014"


@pytest.mark.row(26, 27, counts="hostile pickles")
def test_a_file_cannot_name_what_is_built_nor_how_much(tmp_path: Path) -> None:
    path, _, _ = saved(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), tmp_path)
    tensors, card = read_model(path)
    for layer in (("0", "modules.module.os.system", {}), ("0", "Parameter", {"data": 1})):
        save_file(tensors, path, {KEY: json.dumps({**card, "layers": [layer]})})
        with pytest.raises(CheckpointError):
            load_model(path)
    huge = ("0", "Linear", {"in_features": 10**9, "out_features": 10**9})
    save_file(tensors, path, {KEY: json.dumps({**card, "layers": [huge]})})
    with pytest.raises(CheckpointError):  # without the 4 EB
        load_model(path)


WITHOUT = """
import sys
sys.modules["coterie"] = None  # importing it raises

import json, torch
from collections import OrderedDict
from safetensors import safe_open

with safe_open(sys.argv[1], "pt") as file:
    card = json.loads(file.metadata()["coterie"])
    weights = {name: file.get_tensor(name) for name in file.keys()}
line = ((name, getattr(torch.nn, kind)(**options)) for name, kind, options in card["layers"])
net = torch.nn.Sequential(OrderedDict(line)).eval()
net.load_state_dict(weights)
scaling = {k: torch.tensor(card["scaling"][k]) for k in ("peak", "mean", "std")}
x = torch.load(sys.argv[2]).float()
logits = net((x / scaling["peak"] - scaling["mean"]) / scaling["std"])
torch.save(logits, sys.argv[3])
"""


def test_a_script_without_coterie_predicts_the_same(tmp_path: Path) -> None:
    path, layout, row = saved("cnn-s", tmp_path)
    torch.save(stored(), tmp_path / "x.pt")
    script = [sys.executable, "-c", WITHOUT, path, tmp_path / "x.pt", tmp_path / "y.pt"]
    subprocess.run(script, check=True)
    expected = layout.predict(row, scaled(stored()))
    torch.testing.assert_close(torch.load(tmp_path / "y.pt"), expected, atol=1e-5, rtol=0)


def test_samples_that_a_model_cannot_judge_are_refused(tmp_path: Path) -> None:
    model = load_model(saved("mclr", tmp_path)[0])
    x = stored(3)
    assert model.predict(x.numpy()) == model.predict(x)
    with pytest.raises(DataError, match=r"samples of shape \(1, 8, 8\)"):
        model.predict(x[0])
    with pytest.raises(DataError, match="not finite"):
        model.predict(x.float().fill_(torch.nan))
