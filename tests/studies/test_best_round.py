"""The round that is taken: by validation data alone, the same after a stop, and its models."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.config.load import load
from coterie.config.problems import ProblemsError
from coterie.core.best_by import Stop
from coterie.core.errors import ConfigError
from coterie.core.loop import evaluate
from coterie.core.types import Evaluation, Federation, State
from coterie.runs import checkpoint
from coterie.runs.history import Row
from coterie.studies.remote.clients import OwnData
from coterie.studies.remote.federation import refuse_best_round, setup
from coterie.tasks.score import Score, Validated

FEW = {"engine": "serial", "seed": 1}
SAID = {"data.validation_share": 0.25, "train.stop.patience": 2}


@dataclass(frozen=True)
class Scripted:
    """A method whose one model says a class to everything, in each round the one it is told."""

    says: tuple[int, ...] = (0, 0, 1)  # after round 1, 2, ...
    score: Score = field(default=Score(), init=False)

    def init(self, fed: Federation) -> State:
        return State.shared(torch.zeros(fed.layout.size), len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        row = torch.zeros(fed.layout.size)
        row[-2:] = torch.eye(2)[self.says[state.round]]  # the biases of the two classes
        return replace(state, models=row[None])

    def place(self, state: State, fed: Federation) -> State:
        return state.give_unplaced()


def planted(n: int = 3) -> ct.Population:
    """Clients that train and choose on class 0 alone and are tested on class 1 alone."""
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    zeros, ones = torch.zeros(8, dtype=torch.long), torch.ones(8, dtype=torch.long)
    return ct.Population.of([(x, zeros, x, ones)] * n, classes=2, validation_share=0.25)


def test_where_the_best_rounds_of_test_and_validation_differ_the_validation_one_is_taken() -> None:
    found = ct.fit(Scripted((1, 0, 1)), planted(), "mclr", rounds=3, stop={"patience": 0})
    tests = found.history.series("accuracy_mean")
    held = found.history.series("accuracy_mean", "validation")
    assert (tests[1], tests[2], tests[3]) == (1, 0, 1)
    assert (held[1], held[2], held[3]) == (0, 1, 0)
    assert found.summary["round"] == found.state.round == 2
    assert found.summary["taken"] == {"round": 2, "of": 3, "metric": "accuracy_mean", "value": 1.0}
    assert found.summary["before"]["accuracy_mean"] == found.accuracy.mean() == 0
    assert found.model(0)(torch.zeros(1, 4)).argmax() == 0


def test_the_choice_reads_no_test_row() -> None:
    """With every test number turned around, the choice is the same one."""
    found = ct.fit(Scripted((1, 0, 1)), planted(), "mclr", rounds=3, stop={"patience": 0})
    from coterie.runs.choosing import taken

    def turned(row: Row) -> Row:
        return row if row.stage == "validation" else row._replace(value=1 - row.value)

    rows = [turned(row) for row in found.history]
    assert taken(Stop(), rows) == taken(Stop(), found.history)
    assert taken(Stop(), [row for row in rows if row.stage != "validation"]) is None


def test_training_ends_when_patience_does_and_of_equals_the_first_is_taken() -> None:
    found = ct.fit(Scripted((1, 0, 0, 0, 0, 0)), planted(), "mclr", rounds=6, stop=Stop(patience=2))
    assert found.summary["taken"]["of"] == 4
    assert found.summary["round"] == 2
    assert max(row.round for row in found.history) == 4


def test_by_loss_less_is_better() -> None:
    found = ct.fit(Scripted((1, 0, 1)), planted(), "mclr", rounds=3, stop={"metric": "loss"})
    assert found.summary["taken"]["metric"] == "loss"
    assert found.summary["round"] == 2


def test_any_metric_that_is_measured_can_choose() -> None:
    clients = ct.partition("digits", "iid", clients=2, validation_share=0.3)
    metrics = ("macro_f1", "calibration_error")
    for metric, best in (("macro_f1_worst", max), ("calibration_error", min)):
        how: dict[str, Any] = {"metrics": metrics, "stop": {"metric": metric}, **FEW}
        found = ct.fit(ct.FedAvg(ct.Solver(lr=0.2)), clients, "mclr", rounds=3, **how)
        name = found.summary["taken"]["metric"]
        held = found.history.series(name, "validation")
        assert found.summary["taken"]["value"] == best(v for t, v in held.items() if t > 0)
        assert name in found.summary["validation"]


def test_a_share_of_none_is_the_very_population_there_was() -> None:
    usual = ct.partition("digits", "rotation", clients=4)
    said = ct.partition("digits", "rotation", clients=4, validation_share=0.0)
    assert usual.key == said.key
    assert usual.recipe == said.recipe
    assert not said.validates


@pytest.mark.parametrize("kind", ["rotation", "dirichlet:0.3", "rotation+quantity"])
def test_validation_samples_are_a_client_s_own_training_samples_and_the_tests_stay(
    kind: str,
) -> None:
    usual = ct.partition("digits", kind, clients=6, seed=2)
    some = ct.partition("digits", kind, clients=6, seed=2, validation_share=0.25)
    assert usual.key != some.key
    for i, client in enumerate(some):
        parts = (some.partition.train[i], some.partition.validation[i])
        assert torch.equal(torch.cat(parts).sort().values, usual.partition.train[i])
        assert torch.equal(client.x_test, usual[i].x_test)
        assert len(client.y_val) == int(0.25 * len(usual[i]) + 0.5) == len(client.x_val)
        assert client.x_val.shape[1:] == client.x.shape[1:]


def test_a_client_with_one_sample_trains_on_it_and_has_no_say() -> None:
    x, y = torch.randn(9, 4), torch.arange(9) % 2
    clients = [(x[:1], y[:1], x, y), (x, y, x, y)]
    people = ct.Population.of(clients, classes=2, validation_share=0.3)
    assert [len(c.y_val) for c in people] == [0, 3]
    assert [len(c) for c in people] == [1, 6]
    found = ct.fit("fedavg", people, "mclr", rounds=1, stop={"patience": 0})
    assert list(found.history.clients(1, stage="validation")) == ["1"]
    assert found.history.whole(1, "validation")["clients"] == 1
    assert found.history.whole(1, "before")["clients"] == 2


@pytest.mark.parametrize("engine", ["pool", "stacked"])
def test_every_engine_measures_it_as_serial_does(engine: str) -> None:
    clients = ct.partition("digits", "rotation", clients=4, validation_share=0.2)
    how: dict[str, Any] = {"rounds": 1, "seed": 1, "workers": 2, "stop": {"patience": 0}}
    method = ct.FedAvgFT(ct.Solver(epochs=1))
    mine, truth = (
        ct.fit(method, clients, "mclr", engine=name, **how) for name in (engine, "serial")
    )
    for round in (0, 1):
        said, meant = (r.history.clients(round, stage="validation") for r in (mine, truth))
        assert said == pytest.approx(meant)
        assert len(said) == 4


def test_measuring_it_changes_nothing_else() -> None:
    """Trained on the same samples, a run has the same models and test rows as one without."""
    some = ct.partition("digits", "iid", clients=3, validation_share=0.25)
    brought = {c.name: ct.Client(c.x, c.y, c.x_test, c.y_test, c.name) for c in some}
    without = ct.Population.of(brought, classes=10)
    one, other = (ct.fit("ditto", p, "mclr", rounds=2, **FEW) for p in (some, without))
    assert torch.equal(one.state.models, other.state.models)
    assert [r for r in one.history if r.stage != "validation"] == list(other.history)


def run(out: Path, rounds: int = 6, **more: Any) -> ct.Result:
    """A method with private memory, whose best round is not its last."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 30, 40, generator=draw), torch.randint(0, 2, (3, 30), generator=draw)
    people = [(x[i], y[i], x[i], y[i]) for i in range(3)]  # labels of which nothing can be learned
    clients = ct.Population.of(people, classes=2, validation_share=0.3)
    method = ct.Ditto(ct.Solver(lr=0.1, epochs=2))
    how: dict[str, Any] = {**FEW, "out": out, "page": False, "keep": 1, **more}
    return ct.fit(method, clients, "mclr", rounds=rounds, stop={"metric": "loss"}, **how)


