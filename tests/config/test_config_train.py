"""How clients train, as an experiment file says it; and files from before it could say so much."""

from __future__ import annotations

import pytest

from coterie.config import loads, resolved
from coterie.core.errors import CheckpointError
from coterie.studies import experiment
from coterie.studies.experiment import LATER, refuse_changes
from coterie.tasks.optimiser import AdamW
from coterie.tasks.schedule import Schedule


def test_optimiser_and_schedule_are_what_train_says() -> None:
    text = (
        "[train]\noptimizer = 'adamw'\nbeta1 = 0.5\nclip = 2.0\n"
        "schedule = 'step'\nwarmup_rounds = 3\nlr_decay = 0.5\nlr_every = 4"
    )
    solver = experiment.method(loads(text)).solver  # type: ignore[attr-defined]
    assert solver.optimiser == AdamW(beta1=0.5)
    assert (solver.lr, solver.clip) == (0.001, 2.0)  # Adam's usual rate, for none is given
    assert solver.schedule == Schedule("step", warmup=3, decay=0.5, every=4)


@pytest.mark.parametrize("given", ["", "optimiser = 'sgd'", "optimiser = 'adam'"])
def test_rate_and_momentum_of_a_paper_are_for_its_own_optimiser(given: str) -> None:
    text = f"method = 'fedclust'\n[train]\ndefaults = 'paper'\n{given}"
    train, adam = loads(text).train, "adam" in given
    assert (train.lr, train.momentum) == ((0.001, 0.0) if adam else (0.01, 0.5))
    assert train.local_epochs == 10


def test_a_run_from_before_there_were_optimisers_goes_on() -> None:
    config = loads("")
    lines = resolved(config).splitlines()
    older = "\n".join(line for line in lines if line.partition(" = ")[0] not in LATER["train"])
    assert "momentum" in older
    assert "optimiser" not in older
    refuse_changes(older, config, ())
    with pytest.raises(CheckpointError, match="setting differs"):
        refuse_changes(older, loads("[train]\nclip = 1.0"), ())


def test_more_rounds_are_another_experiment_where_the_rate_follows_from_them() -> None:
    now, allowed = loads("[train]\nrounds = 9"), {"train.rounds"}
    refuse_changes(resolved(loads("")), now, allowed)
    with pytest.raises(CheckpointError, match="setting differs") as caught:
        refuse_changes(resolved(loads("")), now, allowed, fixed=allowed)
    assert "--allow-change train.rounds" in caught.value.fix
