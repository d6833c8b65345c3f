"""Loops and vectors in LLVM's language: what kernels are written in.

A kernel is a Python function that writes code instead of running it. `with f.loop(0, n) as i:` is a
loop of the compiled code, `for` one that is written out; `x[i]` is a number that the compiled code
reads, `x.vector(i)` eight of them. Arithmetic is Python's. What changes in a loop is a `Variable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from coterie.engines.compiled.settings import LANES

INT, SMALL, REAL, BIT = ir.IntType(64), ir.IntType(32), ir.FloatType(), ir.IntType(1)
VECTOR, SMALLS = ir.VectorType(REAL, LANES), ir.VectorType(SMALL, LANES)
KINDS = {"int": INT, "real": REAL, "array": REAL, "ints": INT, "smalls": SMALL, "arrays": None}
POINTER = ir.PointerType()
NEAR = 2  # how near memory is fetched: a mini-batch has room in the second cache


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
        same = ir.FunctionType(VECTOR, [VECTOR])
        return Value(self.f, self.f.build.asm(same, "", "=x,0", [self.raw], False))

    def spread(self) -> Value:
        """One number in every lane."""
        lanes = ir.VectorType(self.raw.type, LANES)
        empty = ir.Constant(lanes, ir.Undefined)
        first = self.f.build.insert_element(empty, self.raw, ir.Constant(SMALL, 0))
        same = ir.Constant(SMALLS, [0] * LANES)
        return Value(self.f, self.f.build.shuffle_vector(first, empty, same))

    def first(self, lanes: int) -> Value:
        """The first lanes of a vector; the others are zero."""
        return self.shuffled(self.f.zero, [i if i < lanes else LANES for i in range(LANES)])

    def shuffled(self, other: Value, lanes: Sequence[int]) -> Value:
        """A vector of lanes of this one (from 0) and of the other (from 8)."""
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

    def vector(self, at: Value | int, lanes: int = LANES) -> Value:
        """Numbers from here on, eight unless fewer are said: then no other memory is touched."""
        kind = ir.VectorType(self.kind, lanes)
        raw = self.f.build.load(self.start(at).raw, typ=kind, align=4)
        if lanes == LANES:
            return Value(self.f, raw)
        nothing = Value(self.f, ir.Constant(kind, [0.0] * lanes))
        wide = [i if i < lanes else lanes for i in range(LANES)]
        return Value(self.f, raw).shuffled(nothing, wide)

    def fetch(self, at: Value | int) -> None:
        """Have memory bring what is there, meanwhile: it will be read soon."""
        self.f.fetch(self.start(at).raw)

    def put(self, at: Value | int, value: Value, lanes: int = LANES) -> None:
        """Write the first lanes of a vector, and nothing beside them."""
        if lanes < LANES:
            value = value.shuffled(value, range(lanes))
        self.f.build.store(value.raw, self.start(at).raw, align=4)


class Function:
    """One function of the compiled code, while it is written."""

    def __init__(self, module: ir.Module, name: str, kinds: dict[str, str], public: bool) -> None:
        types = [KINDS[k] if k in ("int", "real") else POINTER for k in kinds.values()]
        self.module = module
        self.raw = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
        if not public:
            self.raw.linkage = "internal"
            self.raw.attributes.add("noinline")  # each with the registers to itself
        self.build = ir.IRBuilder(self.raw.append_basic_block("entry"))
        body = self.raw.append_basic_block("body")
        self.build.branch(body)
        self.build.position_at_end(body)
        self.arguments = [
            self._argument(*a) for a in zip(kinds.values(), self.raw.args, strict=True)
        ]

    def _argument(self, kind: str, raw: Any) -> Any:
        if kind in ("int", "real"):
            return Value(self, raw)
        return Array(self, raw, POINTER if kind == "arrays" else KINDS[kind])

    def whole(self, value: Value | int) -> Any:
        """An integer as LLVM wants it."""
        return value.raw if isinstance(value, Value) else ir.Constant(INT, value)

    def number(self, value: int) -> Value:
        """An integer that is known already."""
        return Value(self, ir.Constant(INT, value))

    def real(self, value: float) -> Value:
        """A real number that is known already."""
        return Value(self, ir.Constant(REAL, value))

    def like(self, one: Value, other: Value | float) -> Any:
        """A value as it is, a plain number as one of the type of another value."""
        if isinstance(other, Value):
            return other.raw
        kind = one.raw.type
        if not isinstance(kind, ir.VectorType):
            return ir.Constant(kind, other)
        return ir.Constant(kind, [ir.Constant(kind.element, other)] * kind.count)

    def all(self, value: float) -> Value:
        """A vector of one number that is known already."""
        return Value(self, ir.Constant(VECTOR, [value] * LANES))

    @property
    def zero(self) -> Value:
        """A vector of zeros."""
        return self.all(0.0)

    def variable(self, first: Value) -> Variable:
        """A value that changes."""
        return Variable(self, first)

    def variables(self, n: int) -> list[Variable]:
        """So many sums, zero at first."""
        return [self.variable(self.zero) for _ in range(n)]

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a b + c, rounded once."""
        return self._intrinsic("llvm.fma.v8f32", a, b, c)

    def _intrinsic(self, name: str, *values: Value) -> Value:
        known = self.module.globals.get(name)
        kind = values[0].raw.type
        known = known or ir.Function(self.module, ir.FunctionType(kind, [kind] * len(values)), name)
        return Value(self, self.build.call(known, [v.raw for v in values]))

    def fetch(self, place: Any) -> None:
        """Bring a line of memory into the cache of this core; no fault, whatever is there."""
        name = "llvm.prefetch.p0"
        known = self.module.globals.get(name)
        kinds = ir.FunctionType(ir.VoidType(), [POINTER, SMALL, SMALL, SMALL])
        known = known or ir.Function(self.module, kinds, name)
        self.build.call(known, [place, *(ir.Constant(SMALL, n) for n in (0, NEAR, 1))])

    def least(self, a: Value, b: Value | int) -> Value:
        """The smaller of two."""
        return (a < b).where(a, b if isinstance(b, Value) else self.number(b))

    def call(self, other: Function, *given: Value | Array | int) -> None:
        """Run another function of the compiled code."""
        self.build.call(
            other.raw, [g.raw if not isinstance(g, int) else self.whole(g) for g in given]
        )

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: int = 1) -> Iterator[Value]:
        """`for i in range(start, stop, step)` of the compiled code."""
        before, build = self.build.block, self.build
        head, body, end = (self.raw.append_basic_block(n) for n in ("for", "do", "done"))
        build.branch(head)
        build.position_at_end(head)
        i = build.phi(INT)
        i.add_incoming(self.whole(start), before)
        build.cbranch(build.icmp_signed("<", i, self.whole(stop)), body, end)
        build.position_at_end(body)
        yield Value(self, i)
        i.add_incoming(build.add(i, ir.Constant(INT, step), flags=["nsw"]), build.block)
        build.branch(head)
        build.position_at_end(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """`if condition` of the compiled code."""
        with self.build.if_then(condition.raw):
            yield

    def in_tiles(self, n: int, size: int, body: Callable[[Any, int], None]) -> None:
        """n things, `size` at a time and the rest at the end: body(where, how many)."""
        if n >= size:
            with self.loop(0, n - n % size, size) as at:
                body(at, size)
        if n % size:
            body(n - n % size, n % size)

    def in_vectors(self, n: int, size: int, body: Callable[[Any, list[int]], None]) -> None:
        """n numbers, `size` vectors at a time: body(where, lanes of each vector)."""
        whole = n // LANES
        if whole >= size:
            with self.loop(0, (whole - whole % size) * LANES, size * LANES) as at:
                body(at, [LANES] * size)
        rest = [LANES] * (whole % size) + [n % LANES] * (n % LANES > 0)
        if rest:
            body((whole - whole % size) * LANES, rest)

    def end(self) -> None:
        """Return."""
        self.build.ret_void()