def bytes_of(folder: Path) -> dict[str, bytes]:
    names = ["metrics.csv", "clusters.csv", "run.toml"]
    files = [folder / n for n in names] + sorted((folder / "checkpoints").rglob("*.safetensors"))
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return {k: v for k, v in found.items() if k != "seconds"}


def test_stopped_anywhere_and_resumed_the_bytes_and_the_round_are_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    best = whole.summary["round"]
    assert 0 < best < 6, "nothing is tested unless another round than the last is taken"
    kept = [int(p.name) for p in checkpoint.rounds(tmp_path / "whole" / "checkpoints")]
    assert kept == [6, best]
    for at in (best - 1, best, best + 1):
        folder = tmp_path / f"stopped-{at}"

        def stop(event: Any, at: int = at) -> None:
            if event["event"] == "round" and event["round"] == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(folder, on_event=stop)
        again = run(folder, resume=True)
        assert torch.equal(again.state.models, whole.state.models)
        assert bytes_of(folder) == bytes_of(tmp_path / "whole")
        assert summary_of(folder) == summary_of(tmp_path / "whole")


def test_what_is_opened_exported_and_used_is_of_the_round_that_was_taken(tmp_path: Path) -> None:
    whole = run(tmp_path / "run")
    opened = ct.open_run(tmp_path / "run")
    assert opened.state.round == whole.summary["round"]
    assert dict(opened.summary) == dict(whole.summary)
    for client in range(3):
        mine, its = (r.model(client).state_dict() for r in (whole, opened))
        assert all(torch.equal(mine[name], its[name]) for name in mine)
    shown = opened.run_data(insight=False)
    assert shown.rounds.tolist() == list(range(7)), "the page shows every round"
    assert shown.final.tolist() == list(opened.accuracy.values.values())


