"""The table of networks, without torch: what can be listed and checked before anything is built.

A new network is a function of `shape` and `classes` under `networks/`, and a row of `MODELS` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coterie.core.errors import ConfigError
from coterie.core.suggest import similar


class Objection(NamedTuple):
    """Something asked of a network that it cannot give."""

    code: str
    setting: str  # shape, norm, or the name of an option
    value: Any
    what: str  # the whole sentence
    reason: str  # the same where the setting and its value are shown beside it
    fix: str


@dataclass(frozen=True)
class Model:
    """One network: where it is built, what it is, and which inputs it can take."""

    name: str
    summary: str  # its layers, first to last
    used_by: str
    input: tuple[int, ...]  # one sample there: (C, H, W)
    parameters: int  # trainable ones, for that input and `classes`
    classes: int = 10  # how many there are
    least: int = 0  # the smallest side of an image; 0: any input, flattened
    norms: tuple[str, ...] = ()  # its normalisation, the default first; empty: it has none
    options: tuple[str, ...] = ()  # further keywords of its builder
    module: str = "plain"  # of `networks`, where its builder is

    @property
    def builder(self) -> str:
        """The function that builds it, "module:function", imported only for that.

        >>> MODELS["cnn5-wide"].builder
        'coterie.models.networks.plain:cnn5_wide'
        """
        return f"coterie.models.networks.{self.module}:{self.name.replace('-', '_')}"

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether one sample of this shape can go in.

        >>> MODELS["lenet5"].fits((1, 28, 28)), MODELS["lenet5"].fits((1, 8, 8))
        (True, False)
        """
        return not self.least or (len(shape) == 3 and min(shape[1:]) >= self.least)

    def objections(
        self,
        *,
        shape: Sequence[int] | None = None,
        norm: str | None = None,
        options: Mapping[str, Any] | None = None,
        whose: str = "a sample",
    ) -> Iterator[Objection]:
        """All that it cannot give of what is asked; `whose` samples have the shape.

        >>> [found.what for found in MODELS["resnet9"].objections(norm="layer")]
        ["resnet9 has no 'layer' normalisation"]
        """
        if shape is not None and not self.fits(shape):
            least = f"{self.least}x{self.least}"
            whole, side = ("x".join(map(str, sizes)) for sizes in (shape, shape[1:] or shape))
            yield Objection(
                "C030",
                "shape",
                tuple(shape),
                f"{self.name} cannot take samples of shape {whole}: it needs images "
                f"(channels x height x width) of at least {least} pixels",
                f"needs images of {least}, {whose} has {side}",
                f"models that fit: {', '.join(m.name for m in MODELS.values() if m.fits(shape))}",
            )
        if norm is not None and norm not in self.norms:
            yield Objection(
                "C034",
                "norm",
                norm,
                f"{self.name} has no {norm!r} normalisation",
                f"{self.name} has no such normalisation",
                f"use {' or '.join(self.norms)}" if self.norms else "leave it out",
            )
        for key, value in (options or {}).items():
            if key not in self.options:
                yield Objection(
                    "C034",
                    key,
                    value,
                    f"{self.name} has no option {key!r}",
                    f"{self.name} has no such option",
                    f"its options: {', '.join(self.options) or 'none'}",
                )


