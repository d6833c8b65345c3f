"""SGD, Adam, AdamW and clipping: the bits of `torch.optim`, and near them on other engines."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods import METHODS, find
from coterie.methods.refusals import expect_possible
from coterie.tasks.optimiser import SGD, Adam, AdamW, Optimiser
from coterie.tasks.schedule import Schedule
from coterie.tasks.solver import Descent, Solver
from coterie.tasks.train import Train
from coterie.tasks.wire import decode, encode
from tests.tiny import CLASSES, client, clients, compiled, network, stacked

OPTIMISERS: dict[str, tuple[Optimiser, Any]] = {
    "nesterov": (SGD(momentum=0.9, weight_decay=0.01, nesterov=True), torch.optim.SGD),
    "adam": (Adam(), torch.optim.Adam),
    "adam, decay": (Adam(0.8, 0.95, 1e-6, weight_decay=0.1), torch.optim.Adam),
    "adamw": (AdamW(), torch.optim.AdamW),
    "adamw, decay": (AdamW(weight_decay=0.3), torch.optim.AdamW),
}
CLIPS = pytest.mark.parametrize("clip", [0.0, 0.3], ids=["whole", "clipped"])
ALL = pytest.mark.parametrize("name", OPTIMISERS)


def solver(name: str, clip: float = 0.0, **more: Any) -> Solver:
    return Solver(lr=0.02, batch=8, epochs=3, optimiser=OPTIMISERS[name][0], clip=clip, **more)


def plain_loop(how: Solver, cls: Any, train: str = "all") -> Tensor:
    """The same training as anyone would write it."""
    net, who = copy.deepcopy(network()).train(), client(1, 8)
    shape, options = Layout(network()), asdict(how.optimiser)  # type: ignore[call-overload]
    if "beta1" in options:
        options["betas"] = options.pop("beta1"), options.pop("beta2")
    for name, t in net.named_parameters():
        t.requires_grad = train == "all" or name.startswith(train)
    learning = [t for t in net.parameters() if t.requires_grad]
    optimiser = cls(learning, how.lr, **options)
    for i, _ in Descent(how, who, shape.initial, stream(3)).plan(shape):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(who.x[i]), who.y[i]).backward()
        if how.clip:
            nn.utils.clip_grad_norm_(learning, how.clip)
        optimiser.step()
    return shape.row(net)


@CLIPS
@ALL
def test_steps_have_the_bits_of_pytorch(name: str, clip: float) -> None:
    how, shape = solver(name, clip), Layout(network())
    row, steps = Descent(how, client(1, 8), shape.initial, stream(3)).run_single(shape)
    assert steps > 6
    assert torch.equal(row, plain_loop(how, OPTIMISERS[name][1]))


@ALL
def test_steps_on_some_layers_have_the_bits_of_pytorch(name: str) -> None:
    """Frozen layers do not count for the norm, and what does not learn does not decay."""
    how, shape = solver(name, 0.3), Layout(network())
    start = Descent(how, client(1, 8), shape.initial, stream(3), train="head")
    assert torch.equal(start.run_single(shape)[0], plain_loop(how, OPTIMISERS[name][1], "2"))


def asked(fed: Front, task: Train) -> Tensor:
    state = State.shared(fed.layout.initial, len(fed.clients))
    return fed.at(0).ask(fed.clients, task, state).values


@pytest.mark.parametrize(
    ("name", "clip", "train"),
    [*((name, 0.3, "all") for name in OPTIMISERS), ("nesterov", 0, "all"), ("adamw", 0, "head")],
)
def test_engines_are_within_rounding_of_serial(name: str, clip: float, train: str) -> None:
    """Clients take unequal numbers of steps, and each is clipped by its own norm."""
    task, people = Train(solver(name, clip, prox=0.1), train=train), clients(5)
    expected = asked(Front(people, Layout(network()), classes=CLASSES), task)
    for engine in (stacked, compiled):
        found = asked(engine(people, Layout(network()), classes=CLASSES), task)
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4)


def test_a_gradient_that_is_short_enough_stays() -> None:
    how, shape, who = solver("nesterov"), Layout(network()), client(1, 8)
    rows = [
        Descent(replace(how, clip=clip), who, shape.initial, stream(3)).run_single(shape)[0]
        for clip in (0.0, 1e9)
    ]
    torch.testing.assert_close(*rows)


@ALL
def test_a_recipe_crosses_a_wire(name: str) -> None:
    task = Train(solver(name, 0.5, schedule=Schedule("cosine", warmup=2)))
    assert decode(encode(task)) == task


def test_an_american_may_spell_it() -> None:
    assert Solver(optimizer=Adam()) == Solver(optimiser=Adam())  # type: ignore[call-arg]


GIVEN: dict[str, Solver] = {
    "optimiser": Solver(optimiser=Adam()),
    "nesterov": Solver(optimiser=SGD(momentum=0.5, nesterov=True)),
    "clip": Solver(clip=1.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_what_it_says_and_nothing_else(name: str) -> None:
    cls: Any = find(name)
    refuses = getattr(cls, "refuses", {})
    assert set(refuses) <= {*GIVEN, "server", "merge"}
    assert all(refuses.values())  # there is a reason
    for setting, how in GIVEN.items():
        if setting not in refuses:
            expect_possible(cls(solver=how))
            continue
        with pytest.raises(ConfigError, match=setting) as caught:
            expect_possible(cls(solver=how))
        assert caught.value.code == "C048"
        assert refuses[setting] in caught.value.why