def test_a_run_that_ended_early_stays_ended(tmp_path: Path) -> None:
    how: dict[str, Any] = {"out": tmp_path, "page": False, "stop": Stop(patience=1)}
    method = Scripted((0, 0, 0, 0))
    first = ct.fit(method, planted(), "mclr", rounds=4, **how)
    assert first.summary["taken"]["of"] == 2
    before = (tmp_path / "metrics.csv").read_bytes()
    again = ct.fit(method, planted(), "mclr", rounds=4, resume=True, **how)
    assert again.state.round == 1
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_stop_without_validation_data_is_refused_with_what_to_do() -> None:
    with pytest.raises(ProblemsError) as refused:
        load(None, [("train.stop.patience", 2)])
    assert "data.validation_share=0.2" in str(refused.value)
    clients = ct.partition("digits", "iid", clients=2)
    with pytest.raises(ConfigError, match="no validation data") as error:
        ct.fit("fedavg", clients, "mclr", rounds=1, stop={"patience": 2})
    assert error.value.code == "C061"
    assert "validation_share=0.2" in error.value.fix


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train.stop.metric": "acuracy"}, "not measured"),
        ({"train.stop.metric": "auc"}, "evaluate.metrics"),
        ({"partition.kind": "rotation+drift"}, "no round is best while the clients change"),
        ({"partition.kind": "iid+arrivals"}, "leave out arrivals"),
    ],
)
def test_a_choice_without_meaning_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemsError) as refused:
        load(None, {**SAID, **settings}.items())
    assert said in str(refused.value)


def test_a_federation_refuses_to_take_another_round_than_the_last() -> None:
    with pytest.raises(ConfigError, match="end with the last round") as error:
        refuse_best_round(load(None, SAID.items()))
    assert "data.validation_share alone" in error.value.fix


def test_any_test_that_shows_what_its_models_say_can_be_done_on_validation_samples() -> None:
    """Done twice in general, `Score` does it at once: the same numbers, adaptation included."""
    clients = ct.partition("digits", "iid", clients=2, validation_share=0.3)
    method = ct.FedAvgFT(ct.Solver(lr=0.2))
    result = ct.fit(method, clients, "mclr", rounds=1, **FEW)
    ways = (method.score.validated(), Validated(method.score))
    quick, plain = (evaluate(method, result.state, result.fed, way) for way in ways)
    assert quick.validation is not None
    assert plain.validation is not None
    assert plain.validation.stages == ("validation",)
    assert torch.equal(quick.validation.accuracy, plain.validation.accuracy)
    assert torch.equal(quick.accuracy, plain.accuracy)


def test_a_mixture_is_validated_too() -> None:
    clients = ct.partition("digits", "iid", clients=2, validation_share=0.3)
    found = ct.fit("fedem", clients, "mclr", rounds=1, stop={"patience": 0}, **FEW)
    assert found.history.whole(1, "validation")["clients"] == 2


def test_an_evaluation_of_one_s_own_that_shows_nothing_says_so() -> None:
    class Own(Score):
        validated = Evaluation.validated

    with pytest.raises(ConfigError, match="Own does not say how") as error:
        Own().validated()
    assert error.value.code == "C061"


def test_a_client_of_a_federation_holds_back_samples_as_the_server_says() -> None:
    said = load(None, [("data.validation_share", 0.25), ("train.rounds", 1)])
    usual = load(None, [])
    assert "validation_share" not in setup(usual)["data"], "clients of older versions go on"
    classes = {"classes": [str(i) for i in range(10)]}
    mine, before = (
        OwnData("a", "digits").client({**setup(config), **classes}, 0) for config in (said, usual)
    )
    assert len(mine.y_val) == int(0.25 * len(before) + 0.5)
    assert len(mine) + len(mine.y_val) == len(before)
    assert torch.equal(mine.x_test, before.x_test)
