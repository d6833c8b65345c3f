"""Types of hyper-parameters with their bounds, checked wherever a value comes from."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan

Finite = Annotated[float, AllowInfNan(False)]
Positive = Annotated[Finite, Gt(0)]
NonNegative = Annotated[Finite, Ge(0)]
Share = Annotated[Finite, Gt(0), Le(1)]  # of clients, labels, samples: never none
Part = Annotated[Finite, Ge(0), Le(1)]  # a weight between none and all
Decay = Annotated[Finite, Ge(0), Lt(1)]  # momentum, damping
Damping = Annotated[Finite, Ge(0.5), Lt(1)]  # of affinity propagation
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
