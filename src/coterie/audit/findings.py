"""What an audit found, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from coterie.audit.membership import Area
from coterie.core.units import count

LIKENESS = 20.0  # dB: whoever knows the sample knows the picture
OUTLINE = 15.0  # dB: below this there is nothing of it
Verdict = Literal["rebuilt", "in outline", "not rebuilt", "not conclusive"]


@dataclass(frozen=True)
class Sent:
    """One tensor that a task sends: how often it left a client, and how large it is."""

    what: str  # the task, and the name of what it sends along
    kind: str
    bytes: int  # each time
    first: int  # round; 0: before the first
    rounds: int  # in how many it was asked
    answers: int  # of all clients together
    tells: str


@dataclass(frozen=True)
class Rebuilt:
    """A sample as it is, and as an attack rebuilt it."""

    source: str  # what was sent
    setting: str  # one sample, one step; or as sent
    attack: str
    psnr: float
    ssim: float
    blind: float  # dB of the mean picture of others' samples: what needs no attack
    verdict: Verdict
    original: Tensor = field(repr=False)  # pixels, within the frame
    guess: Tensor = field(repr=False)
    low: float = 0.0  # of pixels
    high: float = 1.0

    @classmethod
    def judged(cls, works: bool, *, psnr: float, blind: float, **rest: Any) -> Rebuilt:
        """With its verdict: a failure means something only where the attack is known to work."""
        verdict: Verdict = "not rebuilt" if works else "not conclusive"
        if psnr >= LIKENESS and psnr > blind:
            verdict = "rebuilt"
        elif psnr >= OUTLINE and psnr > blind:
            verdict = "in outline"
        return cls(psnr=psnr, blind=blind, verdict=verdict, **rest)


@dataclass(frozen=True)
class Labels:
    """How much of the labels of some clients an upload tells."""

    source: str
    setting: str
    clients: int
    overlap: float  # mean share of labels guessed right
    blind: float  # of an even guess, which needs no upload
    sets: int  # of so many clients the set of classes is exactly right
    verdict: str


@dataclass(frozen=True)
class Members:
    """How well one can tell who was trained on."""

    whose: str  # a cluster, or a client
    source: str  # from which model
    area: Area
    verdict: str


@dataclass(frozen=True)
class Control:
    """An attack that must succeed, or must fail, for the others to mean anything."""

    name: str
    attack: str  # the attacks whose failures it makes conclusive
    must: str  # succeed, fail
    value: float
    unit: str
    limit: str
    passed: bool


@dataclass(frozen=True)
class Audit:
    """What leaves the clients of a method, and what an attacker gets from it."""

    method: str
    audited: tuple[str, ...]  # clients whose uploads were looked at
    rounds: int  # that were played
    sent: tuple[Sent, ...]
    rebuilt: tuple[Rebuilt, ...]
    labels: tuple[Labels, ...]
    members: tuple[Members, ...]
    controls: tuple[Control, ...]
    notes: tuple[str, ...] = ()
    privacy: str = ""  # what noise protects, in words
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether every control did what it must."""
        return all(control.passed for control in self.controls)

    @property
    def sentence(self) -> str:
        """The verdict in a line."""
        best = max(self.rebuilt, key=lambda r: r.psnr, default=None)
        told = f"{self.method}: "
        if best is None:
            told += "nothing that it sends can be rebuilt from"
        else:
            told += f"at worst a sample is {best.verdict} ({best.psnr:.1f} dB, {best.source}, "
            told += f"{best.setting})"
        if self.labels:
            most = max(self.labels, key=lambda found: found.overlap)
            told += f"; {100 * most.overlap:.0f} % of labels told ({most.source})"
        if self.members:
            known = sum(found.verdict == "told" for found in self.members)
            told += (
                f"; who was trained on is told by {known} of {count(len(self.members), 'model')}"
            )
        return told + ("." if self.sound else "; some controls failed.")
