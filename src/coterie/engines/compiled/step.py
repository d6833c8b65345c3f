"""How weights move: the momentum step, done where a gradient is still in a register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function
    from coterie.engines.compiled.values import Array, Value

STEP = {"move": "array", "velocity": "array", "rate": "real", "momentum": "real", "decay": "real"}
TERMS = {
    "velocity": "array",
    "w": "array",
    "anchor": "array",
    "shift": "array",
    "momentum": "real",
    "decay": "real",
    "prox": "real",
}


class Step(NamedTuple):
    """What a gradient is given to: v <- momentum v + decay w + g; w <- w - rate v."""

    f: Function
    w: Array
    velocity: Array
    rate: Value
    momentum: Value
    decay: Value

    @classmethod
    def of(cls, f: Function, w: Array, velocity: Array, *rates: Value) -> Step:
        """With the rates in every lane."""
        return cls(f, w, velocity, *(rate.spread() for rate in rates))

    def apply(self, at: Value | int, g: Value, lanes: int) -> None:
        """The step of up to a vector of numbers from `at` on, whose gradient is g."""
        w, f = self.w.vector(at), self.f
        v = f.fma(self.momentum, self.velocity.vector(at), f.fma(self.decay, w, g))
        self.velocity.put(at, v, lanes)
        self.w.put(at, w - self.rate * v, lanes)


def terms(f: Function, size: int) -> None:
    """v <- momentum v + decay w + prox (w - anchor) + shift, of a whole row.

    What depends on no sample, ahead of the gradient: the step then has momentum 1 and no decay.
    """
    velocity, w, anchor, shift, *rates = f.arguments
    momentum, decay, prox = (rate.spread() for rate in rates)

    def some(at: Any, lanes: list[int]) -> None:
        v = f.fma(decay, w.vector(at), shift.vector(at))
        v = f.fma(prox, w.vector(at) - anchor.vector(at), v)
        velocity.put(at, f.fma(momentum, velocity.vector(at), v), lanes[0])

    f.in_vectors(size, 1, some)
