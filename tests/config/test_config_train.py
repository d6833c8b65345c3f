"""How clients train, as an experiment file says it; and files from before it could say so much."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.config import loads, resolved
from coterie.core.errors import CheckpointError
from coterie.studies.run import experiment
from coterie.studies.run.started import LATER, refuse_changes, started_with
from coterie.tasks.optimiser import AdamW
from coterie.tasks.schedule import Schedule
from coterie.words.server import ServerOptimiser


def test_optimiser_and_schedule_are_what_train_says() -> None:
    text = (
        "[train]\noptimizer = 'adamw'\nbeta1 = 0.5\nclip = 2.0\n"
        "schedule = 'step'\nwarmup_rounds = 3\nlr_decay = 0.5\nlr_every = 4"
    )
    solver = experiment.method(loads(text)).solver  # type: ignore[attr-defined]
    assert solver.optimiser == AdamW(beta1=0.5)
    assert (solver.lr, solver.clip) == (0.001, 2.0)  # Adam's usual rate, for none is given
    assert solver.schedule == Schedule("step", warmup=3, decay=0.5, every=4)


@pytest.mark.parametrize("name", ["optimiser", "optimizer"])
def test_the_server_is_what_its_table_says(name: str) -> None:
    text = f"method = 'ifca'\n[server]\n{name} = 'yogi'\nlr = 0.5\ntau = 0.25"
    method: Any = experiment.method(loads(text))
    assert method.server == ServerOptimiser("yogi", lr=0.5, tau=0.25)
    assert experiment.method(loads("method = 'ifca'")).server.kind == "none"  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", ["", "optimiser = 'sgd'", "optimiser = 'adam'"])
def test_rate_and_momentum_of_a_paper_are_for_its_own_optimiser(given: str) -> None:
    text = f"method = 'fedclust'\n[train]\ndefaults = 'paper'\n{given}"
    train, adam = loads(text).train, "adam" in given
    assert (train.lr, train.momentum) == ((0.001, 0.0) if adam else (0.01, 0.5))
    assert train.local_epochs == 10


def test_a_run_from_before_there_were_optimisers_goes_on() -> None:
    config = loads("")
    lines = resolved(config).splitlines()
    a, b = lines.index("[server]"), lines.index("[evaluate]")
    lines = lines[:a] + lines[b:]
    older = "\n".join(line for line in lines if line.partition(" = ")[0] not in LATER["train"])
    assert "momentum" in older
    assert "optimiser" not in older
    refuse_changes(older, config, ())
    with pytest.raises(CheckpointError, match="setting differs"):
        refuse_changes(older, loads("[train]\nclip = 1.0"), ())
    with pytest.raises(CheckpointError, match="setting differs"):
        refuse_changes(older, loads("[server]\noptimizer = 'adam'"), ())


def test_a_comparison_from_before_there_were_optimisers_goes_on() -> None:
    then = started_with("[experiments.mine.train]\nlr = 0.1")
    assert then["experiments.mine.train.optimiser"] == "sgd"
    assert then["experiments.mine.server.optimiser"] == "none"


def test_more_rounds_are_another_experiment_where_the_rate_follows_from_them() -> None:
    now, allowed = loads("[train]\nrounds = 9"), {"train.rounds"}
    refuse_changes(resolved(loads("")), now, allowed)
    with pytest.raises(CheckpointError, match="setting differs") as caught:
        refuse_changes(resolved(loads("")), now, allowed, fixed=allowed)
    assert "--allow-change train.rounds" in caught.value.fix
