"""A plan as a program: one function that does all steps of a client's training, one that reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from coterie.engines.compiled import activation, order, pooling, samples
from coterie.engines.compiled import step as steps
from coterie.engines.compiled.convolution import Convolution
from coterie.engines.compiled.dense import Dense
from coterie.engines.compiled.host import Processor
from coterie.engines.compiled.loops import KINDS, Function
from coterie.engines.compiled.plan import Plan, Stage
from coterie.engines.compiled.pooling import Mean
from coterie.engines.compiled.settings import LANES, RATES, READING, ROWS
from coterie.engines.compiled.values import Array, Value

SAMPLES = {"buffers": "arrays", "w": "array", "x": "array", "order": "ints", "count": "int"}
BATCH = {**SAMPLES, "then": "int", "ready": "int"}
LEARNING = {"labels": "ints", "learns": "ints", **steps.STEP}
LABELLED = {"buffers": "arrays", "rows": "arrays", "x": "array", "labels": "ints", "order": "ints"}
STEPS = {"inner": "ints", "sizes": "ints", "steps": "int", "learns": "ints", "rates": "array"}
TRAIN = {**LABELLED, **STEPS, "ready": "int"}
GRADIENT = {**LABELLED, "count": "int", "learns": "ints"}
ORDER = {"row": "array", "w": "array"}
READ = {**SAMPLES, "y": "array", "features": "int"}


class Program:
    """The code of a plan for a processor, as text in LLVM's language."""

    def __init__(self, plan: Plan, processor: Processor) -> None:
        self.plan, self.processor, self.module = plan, processor, ir.Module("coterie")
        self.names = list(plan.buffers)
        self.kernels: dict[str, Function] = {}
        self.terms = self.define("terms", steps.TERMS, partial(steps.terms, size=plan.size))
        self.copy = self.define(
            "copy", {"a": "array", "b": "array"}, partial(samples.copy, size=plan.size)
        )
        for n, stage in enumerate(plan.stages, 1):
            self.stage(n, stage)
        self.kernel("loss", activation.loss_backward, "aaiin", classes=plan.outputs)
        self.kernel("gather", samples.gather(plan), "aiaiinn")
        self.kernel("rows", samples.rows, "aian", size=plan.features)
        self.forward = self.define("forward", BATCH, self.write_forward)
        self.backward = self.define("backward", BATCH | LEARNING, self.write_backward)
        self.define("train", TRAIN, self.write_train, public=True)
        self.define("gradient", GRADIENT, self.write_gradient, public=True)
        self.define("read", READ, self.write_read, public=True)
        self.define("arrange", ORDER, partial(self.write_order, back=False), public=True)
        self.define("restore", ORDER, partial(self.write_order, back=True), public=True)

    def __str__(self) -> str:
        return str(self.module)

    def define(
        self,
        name: str,
        kinds: dict[str, str],
        write: Callable[[Function], None],
        public: bool = False,
        lanes: int = LANES,
    ) -> Function:
        """A function of the compiled code."""
        f = Function(self.module, name, kinds, self.processor, lanes)
        if not public:
            f.hide()
        write(f)
        f.end()
        return f

    def kernel(
        self, name: str, write: Callable[..., None], takes: str, lanes: int = LANES, **more: Any
    ) -> None:
        """A kernel: a, i, s are arrays of reals, integers and small ones, n is a number."""
        letters = {"a": "array", "i": "ints", "s": "smalls", "n": "int"}
        kinds = {str(k): letters[c] for k, c in enumerate(takes.removesuffix("+"))}
        if takes.endswith("+"):  # and the step
            kinds |= steps.STEP
        self.kernels[name] = self.define(name, kinds, partial(write, **more), lanes=lanes)

    def stage(self, n: int, stage: Stage) -> None:
        """The kernels of a stage; the first needs no gradient of its inputs."""
        kernel = stage.kernel
        match kernel:
            case Dense():
                self.kernel(f"forward{n}", kernel.forward, "aiaaan", kernel.lanes)
                self.kernel(f"weights{n}", kernel.backward_weights, "aiian+", kernel.across)
            case Convolution():
                self.kernel(f"lay{n}", kernel.lay, "aa")
                self.kernel(f"forward{n}", kernel.forward, "aaaa", kernel.lanes)
                self.kernel(f"list{n}", kernel.list_gradients, "assain")
                self.kernel(f"weights{n}", kernel.backward_weights, "asaia", kernel.across)
                self.kernel(f"step{n}", kernel.step, "a+")
                if kernel.window:
                    self.kernel(f"maximum{n}", pooling.maximum, "aas", conv=kernel)
            case Mean():
                self.kernel(f"forward{n}", kernel.forward, "aa")
                self.kernel(f"inputs{n}", kernel.backward, "aa")
        if not isinstance(kernel, Mean):
            self.kernel(f"bias{n}", kernel.backward_bias, "an+")
            if n > 1:
                takes = "aaan" if isinstance(kernel, Dense) else "asaian"
                self.kernel(f"inputs{n}", kernel.backward_inputs, takes, kernel.across)
        if stage.relu:
            self.kernel(f"relu{n}", activation.relu, "an", size=stage.leaves)
            self.kernel(f"stop{n}", activation.relu_backward, "aan", size=stage.leaves)

    def call(self, f: Function, name: str, *given: Value | Array | int) -> None:
        """Run a kernel."""
        f.call(self.kernels[name], *given)

    def buffer(self, f: Function, buffers: Array, name: str) -> Array:
        """A buffer by its name."""
        kind = KINDS[self.plan.buffers[name].kind]
        return Array(f, buffers[self.names.index(name)].raw, kind)

    def write_forward(self, f: Function) -> None:
        """The mini-batch from the samples to the logits.

        Or from what the last layer is given, if that is `ready` in place of the samples.
        """
        buffers, w, x, order, count, then, ready = f.arguments
        mine = partial(self.buffer, f, buffers)
        last = len(self.plan.stages)
        if last > 1:
            with f.when(ready > 0):
                self.call(f, "rows", x, order, mine(f"a{last - 1}"), count)
        with f.when(ready < 1):
            to = mine("a0") if "a0" in self.names else x
            listed = mine("places"), mine("ahead")
            self.call(f, "gather", x, order, to, *listed, count, then)
            for n in range(1, last):
                self.write_layer(f, n, mine, (w, x), count)
        self.write_layer(f, last, mine, (w, x), count)

    def write_layer(
        self,
        f: Function,
        n: int,
        mine: Callable[[str], Array],
        arrays: tuple[Array, Array],
        count: Value,
    ) -> None:
        """One stage of the way from the samples to the logits."""
        w, x = arrays
        stage = self.plan.stages[n - 1]
        kernel, y = stage.kernel, mine(f"a{n}")
        a = mine(f"a{n - 1}") if f"a{n - 1}" in self.names else x
        weight, bias = w.start(stage.weight), w.start(stage.bias)
        if isinstance(kernel, Dense):
            self.call(f, f"forward{n}", a, mine("places"), weight, bias, y, count)
        elif isinstance(kernel, Mean):
            with f.loop(0, count) as b:
                image, to = a.start(b * kernel.image.size), y.start(b * kernel.out.size)
                self.call(f, f"forward{n}", image, to)
        else:
            self.write_convolution(f, n, kernel, mine, (a, weight, bias, y), count)
        if stage.relu:
            self.call(f, f"relu{n}", y, count)

    def write_convolution(
        self,
        f: Function,
        n: int,
        conv: Convolution,
        mine: Callable[[str], Array],
        arrays: tuple[Array, ...],
        count: Value,
    ) -> None:
        """A convolution and the maximum behind it, sample by sample."""
        a, weight, bias, y = arrays
        laid = mine(f"laid{n}")
        self.call(f, f"lay{n}", weight, laid)
        with f.loop(0, count) as b:
            image, to = a.start(b * conv.image.size), y.start(b * conv.out.size)
            if not conv.window:
                self.call(f, f"forward{n}", image, laid, bias, to)
            else:
                found = mine(f"y{n}")
                which = mine(f"where{n}").start(conv.place(b, f.number(0), f.number(0)))
                self.call(f, f"forward{n}", image, laid, bias, found)
                self.call(f, f"maximum{n}", found, to, which)

    def write_backward(self, f: Function) -> None:
        """From the logits to the weights, which take their step at once.

        No further than to the first layer that learns: of a network whose head alone does, there
        is no way back through its images.
        """
        buffers, w, x, order, count, _, _, labels, learns, *target = f.arguments
        mine = partial(self.buffer, f, buffers)
        last = len(self.plan.stages)
        self.call(f, "loss", mine(f"a{last}"), mine(f"g{last}"), labels, order, count)
        for n in range(last, 0, -1):
            with f.when(self.learning(learns, n)):
                self.write_stage(f, n, mine, (w, x, learns), count, target)

    def learning(self, learns: Array, n: int) -> Value:
        """Whether anything learns in the first n stages."""
        first, *others = (learns[t] for stage in self.plan.stages[:n] for t in stage.tensors)
        return sum(others, start=first) > 0

    def write_stage(
        self,
        f: Function,
        n: int,
        mine: Callable[[str], Array],
        arrays: tuple[Array, Array, Array],
        count: Value,
        target: Sequence[Array | Value],
    ) -> None:
        """The way back through one stage, and its own step."""
        w, x, learns = arrays
        move, velocity, *rates = target
        assert isinstance(move, Array)
        assert isinstance(velocity, Array)
        stage = self.plan.stages[n - 1]
        a, g, kernel = mine(f"a{n}"), mine(f"g{n}"), stage.kernel
        if stage.relu:
            self.call(f, f"stop{n}", a, g, count)
        if isinstance(kernel, Convolution):
            self.write_gradients(f, n, kernel, mine, (w.start(stage.weight), learns), count)
        elif isinstance(kernel, Mean):
            self.write_shares(f, n, kernel, mine, count)
        elif n > 1:
            with f.when(self.learning(learns, n - 1)):
                self.call(f, f"inputs{n}", g, w.start(stage.weight), mine(f"g{n - 1}"), count)
        for tensor, start in zip(stage.tensors, (stage.weight, stage.bias), strict=False):
            there = (move.start(start), velocity.start(start), *rates)
            with f.when(learns[tensor] > 0):
                if tensor != stage.tensors[0]:
                    self.call(f, f"bias{n}", g, count, *there)
                elif isinstance(kernel, Convolution):
                    self.call(f, f"step{n}", mine(f"dw{n}"), *there)
                else:
                    image = mine(f"a{n - 1}") if n > 1 else x
                    listed = mine("places"), mine("ahead")
                    self.call(f, f"weights{n}", image, *listed, g, count, *there)

    def write_gradients(
        self,
        f: Function,
        n: int,
        conv: Convolution,
        mine: Callable[[str], Array],
        arrays: tuple[Array, Array],
        count: Value,
    ) -> None:
        """The way back through a convolution, some samples at a time."""
        w, learns = arrays
        listed = mine(f"fields{n}"), mine(f"numbers{n}"), mine(f"ends{n}")
        own = learns[self.plan.stages[n - 1].tensors[0]] > 0
        with f.loop(0, count, conv.together) as b:
            some = f.least(count - b, conv.together)
            g, image = mine(f"g{n}").start(b * conv.out.size), b * conv.image.size
            where = mine(f"where{n}").start(conv.place(b, f.number(0), f.number(0)))
            self.call(f, f"list{n}", g, where, *listed, some)
            with f.when(own):
                self.call(f, f"weights{n}", mine(f"a{n - 1}").start(image), *listed, mine(f"dw{n}"))
            if n > 1:
                with f.when(self.learning(learns, n - 1)):
                    to = mine(f"g{n - 1}").start(image)
                    self.call(f, f"inputs{n}", w, *listed, to, some)

    def write_shares(
        self, f: Function, n: int, mean: Mean, mine: Callable[[str], Array], count: Value
    ) -> None:
        """The way back through a mean."""
        g, dx = mine(f"g{n}"), mine(f"g{n - 1}")
        with f.loop(0, count) as b:
            come, to = g.start(b * mean.out.size), dx.start(b * mean.image.size)
            self.call(f, f"inputs{n}", come, to)

    def write_train(self, f: Function) -> None:
        """All steps of one client."""
        buffers, rows, x, labels, order, inner, sizes, count, learns, given, ready = f.arguments
        row = {name: Array(f, rows[k].raw, KINDS["array"]) for k, name in enumerate(ROWS)}
        rate = {name: given[k] for k, name in enumerate(RATES)}
        w, velocity, zero, one = row["w"], row["velocity"], f.real(0.0), f.real(1.0)
        more = rate["terms"] > 0.0
        seen = f.variable(f.number(0))

        def learn(
            read: Array, order: Array, size: Value, then: Value, *target: Array | Value
        ) -> None:
            batch = (buffers, read, x, order, size, then, ready)
            f.call(self.forward, *batch)
            f.call(self.backward, *batch, labels, learns, *target)

        with f.loop(0, count) as s:
            size, now = sizes[s], order.start(seen.now)
            then = f.variable(f.number(0))  # how many samples follow: they are fetched meanwhile
            with f.when(s + 1 < count):
                then.set(sizes[s + 1])
            with f.when(more):
                beside = [row["anchor"], row["shift"]]
                numbers = [rate[name] for name in ("momentum", "decay", "prox")]
                f.call(self.terms, velocity, w, *beside, *numbers)
            momentum, decay = more.where(one, rate["momentum"]), more.where(zero, rate["decay"])
            target = (w, velocity, rate["rate"], momentum, decay)
            with f.when(rate["meta"] > 0.0):  # the gradient where an inner step leads
                there = row["there"]
                f.call(self.copy, w, there)
                before = inner.start(seen.now)
                nothing = f.number(0)
                learn(w, before, size, nothing, there, row["spare"], rate["meta"], zero, zero)
                learn(there, now, size, then.now, *target)
            with f.when(rate["meta"].compare("==", 0.0)):
                learn(w, now, size, then.now, *target)
            seen.set(seen.now + size)

    def write_gradient(self, f: Function) -> None:
        """The gradient of one mini-batch, in place of a velocity of zeros; no weight moves."""
        buffers, rows, x, labels, order, count, learns = f.arguments
        w, gradient, beside = (Array(f, rows[k].raw, KINDS["array"]) for k in range(3))
        nothing = [f.real(0.0)] * 3
        batch = (buffers, w, x, order, count, f.number(0), f.number(0))
        f.call(self.forward, *batch)
        f.call(self.backward, *batch, labels, learns, beside, gradient, *nothing)

    def write_order(self, f: Function, back: bool) -> None:
        """A row from PyTorch's order into the kernels', or back."""
        source, target = f.arguments
        for stage in self.plan.stages:
            for n, place in enumerate(stage.places):
                x, y = source.start(place.start), target.start(place.start)
                if n or stage.turn is None:
                    order.copy(f, x, y, place.stop - place.start)
                else:
                    (stage.turn.back if back else stage.turn).write(f, x, y)

    def write_read(self, f: Function) -> None:
        """The logits of n samples, or the features: what the last layer is given."""
        buffers, w, x, order, n, y, features = f.arguments
        last = len(self.plan.stages)
        with f.loop(0, n, READING) as at:
            count = f.least(n - at, READING)
            f.call(self.forward, buffers, w, x, order.start(at), count, *[f.number(0)] * 2)
            for stage, wanted in ((last, features < 1), (last - 1, features > 0)):
                if stage:
                    size, found = self.plan.stages[stage - 1].leaves, f"a{stage}"
                    with f.when(wanted), f.loop(0, count) as b, f.loop(0, size) as k:
                        y[(at + b) * size + k] = self.buffer(f, buffers, found)[b * size + k]
