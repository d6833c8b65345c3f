"""Trackers: what they are told, what they write, and that none of them can stop a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

import coterie as ct
from coterie import trackers
from coterie.cli.main import call
from coterie.config import load
from coterie.config.fields import fields
from coterie.core.errors import ConfigError
from coterie.core.events import Event

RUN = ["run", "--model", "mclr", "--clients", "4", "--quiet", "--out", "r"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith(("WANDB", "MLFLOW"))]:
        monkeypatch.delenv(name)


def events(folder: str = "r") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "events.jsonl").read_text().splitlines()]


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard itself reads from its folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder)).Reload()
    return {t: {e.step: e.value for e in log.Scalars(t)} for t in log.Tags()["scalars"]}


class Told:
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        self.said.append(("start", dict(facts), at))

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        self.said.append(("log", at, dict(numbers)))

    def end(self, whole: bool) -> None:
        self.said.append(("end", whole))


class Broken(Told):
    """A tracker that fails at one word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        self.fail("start")

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        self.fail("log")

    def end(self, whole: bool) -> None:
        self.fail("end")

    def fail(self, word: str) -> None:
        self.said.append((word,))
        if word == self.word:
            raise OSError("no such host")


def test_the_experiment_file_knows_every_tracker() -> None:
    (names, _) = get_args(fields("coterie.config.schema", "Output")["trackers"].annotation)
    assert get_args(names) == tuple(trackers.TRACKERS)


def test_tensorboard_reads_the_accuracy_of_every_round() -> None:
    assert call([*RUN, "--rounds", "3", "--track", "tensorboard"]) == 0
    read = scalars(Path("r/tensorboard"))
    rounds = {e["round"]: e for e in events() if e["event"] == "round"}
    for name in ("accuracy", "worst", "bytes_up", "seconds"):
        assert read[name] == pytest.approx({t: e[name] for t, e in rounds.items()})


