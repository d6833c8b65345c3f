"""What leaves the clients of a method, and what a curious server makes of it: `coterie audit`.

The method is played as it would be, in this process, and what some clients send is attacked: as it
was sent, and as the same task would send it for a client of one sample that takes one step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from coterie.audit import controls, labels, membership, rebuilding
from coterie.audit.findings import Audit, Control, Labels, Members, Rebuilt, Sent
from coterie.audit.labels import Guess
from coterie.audit.pictures import Frame, closest, psnr, ssim
from coterie.audit.uploads import TELLS, Part, Upload, parts_of
from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.model_kind import kind_of
from coterie.core.rng import stream
from coterie.core.types import Method, State
from coterie.core.units import count
from coterie.data.population import Population
from coterie.studies.audits.watching import Traffic, Watched, some_of, told_by
from coterie.studies.run import private

ROUNDS = 30  # played at most: CFLGT asks for its forces after 25
CLIENTS = 20  # looked at
SAMPLES = 2_000  # of all clients together, for the mean picture and the controls
TOGETHER = 4  # samples rebuilt at once from what was really sent
ONE, REAL = "one sample, one step", "as sent"


def source_of(upload: Upload, part: Part) -> str:
    """What was sent, in a few words."""
    return f"{part.kind} ({upload.what.partition(' ')[0]})"


class Auditor:
    """One network on one population, whose controls are done once for all methods."""

    def __init__(
        self,
        population: Population,
        layout: Layout,
        *,
        seed: int = 0,
        clients: int = CLIENTS,
        steps: int = rebuilding.STEPS,
    ) -> None:
        if population.remote:
            raise ConfigError(
                "the clients of this run are on machines of their own",
                code="C071",
                why="an audit compares what is rebuilt with the samples themselves",
                fix="audit its experiment file on data of your own: `coterie audit FILE`",
            )
        self.population, self.layout, self.seed, self.steps = population, layout, seed, steps
        self.who = some_of(population.sizes, clients)
        people = [population[i] for i in self.who]
        self.x = torch.cat([c.x for c in people])[:SAMPLES]
        self.y = torch.cat([c.y for c in people])[:SAMPLES]
        others = [c.x for c in people[1:]] or [people[0].x]
        self.frame = Frame.of(population.scaling, torch.cat(others)[:SAMPLES])
        self.smallest = people[0]

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """Attacks that must succeed, and attacks that must fail."""
        many = self.x, self.y, self.population.classes
        return controls.all_of(self.layout, self.frame, self.smallest, *many, self.seed)

    def audit(
        self,
        method: Method,
        name: str,
        *,
        rounds: int,
        planned: int,
        end: State | None = None,
        memories: Mapping[int, Mapping[str, Tensor]] | None = None,
        traffic: Mapping[str, Traffic] | None = None,
    ) -> Audit:
        """Play `rounds` of the `planned` rounds of a method, and attack what was sent.

        Of a run that is over, `end` is its last state, with the clients' private memories: who was
        trained on is told from its models, and one more round of it; `traffic` are its records.
        """
        began = time.perf_counter()
        fed = self.federation()
        for state in run(method, fed, planned):
            if state.round >= rounds:
                break
        first, seen = dict(fed.first), told_by(fed.traffic, traffic or {})
        last = self.another_round(method, end or state, planned, memories or fed.memories())
        played = {what.partition(" ")[0] for what in first}
        notes = [
            f"{task} was not asked in {count(state.round, 'round')} played: it is not attacked"
            for task in sorted(set(traffic or {}) - played)
        ]
        return Audit(
            name,
            tuple(self.population.names[i] for i in self.who),
            state.round,
            tuple(self.sent(first, seen)),
            tuple(self.rebuilt(first)),
            tuple(self.labels(first)),
            tuple(self.members(method, end or state, last)),
            self.controls,
            tuple(notes),
            private.words(method),
            seconds=round(time.perf_counter() - began, 2),
        )

    def federation(self) -> Watched:
        """The clients, watched."""
        them = self.population
        return Watched(
            them,
            self.layout,
            classes=them.classes,
            seed=self.seed,
            sizes=them.sizes,
            names=them.names,
            public=them.public,
            groups=them.group,
            columns=them.columns,
            who=self.who,
        )

    def another_round(
        self,
        method: Method,
        state: State,
        planned: int,
        memories: Mapping[int, Mapping[str, Tensor]],
    ) -> Mapping[str, Sequence[Upload]]:
        """What everybody sends in one round after a state; nothing of it is kept."""
        fed = self.federation()
        fed.restore(memories)
        fed.everybody = state.round + 1
        for _ in run(method, fed, max(planned, state.round + 1), state):
            if fed.last:
                break
        return fed.last

    def sent(
        self, first: Mapping[str, Sequence[Upload]], traffic: Mapping[str, Traffic]
    ) -> Iterator[Sent]:
        """What left a client, tensor by tensor."""
        for task, uploads in first.items():
            how = traffic.get(task, Traffic(uploads[0].round, 0, 0))
            for part in self.parts(uploads[0]):
                rest = (how.first, how.rounds, how.answers, TELLS[part.kind])
                sent = f"{task}: {part.name}" if part.name else task
                yield Sent(sent, part.kind, part.bytes, *rest)

    def parts(self, upload: Upload) -> list[Part]:
        """An answer taken apart."""
        return parts_of(upload, self.layout, self.population.classes)

    # -- samples ----------------------------------------------------------------------------------

    def rebuilt(self, first: Mapping[str, Sequence[Upload]]) -> Iterator[Rebuilt]:
        """Samples of the smallest client, from each kind of what it sent first."""
        done = set()
        for task, uploads in first.items():
            real = min(uploads, key=lambda one: len(one.client))
            alone = real.again(self.layout, stream(self.seed, "audit", task))
            for upload, setting in ((alone, ONE), (real, REAL)):
                for part in self.parts(upload):
                    key = (part.kind, part.columns, setting)
                    if part.kind in ("numbers", "class counts") or key in done:
                        continue
                    done.add(key)
                    yield from self.attacked(upload, part, setting)
                    if part.kind == "weights" and setting == ONE and self.layout.head_name:
                        head = self.head_alone(part)
                        yield from self.attacked(upload, head, setting) if head else ()

    def head_alone(self, part: Part) -> Part | None:
        """The last layer of the weights that were sent, as if it had been sent alone."""
        if part.columns != "all":
            return None
        value = part.value[self.layout.columns("head")]
        return Part(part.name, "last layer", value, "head")

    def attacked(self, upload: Upload, part: Part, setting: str) -> Iterator[Rebuilt]:
        """All that can be rebuilt from one tensor."""
        count = min(len(upload.client), TOGETHER)
        source = source_of(upload, part)
        rng = stream(self.seed, "audit", source, setting)
        how = {"steps": self.steps}
        if part.kind == "subspace":
            found = rebuilding.shown(part.value, self.frame)
            yield self.judged(found, upload.client, True, source, setting, "shown as it is")
            return
        if part.kind == "forces":
            y = labels.most_likely(labels.from_forces(part.value, len(upload.client)), count)
            row = upload.start(self.layout)
            found = rebuilding.pulled(row, part.value, self.layout, self.frame, y, rng, **how)
            works = controls.works(self.controls, "matching")
            yield self.judged(found, upload.client, works, source, setting, "matching")
            return
        seen = rebuilding.gradient_of(upload, part, self.layout)
        shape = tuple(upload.client.x.shape[1:])
        exact = rebuilding.analytic(seen, self.layout, shape)
        if exact is not None:
            works = controls.works(self.controls, "analytic")
            yield self.judged(exact, upload.client, works, source, setting, "analytic")
        y = labels.most_likely(self.guess(seen, len(upload.client), upload.client), count)
        found = rebuilding.matched(seen, self.layout, self.frame, y, rng, **how)
        works = controls.works(self.controls, "matching")
        yield self.judged(found, upload.client, works, source, setting, "matching")

    def guess(self, seen: rebuilding.Gradient, n: int, client: Client) -> Tensor:
        """(C,) labels by the head's bias; who does not see the head is told them."""
        bias = labels.bias_of(seen, self.layout)
        if bias is None:
            return torch.bincount(client.y, minlength=self.population.classes).float()
        probs = labels.expected(self.layout, seen.row, self.frame, stream(self.seed, "probes"))
        return labels.from_bias(bias, probs, n)

    def judged(
        self, found: Tensor, client: Client, works: bool, source: str, setting: str, attack: str
    ) -> Rebuilt:
        """The guess that is nearest to a sample of the client's, beside it."""
        guesses, originals = self.frame.pixels(found), self.frame.pixels(client.x)
        i, j = closest(guesses, originals)
        a, b, span = guesses[i], originals[j], self.frame.high - self.frame.low
        return Rebuilt.judged(
            works,
            source=source,
            setting=setting,
            attack=attack,
            psnr=psnr(a, b, span),
            ssim=ssim(a, b, span),
            blind=max(psnr(self.frame.typical, one, span) for one in originals),
            original=b,
            guess=a,
            low=self.frame.low,
            high=self.frame.high,
        )

    # -- labels -----------------------------------------------------------------------------------

    def labels(self, first: Mapping[str, Sequence[Upload]]) -> Iterator[Labels]:
        """How many labels of the clients looked at each kind of upload tells."""
        for uploads in first.values():
            tables: dict[str, list[Guess]] = {}
            for upload in uploads:
                true = torch.bincount(upload.client.y, minlength=self.population.classes).float()
                for part in self.parts(upload):
                    guess = self.counts(upload, part)
                    if guess is not None:
                        source = source_of(upload, part)
                        there = self.classes_told(guess, part)
                        right = bool((there == (true > 0)).all())
                        tables.setdefault(source, []).append(Guess(guess, true, right))
            for source, pairs in tables.items():
                yield self.told(source, pairs)

    def counts(self, upload: Upload, part: Part) -> Tensor | None:
        """(C,) the labels of a client, as one tensor tells them; None if it tells none."""
        n = len(upload.client)
        if part.kind == "class counts":
            return labels.shared_out(part.value.reshape(-1, self.population.classes).sum(0), n)
        if part.kind == "forces":
            return labels.from_forces(part.value, n)
        if part.kind not in ("weights", "last layer", "gradient"):
            return None
        seen = rebuilding.gradient_of(upload, part, self.layout)
        known = labels.bias_of(seen, self.layout) is not None
        return self.guess(seen, n, upload.client) if known else None

    def classes_told(self, guess: Tensor, part: Part) -> Tensor:
        """(C,) whether each class is there: a class that is not exerts no force at all."""
        if part.kind == "forces":
            return part.value[0] > 0
        return guess >= 0.5

    def told(self, source: str, pairs: Sequence[Guess]) -> Labels:
        """What guesses of label counts are worth, beside the true ones."""
        share = sum(labels.overlap(one.guess, one.true) for one in pairs) / len(pairs)
        blind = sum(labels.overlap(labels.even(one.true), one.true) for one in pairs) / len(pairs)
        sets = sum(one.set_right for one in pairs)
        if share > 0.99:
            verdict = "told exactly"
        elif share > blind + 0.1:
            verdict = "told in part"
        else:
            works = controls.works(self.controls, "labels")
            verdict = "not told" if works else "not conclusive"
        rest = round(share, 4), round(blind, 4), sets, verdict
        return Labels(source, REAL, len(pairs), *rest)

    # -- who was trained on -----------------------------------------------------------------------

    def members(
        self, method: Method, state: State, last: Mapping[str, Sequence[Upload]]
    ) -> Iterator[Members]:
        """Of each cluster by its model, and of each client looked at by what it sent last."""
        people, kind = self.population.at(state.round), kind_of(method, state)
        if kind != "personal" and method.score.private == "none":
            for c in state.assign[state.placed].unique().tolist():
                mine = [people[i] for i in (state.assign == c).nonzero().flatten().tolist()]
                whose = f"cluster {c}" if kind == "clustered" else "all clients"
                yield from self.one(whose, "the model they share", state.models[c], mine)
        for uploads in last.values():
            for upload in uploads:
                for part in self.parts(upload):
                    if part.kind == "weights" and part.columns == "all" and part.value.ndim == 1:
                        name = upload.client.name
                        source = f"its upload ({upload.what})"
                        yield from self.one(f"client {name}", source, part.value, [upload.client])

    def one(
        self, whose: str, source: str, row: Tensor, people: Sequence[Client]
    ) -> Iterator[Members]:
        """The area for one model; nothing where there is nobody to compare with."""
        inside = [membership.losses(self.layout, row, c.x, c.y) for c in people if len(c)]
        tested = [c for c in people if len(c.y_test)]
        outside = [membership.losses(self.layout, row, c.x_test, c.y_test) for c in tested]
        if not inside or not outside:
            return
        found = membership.area(torch.cat(inside)[:SAMPLES], torch.cat(outside)[:SAMPLES])
        if found.low > 0.5:
            verdict = "told" if found.auc >= 0.6 else "hardly told"
        else:
            works = controls.works(self.controls, "membership")
            verdict = "not told" if works else "not conclusive"
        yield Members(whose, source, found, verdict)
