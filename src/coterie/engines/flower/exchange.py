"""Who is there, what was sent to whom, what came back, and what came too late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message, RecordDict

from coterie.core import points
from coterie.engines.flower import messages, validate
from coterie.engines.flower.inbox import LEAST, REFUSED
from coterie.engines.flower.validate import RefusedError

if TYPE_CHECKING:
    from coterie.engines.flower.runtime import Reached

Tell = Callable[[dict[str, Any]], None]
PAUSE = 5.0  # seconds until a node that was not let in is asked for its name again
GOODBYE = 10.0  # seconds in which clients hear that a run is over
TRIES = 3  # messages to a client that is there and does not take them, in one question


class UnwantedError(RefusedError):
    """Why a client is not let in, now or later: it is told so."""


@dataclass(frozen=True)
class RemoteClient:
    """A client as it introduced itself."""

    name: str
    node: int
    samples: int
    classes: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Clock:
    """Time, and how it is spent; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll: float = 0.25


@dataclass
class Pending:
    """One client's part in an exchange."""

    ids: set[str] = field(default_factory=set)  # messages it may answer: any one will do
    there: bool = False  # whether one of them is with a client that is there
    since: str = ""  # when that client came, as the grid tells
    tries: int = 0


class Exchange:
    """Sends messages through a grid and sorts what comes back. Names are learnt by a query."""

    def __init__(
        self,
        grid: Reached,
        setup: str = "{}",
        *,
        tell: Tell = lambda event: None,
        registered: Callable[[], Mapping[int, str] | None] = lambda: None,
        expected: Iterable[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.grid, self.setup, self.tell = grid, setup, tell
        self.registered = registered  # node -> the name its key is listed under; None: no keys
        self.expected = frozenset(expected)  # the only names that are let in; empty: any
        self.clock = clock or Clock()
        self.unfit: Callable[[RemoteClient], str] = lambda client: ""  # why one cannot take part
        self.clients: dict[str, RemoteClient] = {}
        self.greeted: dict[str, int] = {}  # message id -> node
        self.turned_away: dict[int, float] = {}  # nodes that were not let in, and when
        self.told: set[tuple[int, str]] = set()  # nodes, and why they were turned away
        self.late: dict[str, str] = {}  # message id -> whose answer is not wanted any more
        self.online: dict[int, str] = {}  # node -> when it came

    def look(self) -> None:
        """Who is there now; whoever is new is asked for its name."""
        for who, why in getattr(self.grid, "refusals", tuple)():  # Flower's own grid knows none
            self.tell({"event": "refused", "node": who, "why": why})
        before = self.online
        self.online = {n.node_id: n.last_activated_at for n in self.grid.get_nodes()}
        self.tell_changes(before)
        known = {client.node for client in self.clients.values()} | set(self.greeted.values())
        # Not for ever: its message may have been lost, or the one whose name it bears be gone.
        known |= {n for n, when in self.turned_away.items() if self.clock.now() < when + PAUSE}
        new = [n for n in sorted(self.online.keys() - known) if self.listed(n)]
        hello = RecordDict({"hello": ConfigRecord({"setup": self.setup})})
        greetings = [Message(hello, dst_node_id=n, message_type=messages.HELLO) for n in new]
        if greetings:
            keys = self.grid.push_messages(greetings)
            self.greeted |= {key: node for node, key in zip(new, keys, strict=True) if key}
        # Who is gone is asked again when it is back.
        self.greeted = {key: node for key, node in self.greeted.items() if node in self.online}

    def tell_changes(self, before: Mapping[int, str]) -> None:
        """Say who left, and who is back at the node at which it was."""
        for client in self.clients.values():
            then, now = before.get(client.node), self.online.get(client.node)
            if now is None and then is not None:
                self.tell({"event": "left", "client": client.name})
            elif now is not None and then != now:
                self.tell_joined(client, again=True)

    def tell_joined(self, client: RemoteClient, *, again: bool) -> None:
        """Say who came."""
        event = {"event": "joined", "client": client.name, "samples": client.samples}
        self.tell(event | ({"again": True} if again else {}))

    def farewell(self) -> None:
        """Tell everybody that the run is over; who does not hear it soon is not waited for."""
        points.reach("farewell")
        self.look()
        nodes = [client.node for client in self.clients.values() if client.node in self.online]
        bye = RecordDict({"bye": ConfigRecord({})})
        said = [Message(bye, dst_node_id=n, message_type=messages.BYE) for n in nodes]
        heard = {key for key in self.grid.push_messages(said) if key} if nodes else set()
        end = self.clock.now() + GOODBYE
        while heard and self.clock.now() < end:
            heard -= {m.metadata.reply_to_message_id for m in self.collect(heard)}
            self.clock.sleep(self.clock.poll if heard else 0)

    def listed(self, node: int) -> bool:
        """Whether a node has a key that we registered: nobody else is told anything at all."""
        ours = self.registered()
        if ours is None or node in ours:
            return True
        self.turn_away(node, "this server did not register its key")
        return False

    def turn_away(self, node: int, why: str) -> None:
        """Do not let a node in, for now; said once."""
        self.turned_away[node] = self.clock.now()
        if (node, why) not in self.told:
            self.told.add((node, why))
            self.tell({"event": "refused", "node": str(node), "why": why})

    def welcome(self, message: Message, node: int) -> None:
        """Let in who introduces itself properly; a name belongs to one node at a time."""
        try:
            client = introduced(message, node)
            ours = self.registered()
            owner = client.name if ours is None else ours.get(node)
            if owner != client.name:
                raise UnwantedError(f"it calls itself {client.name}, its key belongs to {owner}")
            if why := self.unfit(client):
                raise UnwantedError(f"client {client.name} cannot take part: {why}")
            if self.expected and client.name not in self.expected:
                raise UnwantedError(f"nobody expects a client {client.name}")
            before = self.clients.get(client.name)
            if before and before.node != node and before.node in self.online:
                raise RefusedError(f"a client {client.name} is there already")
            if before and replace(before, node=node) != client:
                raise UnwantedError(f"the data of client {client.name} are not those it came with")
        except RefusedError as fault:
            self.turn_away(node, str(fault))
            if isinstance(fault, UnwantedError):  # it would wait for ever
                self.send_away(node, str(fault))
            return
        self.clients[client.name] = client
        points.reach("welcomed", client.name)
        self.tell_joined(client, again=before is not None)

    def send_away(self, node: int, why: str) -> None:
        """Tell a client that it is not wanted."""
        away = RecordDict({"away": ConfigRecord({"why": why})})
        self.grid.push_messages([Message(away, dst_node_id=node, message_type=messages.AWAY)])

    def require(self, unfit: Callable[[RemoteClient], str]) -> None:
        """From now on let in only who is fit; who is there and is not has to go."""
        self.unfit = unfit
        for name, client in list(self.clients.items()):
            if why := unfit(client):
                del self.clients[name]
                why = f"client {name} cannot take part: {why}"
                self.turn_away(client.node, why)
                self.send_away(client.node, why)

    def collect(self, ids: Iterable[str] = ()) -> list[Message]:
        """Answers to these messages; introductions and late answers are dealt with here."""
        wanted = set(ids)
        asked = wanted | self.greeted.keys() | self.late.keys()
        found = []
        for message in self.grid.pull_messages(sorted(asked)) if asked else ():
            key = message.metadata.reply_to_message_id
            if key in wanted:
                found.append(message)
            elif key in self.greeted:
                self.welcome(message, self.greeted.pop(key))
            elif key in self.late:
                self.tell({"event": "late", "client": self.late.pop(key)})
            else:
                self.tell({"event": "duplicate", "message": key})
        return found

    def here(self, name: str) -> bool:
        """Whether a client of this name was let in and is there."""
        return name in self.clients and self.clients[name].node in self.online

    def exchange(
        self,
        questions: Mapping[str, Callable[[int], Message]],
        accept: Callable[[str, Message], bool],
        *,
        deadline: float,
        needed: int,
        largest: int = LEAST,
    ) -> None:
        """Ask each client by name and hand every answer to `accept`, which says if it was one.

        `questions` make the message for a client, given the node at which it is now; an answer
        has at most `largest` bytes, or it comes as an error of the code REFUSED.
        It ends when everybody answered; when all who are there did and they are enough; or at the
        deadline. Who goes away and comes back in time is asked again.
        """
        began, done = self.clock.now(), 0
        self.grid.largest = max(LEAST, largest)  # Flower's own grid takes no notice of it
        self.turned_away.clear()  # they may introduce themselves again: the first may be gone
        waiting = {name: Pending() for name in questions}
        while True:
            self.look()
            for name, pending in waiting.items():
                if not self.here(name):
                    pending.there = False
                    continue
                node = self.clients[name].node
                if pending.since != self.online[node]:  # it went and came back in between
                    pending.there, pending.since = False, self.online[node]
                if not pending.there and pending.tries < TRIES:
                    pending.tries += 1
                    for key in self.grid.push_messages([questions[name](node)]):
                        if key:
                            pending.ids.add(key)
                            pending.there = True
            owner = {key: name for name, p in waiting.items() for key in p.ids}
            for message in self.collect(owner):
                key = message.metadata.reply_to_message_id
                name = owner[key]
                if name not in waiting:  # an answer to an earlier message with the same question
                    self.tell({"event": "duplicate", "client": name})
                elif message.has_error() and message.error.code != REFUSED:
                    self.unreached(name, message, waiting, key)
                else:
                    done += accept(name, message)
                    self.late |= dict.fromkeys(waiting.pop(name).ids - {key}, name)
            over = self.clock.now() - began
            idle = not self.greeted and not any(
                p.there or (p.tries < TRIES and self.here(name)) for name, p in waiting.items()
            )
            if not waiting or over >= deadline or (idle and done >= needed):
                break
            self.clock.sleep(self.clock.poll)
        for name, pending in waiting.items():
            why = f"no answer in {over:.0f} s" if pending.tries else "it is not there"
            self.tell({"event": "missing", "client": name, "why": why})
            self.late |= dict.fromkeys(pending.ids, name)

    def unreached(self, name: str, message: Message, waiting: dict[str, Pending], key: str) -> None:
        """A message that did not reach its client or came back without an answer."""
        pending = waiting[name]
        pending.ids.discard(key)
        pending.there = bool(pending.ids)
        why = validate.printable(f"{message.error.reason} (code {message.error.code})")
        self.tell({"event": "unreached", "client": name, "why": why})


def introduced(message: Message, node: int) -> RemoteClient:
    """The client that a message introduces, if it is one."""
    if message.has_error():
        raise RefusedError(f"it did not say who it is: {message.error.reason}")
    head = message.content.config_records.get("hello")
    if head is None:
        raise RefusedError("it did not say who it is")
    if head.get("error"):
        raise RefusedError("it could not: " + str(head["error"]))
    classes, shape = head.get("classes"), head.get("shape")
    if not isinstance(classes, list) or not 0 < len(classes) <= 100_000:
        raise RefusedError("it names no classes")
    return RemoteClient(
        validate.text(head.get("name"), "its name"),
        node,
        validate.samples(head.get("samples")),
        tuple(validate.text(c, "the name of a class") for c in classes),
        validate.lengths("a sample", shape),
    )