def test_a_resumed_run_goes_on_in_the_same_log() -> None:
    assert call([*RUN, "--rounds", "2", "output.trackers=['tensorboard']"]) == 0
    assert call(["resume", "r", "--rounds", "4", "--quiet"]) == 0
    assert sorted(scalars(Path("r/tensorboard"))["accuracy"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("word", ["start", "log", "end"])
def test_a_tracker_that_fails_becomes_a_warning_and_the_run_ends_well(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, sound = Broken(word), Told()
    made = {"mlflow": broken, "wandb": sound}
    monkeypatch.setattr(trackers, "find", lambda name: lambda folder: made[name])
    assert call([*RUN, "--rounds", "2", "--track", "mlflow", "--track", "wandb"]) == 0
    (warning,) = (e for e in events() if e["event"] == "warning")
    assert warning["text"] == "mlflow no longer follows: OSError: no such host"
    assert warning["text"] in capsys.readouterr().err
    assert broken.said[-1] == (word,), "it is told nothing after it failed"
    assert [s[0] for s in sound.said] == ["start", "log", "log", "log", "end"]
    assert events()[-1]["event"] in ("done", "warning")
    assert Path("r/summary.json").exists()


def test_the_settings_of_the_experiment_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(trackers, "find", lambda name: lambda folder: told)
    assert call([*RUN, "--rounds", "1", "train.lr=0.25", "--track", "wandb"]) == 0
    kind, facts, at = told.said[0]
    assert (kind, at) == ("start", 0)
    assert facts["train.lr"] == 0.25
    assert facts["clients"] == 4
    assert told.said[-1] == ("end", True)


def test_a_run_that_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(trackers, "find", lambda name: lambda folder: told)

    def stop(event: Event) -> None:
        if event["event"] == "round":
            raise KeyboardInterrupt

    from coterie.studies.run.experiment import execute

    config = load(None, [("model.name", "mclr"), ("output.trackers", ["wandb"])])
    with pytest.raises(KeyboardInterrupt):
        execute(config, "r", stop)
    assert told.said[-1] == ("end", False)


def test_from_python_it_is_a_listener() -> None:
    clients = ct.partition("digits", "iid", clients=3)
    ct.fit(ct.FedAvg(), clients, "mclr", rounds=2, on_event=ct.track("tensorboard", "here"))
    assert sorted(scalars(Path("here/tensorboard"))["accuracy"]) == [0, 1, 2]


def test_where_nobody_listens_a_failure_is_a_python_warning() -> None:
    heard = trackers.Tracking({"mlflow": Broken("log")}, Path("none"), {}, trackers.speak)
    with pytest.warns(UserWarning, match="mlflow no longer follows"):
        heard({"event": "round", "round": 1, "rounds": 2, "accuracy": 0.5})
    heard({"event": "round", "round": 2, "rounds": 2, "accuracy": 0.5})


def test_an_unknown_or_missing_tracker_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="no tracker called 'visdom'"):
        ct.track("visdom", "here")
    assert call([*RUN, "--track", "visdom"]) == 2
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert call([*RUN, "--rounds", "1", "--track", "wandb"]) == 2
    said = capsys.readouterr().err
    assert "error[C045]" in said
    assert "pip install 'coterie[wandb]'" in said
    assert not Path("r").exists()


class Recorder:
    """Stands for a foreign object: remembers every call, and answers with itself."""

    def __init__(self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        self.calls = calls
        self.info = types.SimpleNamespace(run_id="1")
        self.experiment_id = "1"

    def __getattr__(self, name: str) -> Any:
        def heard(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return [] if name == "search_runs" else self

        return heard


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """A module that can be imported and found."""
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_wandb_stays_offline_unless_a_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    fake(monkeypatch, "wandb", init=Recorder(calls).init, Settings=dict)
    assert call([*RUN, "--rounds", "2", "--track", "wandb"]) == 0
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert call(["resume", "r", "--rounds", "3", "--quiet"]) == 0
    (first, again) = (kwargs for name, _, kwargs in calls if name == "init")
    assert (first["mode"], again["mode"]) == ("offline", "online")
    assert first["id"] == again["id"]
    assert first["dir"] == "r"
    logged = [(kwargs["step"], args[0]) for name, args, kwargs in calls if name == "log"]
    want = {e["round"]: e["accuracy"] for e in events() if e["event"] == "round"}
    assert {step: numbers["accuracy"] for step, numbers in logged} == want
    assert [kwargs for name, _, kwargs in calls if name == "finish"] == [{"exit_code": 0}] * 2


def test_mlflow_keeps_to_a_local_store_unless_a_host_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []
    stores: list[str] = []

    def client(tracking_uri: str) -> Recorder:
        stores.append(tracking_uri)
        return Recorder(calls)

    fake(monkeypatch, "mlflow")
    fake(monkeypatch, "mlflow.tracking", MlflowClient=client)
    fake(monkeypatch, "mlflow.entities", Metric=lambda name, value, time, step: (name, step, value))
    assert call([*RUN, "--rounds", "2", "--track", "mlflow"]) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert call(["resume", "r", "--rounds", "3", "--quiet"]) == 0
    assert stores == [f"sqlite:///{tmp_path}/mlflow.db", "http://127.0.0.1:9"]
    batches = [kwargs["metrics"] for name, _, kwargs in calls if name == "log_batch"]
    got = {step: value for batch in batches for name, step, value in batch if name == "accuracy"}
    assert got == {e["round"]: e["accuracy"] for e in events() if e["event"] == "round"}
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


REAL = """
import socket, sys
def refuse(self, address, connect=socket.socket.connect):
    assert isinstance(address, (str, bytes)), f"a connection to {address}"
    return connect(self, address)
socket.socket.connect = refuse
from coterie.cli.main import call
for words in (["run", *sys.argv[2:], "--track", sys.argv[1]], ["resume", "r", "--rounds", "3"]):
    assert call(words) == 0
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own
@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_the_real_one_writes_here_and_connects_nowhere(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    words = [sys.executable, "-c", REAL, name, *RUN[1:], "--rounds", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [e for e in events() if e["event"] == "warning"]
    if name == "wandb":
        assert list(Path("r/wandb").glob("offline-run-*/*.wandb"))
        return
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{Path.cwd()}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("coterie").experiment_id])
    read = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "accuracy")}
    assert read == {e["round"]: e["accuracy"] for e in events() if e["event"] == "round"}
    assert run.info.status == "FINISHED"
