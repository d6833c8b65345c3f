"""Loops and vectors in LLVM's language: what kernels are written in.

A kernel is a Python function that writes code instead of running it. `with f.loop(0, n) as i:` is a
loop of the compiled code, `for` one that is written out; `x[i]` is a number that the compiled code
reads, `x.vector(i)` several. Arithmetic is Python's. What changes in a loop is a `Variable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from coterie.engines.compiled.host import Processor
from coterie.engines.compiled.settings import LANES
from coterie.engines.compiled.values import INT, REAL, SMALL, Array, Value, Variable

KINDS = {"int": INT, "real": REAL, "array": REAL, "ints": INT, "smalls": SMALL, "arrays": None}
POINTER = ir.PointerType()
NEAR = 2  # how near memory is fetched: a mini-batch has room in the second cache


class Function:
    """One function of the compiled code, while it is written.

    Its vectors have `lanes` numbers, and the processor has so many `registers` for them. A vector
    of more than a register holds lies in several: the numbers are the same.
    """

    def __init__(
        self,
        module: ir.Module,
        name: str,
        kinds: dict[str, str],
        processor: Processor,
        lanes: int = LANES,
    ) -> None:
        self.lanes, self.registers = lanes, processor.registers_of(lanes)
        self.at_once = max(1, self.registers // 8)  # vectors, with five or six sums of each
        types = [KINDS[k] if k in ("int", "real") else POINTER for k in kinds.values()]
        self.module = module
        self.raw = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
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

    def hide(self) -> None:
        """Let it be called by the compiled code alone, with all registers to itself."""
        self.raw.linkage = "internal"
        self.raw.attributes.add("noinline")

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
        kind = ir.VectorType(REAL, self.lanes)
        return Value(self, ir.Constant(kind, [value] * self.lanes))

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
        return self._intrinsic(f"llvm.fma.v{a.raw.type.count}f32", a, b, c)

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
        whole, left = divmod(n, self.lanes)
        many = whole - whole % size
        if many:
            with self.loop(0, many * self.lanes, size * self.lanes) as at:
                body(at, [self.lanes] * size)
        rest = [self.lanes] * (whole - many) + [left] * (left > 0)
        if rest:
            body(many * self.lanes, rest)

    def end(self) -> None:
        """Return."""
        self.build.ret_void()
