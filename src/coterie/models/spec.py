"""What is needed to use a model besides its numbers: its network, classes, shape and scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from torch import nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.models import factory
from coterie.models.layers import Layer, rebuilt, straight_line

UNSCALED: Mapping[str, Any] = {"how": "none", "peak": 1.0, "mean": 0.0, "std": 1.0}
Given = str | nn.Module | Callable[..., nn.Module]


@dataclass(frozen=True)
class ModelSpec:
    """All that a model's numbers do not say: which network they are of, and what goes in and out.

    A sample goes in as `(x / peak - mean) / std`, with the numbers of `scaling`; they are None
    where every client scales by those of its own data. What comes out is a logit for each class.
    """

    shape: tuple[int, ...]  # of one sample
    classes: tuple[str, ...]
    scaling: Mapping[str, Any] = field(default_factory=lambda: dict(UNSCALED))
    network: str = ""  # a name of the zoo, or "package.module:function"; "": it has no name
    options: Mapping[str, Any] = field(default_factory=dict)  # of its builder
    head: str | None = None  # as it was named; None: the last linear layer
    layers: tuple[Layer, ...] | None = None  # where they are a straight line of PyTorch's own
    frozen: tuple[str, ...] = ()  # parameters that do not learn

    @classmethod
    def of(
        cls,
        layout: Layout,
        shape: Sequence[int],
        classes: Sequence[str],
        scaling: Mapping[str, Any] = UNSCALED,
    ) -> Self:
        """What is to be known of the models of a layout."""
        net = layout.module(layout.initial)
        frozen = tuple(name for name, p in net.named_parameters() if not p.requires_grad)
        return cls(
            tuple(shape),
            tuple(classes),
            dict(scaling),
            **layout.built,
            layers=straight_line(net),
            frozen=frozen,
        )

    @property
    def foreign(self) -> bool:
        """Whether only code that is not coterie's can build the network."""
        return self.layers is None and (not self.network or ":" in self.network)

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What `plain` wrote; what a later version adds is passed over."""
        known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain}
        for name in ("shape", "classes", "layers", "frozen"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return cls(**known)

    def module(
        self, model: Given | None = None, *, seed: int = 0, allow_code: bool = False
    ) -> nn.Module:
        """A network of this kind with the initial numbers that follow from `seed`.

        `model` gives again what has no name. A network that is not coterie's is imported only with
        `allow_code`; a straight line of PyTorch's own layers is made without.
        """
        if model is None and self.layers is not None and (not self.network or ":" in self.network):
            net = rebuilt(self.layers)
            for name in self.frozen:
                net.get_parameter(name).requires_grad_(False)
            return net
        if model is None and self.foreign and not (self.network and allow_code):
            raise foreign(self.network) if self.network else nameless()
        return factory.build(
            model or self.network,
            shape=self.shape,
            classes=len(self.classes),
            seed=seed,
            **self.options,
        )


def nameless() -> ConfigError:
    """The error of a network that only the program that trained it has."""
    return ConfigError(
        "the network of this model is not in the file: it was made in Python and has no name",
        code="C036",
        why='a network can be built again if it is one of coterie\'s, a "package.module:function", '
        "or an nn.Sequential of PyTorch's own layers",
        fix="give it again: coterie.open_run(folder, model=net) or coterie.load_model(file, "
        "model=net)",
    )


def foreign(name: str) -> ConfigError:
    """The error of a network that would be imported because a file names it."""
    return ConfigError(
        f"the network {name} is not coterie's",
        code="C036",
        where=f'model "{name}"',
        why="building it runs code of yours, which a file or folder from elsewhere must not choose",
        fix="say so if it is meant: --allow-code, or allow_code=True in Python",
    )
