"""Hyper-parameters: their types with bounds, and the dataclasses that check what they are given."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AllowInfNan, ConfigDict, ValidationError

from coterie.core.errors import Fault, FieldError
from coterie.core.suggest import similar

SPELLINGS = {"optimizer": "optimiser"}  # understood where a field has the other name

if TYPE_CHECKING:
    from pydantic.dataclasses import dataclass as dataclass
else:
    from pydantic import dataclasses

    # Left to itself pydantic ignores a name that it does not know, and the experiment is another.
    # Built when first used: most of them are not, in any one run.
    CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    def dataclass(cls=None, **how):
        """A dataclass that checks the types and bounds of its fields, and refuses in words."""

        def made(cls):
            checked = dataclasses.dataclass(cls, config=CONFIG, **how)
            init = checked.__init__

            @wraps(init)
            def speaking(self, *values, **named):
                for theirs, ours in SPELLINGS.items():
                    if theirs in named and ours in checked.__dataclass_fields__:
                        named[ours] = named.pop(theirs)
                try:
                    init(self, *values, **named)
                except ValidationError as cause:
                    raise refused(type(self), cause) from None
                finally:
                    if checked.__init__ is not speaking:  # built just now: pydantic's own is back
                        checked.__init__ = speaking

            checked.__init__ = speaking
            return checked

        return made if cls is None else made(cls)


def refused(cls: type[Any], cause: ValidationError) -> FieldError:
    """What a class says about values that it cannot have: all of them at once, in words."""
    known = fields(cls)
    faults = []
    for e in cause.errors():
        said = e["msg"].removeprefix("Value error, ")
        reason = "no such field" if "unexpected" in e["type"] else said[:1].lower() + said[1:]
        place, *inner = e["loc"]
        if isinstance(place, int) and place < len(known):  # given without its name
            place = known[place].name
        faults.append(Fault(".".join(map(str, (place, *inner))), e["input"], reason))
    strange = [fault.field for fault in faults if fault.reason == "no such field"]
    near = similar(strange[0], [f.name for f in known], "field") if strange else ""
    defaults = ", ".join(
        f.name if f.default is MISSING else f"{f.name}={f.default!r}" for f in known if f.init
    )
    return FieldError(
        f"{cls.__name__} cannot have {'these fields' if len(faults) > 1 else 'this field'}",
        faults,
        fix=f"{near}\n" * bool(near) + f"its fields and their defaults: {defaults or 'none'}",
    )


Finite = Annotated[float, AllowInfNan(False)]
Positive = Annotated[Finite, Gt(0)]
NonNegative = Annotated[Finite, Ge(0)]
Share = Annotated[Finite, Gt(0), Le(1)]  # of clients, labels, samples: never none
Part = Annotated[Finite, Ge(0), Le(1)]  # a weight between none and all
Chance = Annotated[Finite, Gt(0), Lt(1)]  # that something fails
Decay = Annotated[Finite, Ge(0), Lt(1)]  # momentum, damping
Minority = Annotated[Finite, Gt(0), Lt(0.5)]  # of clients, whom the others outnumber
Damping = Annotated[Finite, Ge(0.5), Lt(1)]  # of affinity propagation
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Cores = Annotated[int, Ge(1), Le(1024)]  # threads: more than any machine has is a slip
Processes = Annotated[int, Ge(0), Le(1024)]  # workers; 0: as many as there are cores
