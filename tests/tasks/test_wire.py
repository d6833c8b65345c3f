"""Tasks as text: what is made from a message, and what never is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from coterie.core.bounds import dataclass
from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.types import Reply, Task
from coterie.tasks import signature
from coterie.tasks.score import Held, Score
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from coterie.tasks.wire import decode, encode


@dataclass(frozen=True)
class Losses(Task):
    """A task of one's own that has the name of one of ours."""

    scale: float = 2.0

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        return Reply(torch.tensor(self.scale))


@pytest.mark.parametrize(
    "task",
    [
        Train(Solver(lr=0.5), upload="head", report=("loss", "steps")),
        Held(Score(Solver(steps=2), train="head")),
        Losses(3.0),
        signature.Losses(heads=True),
    ],
)
def test_a_task_arrives_as_it_was_sent(task: Task) -> None:
    arrived = decode(encode(task))
    assert arrived == task
    assert type(arrived) is type(task)
    assert hash(arrived) == hash(task)


def test_a_task_of_ones_own_may_have_the_name_of_one_of_ours() -> None:
    ours, own = decode(encode(signature.Losses())), decode(encode(Losses()))
    assert (type(ours), type(own)) == (signature.Losses, Losses)


def test_a_task_of_a_method_is_found_where_nothing_was_imported_yet() -> None:
    code = (
        "import sys; from coterie.tasks.wire import decode\n"
        "assert 'coterie.methods.ditto' not in sys.modules\n"
        """print(decode('{"class": "coterie.methods.ditto:TrainBoth", "lam": 0.5}').lam)"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "0.5\n", done.stderr


@pytest.mark.parametrize(
    "place",
    [
        "antigravity:Task",  # a module that is there, but not coterie's and not imported
        "coterie.__main__:Task",
        "coterie.nowhere:Task",
        "coterie.tasks.train:Nothing",
        "coterie.core.layout:Layout",  # is there, but cannot be sent
        "os:system",
        "Losses",
        7,
        None,
    ],
)
def test_what_is_not_known_is_refused_and_never_imported(place: object) -> None:
    with pytest.raises(ConfigError, match="does not know the task"):
        decode(json.dumps({"class": place}))
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"lr": 0.1}', '{"class": "coterie.tasks.solver:Solver"}']
)
def test_what_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="does not know the task"):
        decode(text)
