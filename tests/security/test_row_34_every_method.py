"""Row 34: what each method sends, and what an attacker makes of it: the table of the scorecard.

Every method is played; each kind of upload of each task is attacked once, for a client of one
sample that takes one step, and the labels of all clients are told from what they really sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from coterie.audit.findings import LIKENESS, Labels, Rebuilt
from coterie.audit.uploads import Upload
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.data.population import partition
from coterie.methods import METHODS
from coterie.studies.audits.auditing import ONE, Auditor
from coterie.studies.run.training import build_layout
from coterie.tasks import Solver
from tests.test_contract import method

# One process attacks them all, lest each attacks the same upload again.
pytestmark = [pytest.mark.row(34), pytest.mark.thorough, pytest.mark.xdist_group("leaks")]
SOLVER = Solver(lr=0.05, epochs=1, batch=32)
SETTINGS = {"fedbn": {"private": "conv1"}}


@cache
def auditor() -> Auditor:
    people = partition("digits", "dirichlet:0.5 + rotation:0,90", clients=6, public=1)
    return Auditor(people, build_layout("cnn-s", people.shape, people.classes), steps=200)


@cache
def played(name: str) -> dict[str, list[Upload]]:
    """What clients of a method sent first, by task."""
    fed = auditor().federation()
    for _ in run(method(name, solver=SOLVER, fraction=1.0, **SETTINGS.get(name, {})), fed, 2):
        pass
    return fed.first


_attacked: dict[tuple[str, ...], list[Rebuilt]] = {}


def rebuilt(uploads: list[Upload]) -> list[Rebuilt]:
    """The best picture from each tensor that may show one."""
    real = min(uploads, key=lambda one: len(one.client))
    alone, found = real.again(auditor().layout, stream(0, "audit", real.what)), []
    for part in auditor().parts(alone):
        if part.kind in ("numbers", "class counts"):
            continue
        key = (alone.what, getattr(alone.task, "train", "all"), part.kind, part.columns)
        if key not in _attacked:
            _attacked[key] = list(auditor().attacked(alone, part, ONE))
        found.append(max(_attacked[key], key=lambda one: one.psnr))
    return found


def told(name: str) -> tuple[list[Rebuilt], list[Labels]]:
    """What an attacker gets from a method's uploads."""
    first = played(name)
    pictures = {one.source: one for uploads in first.values() for one in rebuilt(uploads)}
    return list(pictures.values()), list(auditor().labels(first))


def words(name: str) -> str:
    """The same in a line."""
    pictures, labels = told(name)
    parts = [f"{one.source} {one.psnr:.0f} dB, {one.verdict}" for one in pictures]
    if labels:
        best = max(labels, key=lambda one: one.overlap)
        parts.append(
            f"labels {100 * best.overlap:.0f} % from {best.source}, {100 * best.blind:.0f} % by an "
            "even guess"
        )
    return "; ".join(parts) or "nothing is sent that was attacked"


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_sends_is_attacked(name: str, figure: Callable[..., None]) -> None:
    sent = sum(part.bytes for them in played(name).values() for part in auditor().parts(them[0]))
    assert (sent > 0) == (name != "local")
    figure(f"audit `{name}`", words(name))


def test_a_sample_comes_back_from_whole_weights_and_not_from_forces() -> None:
    """The control, and CFLGT's claim."""
    found = {one.source: one for one in told("cflgt")[0]}
    assert found["weights (Train)"].psnr >= LIKENESS
    assert found["forces (Trajectory)"].verdict == "not rebuilt"


def test_class_counts_tell_labels_better_than_what_is_trained() -> None:
    found = {one.source: one.overlap for one in told("dapfl")[1]}
    assert found["class counts (Histogram)"] == 1.0
    assert found["weights (Train)"] < 1.0


def test_who_trains_alone_sends_nothing() -> None:
    assert told("local") == ([], [])
