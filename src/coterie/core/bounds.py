"""Hyper-parameters: their types with bounds, and the dataclasses that check what they are given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan, ConfigDict

if TYPE_CHECKING:
    from pydantic.dataclasses import dataclass as dataclass
else:
    from pydantic import dataclasses

    # Left to itself pydantic ignores a name that it does not know, and the experiment is another.
    # Built when first used: most of them are not, in any one run.
    dataclass = partial(
        dataclasses.dataclass,
        config=ConfigDict(extra="forbid", arbitrary_types_allowed=True, defer_build=True),
    )

Finite = Annotated[float, AllowInfNan(False)]
Positive = Annotated[Finite, Gt(0)]
NonNegative = Annotated[Finite, Ge(0)]
Share = Annotated[Finite, Gt(0), Le(1)]  # of clients, labels, samples: never none
Part = Annotated[Finite, Ge(0), Le(1)]  # a weight between none and all
Decay = Annotated[Finite, Ge(0), Lt(1)]  # momentum, damping
Damping = Annotated[Finite, Ge(0.5), Lt(1)]  # of affinity propagation
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
