"""The Ray backend: clients answered by actors on one machine or on many, to the same bits.

What is where: the clients' data lie in Ray's object store, once on each machine, and the actors
there see them in place; so does each question with its models. Answers come back as one array for
every bundle of portions. Memories stay here, with the ledger, and travel with a question.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

from numpy.typing import NDArray

from coterie.core.errors import ConfigError
from coterie.core.types import Reply
from coterie.engines.question import Portion, Question, Setting
from coterie.engines.serial import Serial
from coterie.engines.workers import worker
from coterie.engines.workers.processes import computing_time
from coterie.engines.workers.shared_memory import LocalBuffer, in_place

try:
    import ray
    from ray import exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as cause:
    raise ConfigError(
        "the ray engine needs Ray, which is not installed",
        code="C054",
        fix="pip install 'coterie[ray]'",
    ) from cause

STORE = 2**30  # bytes of a local object store, beside what the clients' data take
CONNECT = 10.0  # seconds that a cluster's head may take to accept a connection
LOOK = 10.0  # seconds between two looks at actors who have said nothing
PATIENCE = 6  # looks in a row at which a busy actor has computed nothing, before it is ended
UNKNOWN = 30  # and at which nothing of it is known: it has not started, or its machine is silent
GONE = (  # what is said of an actor that does not live any more, or of an answer that went with it
    exceptions.RayActorError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.NodeDiedError,
    exceptions.WorkerCrashedError,
    exceptions.GetTimeoutError,
)
# A Ray that is started here reports to nobody. It listens on every interface, but hears only who
# has the token of this process; Ray itself would write one to the home folder, for all to share.
PRIVATE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_worker_niceness": "0",  # Ray would have its workers step back behind everybody
}


class ActorBody:
    """What runs inside an actor: a backend, and the question it knows."""

    def __init__(self, backend: tuple[Serial, Setting]) -> None:
        worker.tune()
        self.inner, self.setting = backend
        self.outbox = LocalBuffer()
        self.call: Any = None  # the question's reference
        self.question: Question | None = None

    def place(self) -> tuple[str, int]:
        """The machine it is on, as Ray calls it, and its process there."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def work(
        self, call: Sequence[Any], portions: Sequence[Portion]
    ) -> tuple[list[worker.Outcome], NDArray[Any]]:
        """The outcome of some portions, and the array in which their tensors lie."""
        if call[0] != self.call:  # fetched once, however many portions of it there are
            packed, array = ray.get(call[0])
            self.question = packed.open(self.setting, LocalBuffer(array))
            self.call = call[0]
        assert self.question is not None
        self.outbox.clear()
        found = [worker.outcome(self.inner, self.question, p, self.outbox) for p in portions]
        return found, self.outbox.array()


