"""The door: an answer is looked at before a number of it is used, whoever brings it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from coterie.core.answers import Fault, Form, form_of, not_finite, too_large
from coterie.core.types import AnswerForm, Reply


def judge(reply: Reply, form: AnswerForm | None, *, train: bool) -> Fault | None:
    """Why an answer cannot be used, or nothing.

    Without a form there is nothing to hold it against but arithmetic, and in a test not even that:
    NaN may mean that there is nothing to test. What a client keeps for itself must be finite, too:
    a model that never leaves it has diverged as well as one that does.
    """
    got = named(reply)
    if form is not None:
        wanted = {name.removeprefix("extra."): f for name, f in form.items()}
        if wanted.keys() != got.keys():
            return Fault(f"expected {sorted(wanted)}, got {sorted(got)}")
        found = (wanted[name].fault(called(name), t) for name, t in got.items())
    else:
        found = (too_large(called(name), t) for name, t in got.items() if train)
    kept = (not_finite(name, t) for name, t in reply.keep.items() if train)
    return next(filter(None, (*found, *kept)), None)


def named(reply: Reply) -> dict[str, Tensor]:
    """All that a reply sends, by name."""
    return {"value": reply.value, **reply.extra}


def called(name: str) -> str:
    """A part of an answer as it is called to people."""
    return "update" if name == "value" else name


def odd_ones(answers: Mapping[int, Reply]) -> dict[int, str]:
    """Those whose answers do not have the form that most have, and how they differ.

    Answers are stacked, so they must be alike. Where the form is known beforehand this finds
    nothing; a tie is decided for the client asked first.
    """
    parts = (named(reply).items() for reply in answers.values())
    if len({tuple((n, t.dtype, t.shape) for n, t in several) for several in parts}) < 2:
        return {}  # as nearly always
    kinds = {
        i: tuple(sorted((n, form_of(t)) for n, t in named(reply).items()))
        for i, reply in sorted(answers.items())
    }
    usual = Counter(kinds.values()).most_common(1)[0][0]

    def words(kind: tuple[tuple[str, Form], ...]) -> str:
        return ", ".join(f"{name} {form}" for name, form in kind)

    return {
        i: f"expected {words(usual)} as most sent, got {words(kind)}"
        for i, kind in kinds.items()
        if kind != usual
    }