_FASHION, _CIFAR, _DIGITS = (1, 28, 28), (3, 32, 32), (1, 8, 8)

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            "mclr",
            "multinomial logistic regression: FC 784-10",
            "FedDSMIC, MNIST",
            _FASHION,
            7_850,
        ),
        Model(
            "dnn2",
            "FC 784-200-10",
            "CFLGT, Fashion-MNIST",
            _FASHION,
            159_010,
            options=("hidden", "dropout"),
        ),
        Model(
            "mlp",
            "FC 784-512-256-10",
            "DA-PFL, FEMNIST",
            _FASHION,
            535_818,
            options=("hidden", "dropout"),
        ),
        Model(
            "cnn-s",
            "two padded 3x3 convolutions 1-16-32, FC 128-10",
            "the demo, digits",
            _DIGITS,
            6_090,
            least=4,
        ),
        Model(
            "cnn-m",
            "two 5x5 convolutions 1-20-50, FC 800-10",
            "AutoCFL, MNIST",
            _FASHION,
            33_580,
            least=16,
        ),
        Model(
            "cnn-c",
            "two 5x5 convolutions 3-6-16, FC 400-10",
            "AutoCFL, CIFAR-10",
            _CIFAR,
            6_882,
            least=16,
        ),
        Model(
            "cnn-f",
            "two 5x5 convolutions 1-16-32, FC 512-10",
            "AutoCFL, Fashion-MNIST",
            _FASHION,
            18_378,
            least=16,
        ),
        Model(
            "lenet5",
            "two 5x5 convolutions 3-6-16, FC 400-120-84-10",
            "CFLGT, CIFAR-10 and SVHN; FedClust, CIFAR-10, Fashion-MNIST and SVHN",
            _CIFAR,
            62_006,
            least=16,
            options=("dropout",),
        ),
        Model(
            "cnn5",
            "two 5x5 convolutions 3-64-64, FC 1600-120-64-10",
            "DA-PFL, CIFAR-10",
            _CIFAR,
            307_842,
            least=16,
            options=("dropout",),
        ),
        Model(
            "cnn5-wide",
            "two 5x5 convolutions 3-64-128, FC 3200-256-128-20",
            "DA-PFL, the first 20 classes of CIFAR-100",
            _CIFAR,
            1_064_724,
            classes=20,
            least=16,
            options=("dropout",),
        ),
        Model(
            "leaf-cnn",
            "two padded 5x5 convolutions 1-32-64, FC 3136-2048-62",
            "FedDSMIC, EMNIST and FEMNIST",
            _FASHION,
            6_603_710,
            classes=62,
            least=4,
            options=("dropout",),
        ),
        Model(
            "mobilenet-v2",
            "17 inverted residuals, strides for 32x32 images, FC 1280-10",
            "FedDSMIC, CIFAR-10 and CIFAR-100",
            _CIFAR,
            2_236_682,
            least=16,
            norms=("batch", "group"),
            module="mobilenet",
        ),
        Model(
            "resnet9",
            "eight 3x3 convolutions in four stages 64-128-256-512, FC 512-100",
            "FedClust, CIFAR-100",
            _CIFAR,
            6_621_540,
            classes=100,
            least=16,
            norms=("group", "batch"),
            module="resnet",
        ),
        Model(
            "alexnet",
            "five 3x3 convolutions 3-64-192-384-256-256, FC 1024-4096-4096-10",
            "CFLGT, what the clustering costs",
            _CIFAR,
            23_272_266,
            least=16,
            options=("dropout",),
            module="deep",
        ),
        Model(
            "vgg16",
            "thirteen 3x3 convolutions in five stages 64-128-256-512-512, FC 512-512-512-10",
            "FedClust, which layers tell the clients apart",
            _CIFAR,
            15_245_130,
            least=32,
            options=("dropout",),
            module="deep",
        ),
    )
}


AUTO = "auto"  # a network that suits the data, where none is named
LARGE = 64  # pixels of a side, from which hidden layers behind the convolutions become too wide


def suited(shape: Sequence[int]) -> str:
    """The name of a small network for samples of this shape: images get convolutions.

    >>> suited((3, 54, 49)), suited((3, 224, 224)), suited((1, 8, 8)), suited((30,))
    ('lenet5', 'cnn-c', 'mlp', 'mlp')
    """
    if not MODELS["lenet5"].fits(shape):
        return "mlp"
    return "lenet5" if max(shape[1:]) <= LARGE else "cnn-c"


def find(name: str) -> Model:
    """The row of a network's name; `ConfigError` C033 if there is none.

    >>> find("lenet5").parameters
    62006
    """
    if name in MODELS:
        return MODELS[name]
    raise ConfigError(
        f"unknown model {name!r}",
        code="C033",
        why=similar(name.lower(), MODELS),
        fix=f'use one of {", ".join(MODELS)}, or your own factory as "package.module:function"',
    )


def check(
    name: str,
    shape: Sequence[int] | None = None,
    norm: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Model:
    """The row of a network's name, if it can be built like this (shape None: not known yet).

    `ConfigError` C033 for an unknown name, C030 for an input that does not fit, C034 for a
    normalisation or option the network does not have.
    """
    model = find(name)
    for found in model.objections(shape=shape, norm=norm, options=options):
        where = f'model "{name}"'
        raise ConfigError(found.what, code=found.code, where=where, fix=found.fix)
    return model
