"""What somebody with a real federation has in the end: models, names, commands that work."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import coterie as ct
from coterie.runs.reading import RunReader
from tests.engines.flower.machine import Machine, coterie, machine
from tests.engines.flower.test_federation import final

pytestmark = [pytest.mark.federation, pytest.mark.slow]
NAMES = ("berlin", "lyon", "porto")
EXPERIMENT = """
method = "fedclust"
seed = 1
[model]
name = "mclr"
[train]
rounds = 2
local_epochs = 1
[engine]
deadline = 240
quorum = 1.0
connect_timeout = 120
"""


def photos(folder: Path, first: int) -> Path:
    """A folder of pictures, one folder for each class, as a hospital or a shop would have it."""
    digits = load_digits()
    for i in range(first, 360, 3):
        label = folder / f"digit-{digits.target[i]}"
        label.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15).astype(np.uint8)).save(label / f"{i}.png")
    return folder


def join(m: Machine, name: str) -> None:
    certs = ["--certs", f"hospital/clients/{name}", "--state", f"state-{name}"]
    m.start(name, "join", f"localhost:{m.port}", *certs, "--data", f"photos-{name}")


def test_a_federation_with_own_folders_leaves_models_names_and_commands(tmp_path: Path) -> None:
    with machine(tmp_path, method="fedavg", clients=1, rounds=1) as m:
        coterie("certs", tmp_path / "hospital", "--clients", ",".join(NAMES))
        (tmp_path / "my.toml").write_text(EXPERIMENT)
        for i, name in enumerate(NAMES):
            photos(tmp_path / f"photos-{name}", i)
            join(m, name)
        at = ["--certs", "hospital/server", "--port", m.port]
        server = m.start("run", "serve", "my.toml", *at, "--out", "run")
        assert server.wait(1800) == 0, m.said("run")()

        # A client loads its own model, with the lines of docs/federation.md.
        measured = RunReader(tmp_path / "run").history.clients(2)
        for name in NAMES:
            model = ct.load_model(tmp_path / f"state-{name}" / "model.safetensors")
            data = ct.load(str(tmp_path / f"photos-{name}"))
            assert model.about["client"] == name
            assert model.about["round"] == 2
            right = [model.predict(data.x)[i] == data.classes[y] for i, y in enumerate(data.y)]
            assert np.mean(right) > 0.3, "of ten classes"
            assert name in measured
            said = (tmp_path / f"{name}.out").read_text()
            assert "link    connected" in said
            assert re.search(r"task    round 2: .*training", said), said
            assert re.search(r"test    round 2: own accuracy \d", said), said
            assert said.count("model   ") == 2, "when it is first written, and at the end"
            assert "over    the run is done" in said

        # The server's run opens, with nobody's data at hand, and has the model a client has.
        opened = ct.open_run(tmp_path / "run")
        theirs = ct.load_model(tmp_path / "state-lyon" / "model.safetensors").net.state_dict()
        for key, value in opened.model("lyon").state_dict().items():
            assert value.equal(theirs[key])

        page = (tmp_path / "run" / "report.html").read_text()
        assert all(name in page for name in NAMES)

        # What the page prints under "How to do it again" does it again; the clients wait for it.
        (printed,) = re.findall(r"<pre>(cd .*coterie serve .*)\n", page)
        words = html.unescape(printed)
        assert "..." not in words
        again = shlex.split(words.split(" && ", 1)[1])[1:]
        command = [sys.executable, "-m", "coterie", *again]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr
        assert final(tmp_path / "run-again") == final(tmp_path / "run")
        assert (tmp_path / "run-again" / "metrics.csv").read_bytes() == (
            tmp_path / "run" / "metrics.csv"
        ).read_bytes()
        kept = list((tmp_path / "state-lyon").glob("model*.safetensors"))
        assert len(kept) == 2, "the model of the first run is kept beside that of the second"
