"""What compiled code computes with, while it is written: numbers, vectors, what changes, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function

INT, SMALL, REAL, BIT = ir.IntType(64), ir.IntType(32), ir.FloatType(), ir.IntType(1)


class Value:
    """A number, or a vector of numbers, of the compiled code."""

    def __init__(self, f: Function, raw: Any) -> None:
        self.f, self.raw = f, raw

    @property
    def whole(self) -> bool:
        """Whether it is an integer, or a vector of them."""
        kind = getattr(self.raw.type, "element", self.raw.type)
        return isinstance(kind, ir.IntType)

    def _with(self, other: Value | float, whole: str, real: str, swap: bool = False) -> Value:
        pair = [self.raw, self.f.like(self, other)]
        if swap:
            pair.reverse()
        how = {"flags": ["nsw"]} if self.whole and whole in ("add", "sub", "mul") else {}
        return Value(self.f, getattr(self.f.build, whole if self.whole else real)(*pair, **how))

    def __add__(self, other: Value | float) -> Value:
        return self._with(other, "add", "fadd")

    __radd__ = __add__

    def __sub__(self, other: Value | float) -> Value:
        return self._with(other, "sub", "fsub")

    def __rsub__(self, other: Value | float) -> Value:
        return self._with(other, "sub", "fsub", swap=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._with(other, "mul", "fmul")

    __rmul__ = __mul__

    def __truediv__(self, other: Value | float) -> Value:
        return self._with(other, "sdiv", "fdiv")

    def __rtruediv__(self, other: Value | float) -> Value:
        return self._with(other, "sdiv", "fdiv", swap=True)

    def __and__(self, other: Value) -> Value:
        return Value(self.f, self.f.build.and_(self.raw, other.raw))

    def __or__(self, other: Value) -> Value:
        return Value(self.f, self.f.build.or_(self.raw, other.raw))

    def compare(self, sign: str, other: Value | float, *, unordered: bool = False) -> Value:
        """Lane by lane; `unordered`: also true where either is no number."""
        build, right = self.f.build, self.f.like(self, other)
        if self.whole:
            return Value(self.f, build.icmp_signed(sign, self.raw, right))
        how = build.fcmp_unordered if unordered else build.fcmp_ordered
        return Value(self.f, how(sign, self.raw, right))

    def __gt__(self, other: Value | float) -> Value:
        return self.compare(">", other)

    def __lt__(self, other: Value | float) -> Value:
        return self.compare("<", other)

    def where(self, yes: Value, no: Value) -> Value:
        """Of a comparison, lane by lane: one or the other."""
        return Value(self.f, self.f.build.select(self.raw, yes.raw, no.raw))

    def held(self) -> Value:
        """The same value, as one that LLVM takes to be in a register.

        Else, where zeros replace some lanes of what was just read, it writes only those: some
        processors take ten times as long for that as for a whole vector.
        """
        same = ir.FunctionType(self.raw.type, [self.raw.type])
        return Value(self.f, self.f.build.asm(same, "", "=x,0", [self.raw], False))

    def spread(self) -> Value:
        """One number in every lane."""
        lanes = self.f.lanes
        empty = ir.Constant(ir.VectorType(self.raw.type, lanes), ir.Undefined)
        first = self.f.build.insert_element(empty, self.raw, ir.Constant(SMALL, 0))
        same = ir.Constant(ir.VectorType(SMALL, lanes), [0] * lanes)
        return Value(self.f, self.f.build.shuffle_vector(first, empty, same))

    def first(self, lanes: int) -> Value:
        """The first lanes of a vector; the others are zero."""
        every = self.f.lanes
        return self.shuffled(self.f.zero, [i if i < lanes else every for i in range(every)])

    def shuffled(self, other: Value, lanes: Sequence[int]) -> Value:
        """A vector of lanes of this one (from 0) and of the other (those follow)."""
        order = ir.Constant(ir.VectorType(SMALL, len(lanes)), list(lanes))
        return Value(self.f, self.f.build.shuffle_vector(self.raw, other.raw, order))

    def __getitem__(self, lane: int) -> Value:
        return Value(self.f, self.f.build.extract_element(self.raw, ir.Constant(SMALL, lane)))

    def shifted_left(self, bits: int) -> Value:
        """An integer times 2**bits."""
        return Value(self.f, self.f.build.shl(self.raw, self.f.like(self, bits)))

    def as_kind(self, kind: Any) -> Value:
        """The same bits as another type."""
        return Value(self.f, self.f.build.bitcast(self.raw, kind))

    def real(self) -> Value:
        """An integer as a real number."""
        return Value(self.f, self.f.build.sitofp(self.raw, REAL))

    def narrow(self) -> Value:
        """An integer in 32 bits."""
        return Value(self.f, self.f.build.trunc(self.raw, SMALL))

    def wide(self) -> Value:
        """An integer, or what a comparison gave (0 or 1), in 64 bits."""
        how = self.f.build.zext if self.raw.type == BIT else self.f.build.sext
        return Value(self.f, how(self.raw, INT))


class Variable:
    """A value that changes: in a register, as long as there are enough of them."""

    def __init__(self, f: Function, first: Value) -> None:
        self.f, self.kind = f, first.raw.type
        with f.build.goto_entry_block():
            self.place = f.build.alloca(self.kind)
        self.set(first)

    def set(self, value: Value) -> None:
        """Change it."""
        self.f.build.store(value.raw, self.place)

    @property
    def now(self) -> Value:
        """What it is."""
        return Value(self.f, self.f.build.load(self.place, typ=self.kind))

    def add_product(self, a: Value, b: Value) -> None:
        """Add a b, rounded once."""
        self.set(self.f.fma(a, b, self.now))


class Array:
    """Numbers one after another in memory.

    A vector may be read beyond the last number, where every buffer has some room: what it finds
    there is never used, for it is written back to its own lanes alone.
    """

    def __init__(self, f: Function, raw: Any, kind: Any) -> None:
        self.f, self.raw, self.kind = f, raw, kind

    def start(self, at: Value | int) -> Array:
        """The numbers from here on."""
        place = self.f.build.gep(self.raw, [self.f.whole(at)], source_etype=self.kind)
        return Array(self.f, place, self.kind)

    def __getitem__(self, at: Value | int) -> Value:
        size = 4 if self.kind in (REAL, SMALL) else 8
        raw = self.start(at).raw
        return Value(self.f, self.f.build.load(raw, typ=self.kind, align=size))

    def __setitem__(self, at: Value | int, value: Value) -> None:
        size = 4 if self.kind in (REAL, SMALL) else 8
        self.f.build.store(value.raw, self.start(at).raw, align=size)

    def vector(self, at: Value | int, lanes: int = 0) -> Value:
        """Numbers from here on; if fewer than a vector are said, no other memory is touched."""
        every = self.f.lanes
        lanes = lanes or every
        kind = ir.VectorType(self.kind, lanes)
        raw = self.f.build.load(self.start(at).raw, typ=kind, align=4)
        if lanes == every:
            return Value(self.f, raw)
        nothing = Value(self.f, ir.Constant(kind, [0.0] * lanes))
        wide = [i if i < lanes else lanes for i in range(every)]
        return Value(self.f, raw).shuffled(nothing, wide)

    def fetch(self, at: Value | int) -> None:
        """Have memory bring what is there, meanwhile: it will be read soon."""
        self.f.fetch(self.start(at).raw)

    def put(self, at: Value | int, value: Value, lanes: int = 0) -> None:
        """Write a vector, or its first lanes and nothing beside them."""
        if 0 < lanes < value.raw.type.count:
            value = value.shuffled(value, range(lanes))
        self.f.build.store(value.raw, self.start(at).raw, align=4)