class Actor:
    """One actor, as seen from here. Nothing here waits for it without a deadline."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.place = handle.place.remote()
        self.reply: Any = None
        self.busy: Sequence[Portion] = ()
        self.alive, self.exit_reason = True, ""
        self.computed, self.silent = "", 0  # how long, at the last look; looks in a row since then

    def give(self, packed: Any, portions: list[Portion]) -> None:
        """Hand it some portions of a packed question; of a dead one, `answer` will tell."""
        self.busy, self.silent = portions, 0
        self.reply = self.handle.work.remote([packed], portions)

    def answer(self, table: worker.Table) -> list[list[Reply] | worker.Failure] | None:
        """What came of these portions, laid down in a table; nothing if it died or froze."""
        if not self.alive:
            return None
        try:
            outcomes, array = ray.get(self.reply, timeout=UNKNOWN * LOOK)
        except GONE as gone:
            self.alive, self.exit_reason = False, str(gone).strip().splitlines()[-1]
            return None
        portions, self.busy = self.busy, ()
        return worker.opened(outcomes, LocalBuffer(array), portions, table)

    def look(self) -> None:
        """See whether it has computed since the last look; for too long nothing is a fault."""
        try:
            now = computed_by(ray.get(self.place, timeout=LOOK))
        except GONE:  # or it has not started: of one that died, its reply will tell
            now = ""
        self.silent = self.silent + 1 if now == self.computed else 0
        self.computed = now
        if self.silent >= (PATIENCE if now else UNKNOWN):
            what = "computed nothing" if now else "gave no sign of life"
            self.alive, self.exit_reason = False, f"it {what} for {self.silent * LOOK:g} seconds"

    def stop(self, seconds: float = 0) -> None:
        """End it at once: it has nothing to bring to an end."""
        self.reply = None
        if ray.is_initialized():
            ray.kill(self.handle)


def computed_by(place: tuple[str, int]) -> str:
    """How long a process has computed, asked on its own machine."""
    node, pid = place
    if Link.started:  # it is on this machine, as all of this Ray is
        return computing_time(pid)
    look: Any = ray.remote(num_cpus=0)(computing_time)
    there = look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
    found: str = ray.get(there.remote(pid), timeout=LOOK)
    return found


class Actors:
    """Starts actors of Ray, and puts questions into its object store.

    Without an address, a Ray of its own is started on this machine and ended with `close`. With
    "auto", "host:port" or "ray://host:port" it joins a cluster, which it leaves as it was. A
    process that is connected to Ray already stays so.
    """

    def __init__(self, size: int, address: str | None = None) -> None:
        self.size, self.link = size, Link(address)
        weakref.finalize(self, leave, self.link, os.getpid())
        self.outgoing = LocalBuffer()
        self.backend: Any = None  # the reference of what every actor starts with
        self.kind: Any = None

    def prepare(self, inner: Serial, setting: Setting, workers: list[Actor]) -> None:
        """See that Ray is there and holds the clients' data."""
        first = setting.population[0].x
        volume = setting.samples * first.nbytes // max(1, len(first))  # bytes of training samples
        if self.link.open(self.size, STORE + 4 * volume):
            workers.clear()
            self.kind = ray.remote(num_cpus=int(not Link.started), max_restarts=0)(ActorBody)
            with in_place():
                self.backend = ray.put((inner, setting))

    def hire(self, inner: Serial, setting: Setting, beside: Sequence[Actor]) -> Actor:
        """A new actor, over the data of all."""
        return Actor(self.kind.remote(self.backend))

    def pack(self, question: Question) -> Any:
        """The question in the object store: a machine gets it once."""
        packed = worker.PackedQuestion.of(question, self.outgoing)
        return ray.put((packed, self.outgoing.array()))

    def ready(self, busy: Sequence[Actor]) -> Sequence[Actor]:
        """Who has answered or died, or computes no more."""
        replies = {actor.reply: actor for actor in busy}
        while all(actor.alive for actor in busy):
            done, _ = ray.wait(list(replies), num_returns=1, timeout=LOOK)
            if done:
                return [replies[reply] for reply in done]
            for actor in busy:
                actor.look()
        return [actor for actor in busy if not actor.alive]

    def close(self) -> None:
        """Leave Ray, if nobody else here uses it."""
        leave(self.link, os.getpid())
        self.backend = None


class Link:
    """A use of this process's one connection to Ray, which ends with the last of those it has."""

    users: ClassVar[set[int]] = set()  # of a connection that was made here
    started: ClassVar[bool] = False  # with a Ray of our own at the other end: of nobody else

    def __init__(self, address: str | None) -> None:
        self.address, self.entered = address, False

    def open(self, workers: int, store: int) -> bool:
        """Connect, unless it is done; whether there was anything to do."""
        if self.entered and ray.is_initialized():
            return False
        if not ray.is_initialized():
            Link.users.clear()
            connect(self.address, store)
            Link.started = self.address is None
            Link.users.add(id(self))
        elif Link.users:
            Link.users.add(id(self))
        self.entered = True
        cores = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if not Link.started and cores < workers:
            self.close()
            raise ConfigError(
                f"{workers} workers are asked for, and the Ray cluster has {cores} cores",
                code="C055",
                why="an actor has a core for itself; the others would wait for ever",
                fix=f"engine.workers = {cores}, or more machines in the cluster",
            )
        return True

    def close(self) -> None:
        """Disconnect, if this is the last use of a connection made here."""
        self.entered = False
        if id(self) in Link.users:
            Link.users.discard(id(self))
            if not Link.users and ray.is_initialized():
                ray.shutdown()
                Link.started = False


def connect(address: str | None, store: int) -> None:
    """Start a Ray on this machine, or join the one at an address."""
    how: dict[str, Any] = {"address": address}
    if address is None:
        how = {"address": "local", "include_dashboard": False, "object_store_memory": store}
    main = threading.current_thread() is threading.main_thread()
    stop = signal.getsignal(signal.SIGTERM)
    try:
        expect_listener(address)
        with private() if address is None else nullcontext():
            ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as cause:
        raise ConfigError(
            f"no connection to Ray at {address or 'this machine'}",
            code="C055",
            why=str(cause).strip().splitlines()[-1],
            fix='ray start --head starts a cluster; engine.address = "auto" finds it from there',
        ) from cause
    finally:
        if main:  # Ray puts its own in the place of ours
            signal.signal(signal.SIGTERM, stop)


def expect_listener(address: str | None) -> None:
    """See that somebody listens at an address: Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()


@contextmanager
def private() -> Iterator[None]:
    """The environment in which a Ray of our own starts; it is left as it was."""
    before = dict(os.environ)
    os.environ.update(PRIVATE | before)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):  # Ray, too, adds some
            del os.environ[name]


def leave(link: Link, owner: int) -> None:
    """Close a connection; not in a process that only inherited it."""
    if os.getpid() == owner:
        link.close()
