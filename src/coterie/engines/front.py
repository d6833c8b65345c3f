"""The federation as methods see it: who there is, what was asked, what crossed, who remembers what.

Whoever answers is a `Backend`; nothing else differs between engines.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from coterie.core import points
from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.shares import held_back
from coterie.core.types import Asked, Replies, Reply, State, Task
from coterie.engines.accounts import charge, expect_protected
from coterie.engines.door import judge, odd_ones
from coterie.engines.question import Backend, Changing, Question, Refusal, Setting
from coterie.engines.serial import Serial
from coterie.tasks.solver import Solver

ATTEMPT = 1000  # addresses of cohorts that one attempt at a round has for itself


class Front:
    """A federation over a backend. Views made by `at` share its clients, memories and ledger.

    `clients` may be a list or a `Population`; it is empty where the clients' data are elsewhere,
    and then `names` and `sizes` say who there is. Whose data are elsewhere only declares its size:
    `declared` are these, `sizes` what they count for, `most` the largest share in a group.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        layout: Layout,
        *,
        classes: int,
        seed: int = 0,
        sizes: Tensor | None = None,
        names: Sequence[str] | None = None,
        public: Tensor | Callable[[], Tensor | None] | None = None,
        groups: Tensor | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        backend: Backend | None = None,
        declared: Tensor | None = None,
        most: float = 1.0,
    ) -> None:
        self.population, self.layout, self.classes = clients, layout, classes
        self.seed, self._public, self.groups = seed, public, groups
        self.columns: Mapping[str, Sequence[str]] = columns or {}
        self.backend: Backend = backend or Serial()
        self.names = list(names) if names is not None else [c.name for c in clients]
        self.clients = torch.arange(len(self.names))
        # Lazy populations know their sizes without making every client's tensors.
        self.sizes = (
            torch.tensor([float(len(c)) for c in clients], dtype=torch.float64)
            if sizes is None
            else sizes.double()
        )
        self.declared, self.most = declared, most
        self.everybody = 0
        self.ledger: list[Asked] = []
        self.memory: dict[int, dict[str, Tensor]] = {}
        self.heard: list[Replies] = []  # the last answers, until the next question
        self.away: Tensor | None = None  # (n,) who has not come yet; None: everybody is there
        self.spare = self.clients[:0]  # whose answers a round goes on without
        self.round, self.purpose, self.calls, self.draws = -1, "train", 0, 0
        self.protected = False  # whether all that leaves a client must be under noise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know of how clients are reached."""
        return self.backend.notes

    @property
    def public(self) -> Tensor | None:
        """Samples the server itself holds; of an opened run they are read when asked for."""
        return self._public() if callable(self._public) else self._public

    @property
    def setting(self) -> Setting:
        """What all questions have in common."""
        samples = int(self.sizes.sum())
        return Setting(self.population, self.names, samples, self.layout, self.classes, self.seed)

    def at(
        self, round: int, purpose: str = "train", attempt: int = 0, spare: Tensor | None = None
    ) -> Self:
        """The same federation as seen in one round; its random addresses start anew.

        Another attempt at a round draws its cohorts at addresses of its own. A round goes on
        without the answers of `spare` clients.
        """
        view = copy.copy(self)
        if isinstance(self.population, Changing):
            now = self.population.at(round)
            view.sizes, view.groups = now.sizes.double(), now.group
            view.away = self.population.away(round)
        view.round, view.purpose = round, purpose
        view.calls, view.draws = 0, attempt * ATTEMPT
        view.spare = self.spare if spare is None else spare
        return view

    def close(self) -> None:
        """End whatever was started to reach the clients; a further question starts it again."""
        self.backend.close()

    def memories(self) -> Mapping[int, Mapping[str, Tensor]]:
        """The private memory of every client that has one here."""
        return self.memory

    def restore(self, memories: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Put private memories back, in place, so that every view sees them."""
        if self.backend.holds_memories:
            self.memory.clear()
            self.memory.update({i: dict(m) for i, m in memories.items()})

    def sample(self, fraction: float, among: Tensor | None = None) -> Tensor:
        """A random cohort of at least one client, in increasing order; nobody among nobody."""
        pool = self.present(self.clients if among is None else among)
        fraction = 1.0 if 0 <= self.round < self.everybody else fraction
        m = min(len(pool), max(1, int(fraction * len(pool) + 0.5)))
        rng = stream(self.seed, "sample", self.round, self.draws)
        self.draws += 1
        return pool[torch.randperm(len(pool), generator=rng)[:m]].sort().values

    def present(self, clients: Tensor) -> Tensor:
        """Those of some clients who are there in this round."""
        return clients if self.away is None else clients[~self.away[clients]]

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """Ask each client of the cohort; count every byte; leave out what is refused, by name."""
        began = time.perf_counter()
        self.heard.clear()
        if len(there := self.present(cohort)) < len(cohort):
            rows = torch.isin(cohort, there)
            send = {k: t[rows] if len(t) == len(cohort) else t for k, t in send.items()}
            cohort = there
        question = self.question(cohort, task, state, send)
        question.check()
        if self.protected and self.purpose == "train":
            expect_protected(question)
        self.calls += 1
        down = torch.full_like(cohort, question.payload_bytes())
        ids, up, train = question.ids, [0] * len(cohort), self.purpose == "train"
        got: dict[int, Reply] = {}
        refused: dict[int, Refusal] = {}
        for j, answer in self.backend.answers(question):
            i = ids[j]
            points.reach("heard", self.round + 1, self.names[i])
            if isinstance(answer, Refusal):
                refused[i] = answer
                continue
            up[j] = sum(t.nbytes for t in (answer.value, *answer.extra.values()))
            if fault := judge(answer, question.form(j), train=train):
                refused[i] = Refusal(*fault)
                continue
            got[i] = answer
        for i, why in odd_ones(got).items():
            refused[i] = Refusal(why)
            del got[i]
        for i, answer in got.items():
            if train and answer.keep:
                self.memory[i] = {**self.memory.get(i, {}), **answer.keep}
        if self.protected and train:  # what was refused has left its client, too
            charge(self.memory, question, [j for j in range(len(ids)) if up[j]])
        self.ledger.append(
            Asked(
                self.round,
                self.purpose,
                type(task).__name__,
                cohort,
                down,
                torch.tensor(up, dtype=cohort.dtype),
                {i: refusal.why for i, refusal in refused.items()},
                time.perf_counter() - began,
                {i: answer.alone for i, answer in got.items() if answer.alone},
                self.trained_on(question, [j for j, i in enumerate(ids) if i in got]),
                tuple(self.backend.mended()),
            )
        )
        self.backend.conclude(question, got.keys(), refused)
        self.heard.append(replies := self.gather(got))
        if replies:  # who alone was of no use need not be when it is asked again
            self.spare = torch.cat([self.spare, cohort[~torch.isin(cohort, replies.clients)]])
        return replies

    def trained_on(self, question: Question, answered: Sequence[int]) -> int:
        """How many samples these places of a cohort saw in local training, as its recipe plans."""
        recipe = question.task.trains
        if self.purpose != "train" or not isinstance(recipe, Solver):
            return 0
        who = torch.tensor(answered, dtype=torch.long)
        epochs = question.send.get("epochs")
        if epochs is not None:
            epochs = epochs.flatten().expand(len(question.cohort))[who]
        seen = recipe.seen(self.sizes[question.cohort][who], epochs).sum()
        return question.task.trainings * int(seen)

    def held_back(self, asked: Sequence[Asked], state: State) -> Mapping[int, tuple[float, float]]:
        """Who of those that answered counts for less of its cluster than the samples it declares
        would be: the share declared, and the share counted."""
        if self.declared is None or self.most >= 1:
            return {}
        trained = [a for a in asked if a.purpose == "train"]
        came = {i for a in trained for i in a.clients[a.up > 0].tolist() if i not in a.rejected}
        who = torch.tensor(sorted(came), dtype=torch.long)
        labels = state.assign[who]
        return held_back(who, labels, self.declared[who], self.sizes[who], self.most)

    def loudest(self) -> str:
        """Whose numbers in the last answers are the largest, in words; "" if nobody is known."""
        if not self.heard or not len(self.heard[0].clients):
            return ""
        last = self.heard[0]
        rows = (last.values, *(t for t in last.extra.values() if t.is_floating_point()))
        most = torch.stack([largest(t) for t in rows if t[0].numel()])
        peak, who = most.amax(0).max(0)
        name = self.names[int(last.clients[who])]
        return f"client {name} sent the largest numbers, up to {float(peak):.2g}"

    def question(
        self, cohort: Tensor, task: Task, state: State, send: Mapping[str, Tensor]
    ) -> Question:
        """What a backend is given to answer an `ask`."""
        return Question(
            self.setting,
            self.round,
            self.purpose,
            self.calls,
            cohort,
            (self.sizes if self.declared is None else self.declared)[cohort],
            task,
            state,
            send,
            self.memory,
            task.needed and not bool(torch.isin(cohort, self.spare).all()),
        )

    def gather(self, got: Mapping[int, Reply]) -> Replies:
        """Replies in the order of client ids, whatever order they came in."""
        order = sorted(got)
        clients = torch.tensor(order, dtype=torch.long)
        if not order:
            return Replies(clients, torch.empty(0, self.layout.size), self.sizes[clients])
        extra = got[order[0]].extra
        return Replies(
            clients,
            self.backend.stack([got[i].value for i in order]),
            self.sizes[clients],
            {name: self.backend.stack([got[i].extra[name] for i in order]) for name in extra},
            self.most,
        )


def largest(rows: Tensor) -> Tensor:
    """(m,) the largest number of each row, whatever its sign: (m, ...) -> (m,) float64."""
    return rows.reshape(len(rows), -1).abs().amax(1).double()
