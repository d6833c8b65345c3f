"""Row 34: what of a sample and of labels can be rebuilt from what a client sends, and what not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from coterie.audit import controls, labels, rebuilding
from coterie.audit.findings import LIKENESS, OUTLINE, Control, Rebuilt
from coterie.audit.pictures import psnr, ssim
from coterie.audit.uploads import Upload, parts_of, what_of
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import Client, Task
from coterie.methods.cflgt import CFLGT
from coterie.methods.dapfl import DAPFL
from coterie.methods.fedclust import FedClust
from coterie.methods.partial import FedRep
from coterie.studies.audits import running as audits
from coterie.tasks import Basis, Histogram, Solver, Train, TrainHalves, Trajectory
from tests.security.audited import auditor, people, small

pytestmark = pytest.mark.row(34)
Figure = Callable[..., None]
FRAME = auditor().frame
SPAN = FRAME.high - FRAME.low


def upload(task: Task, client: Client) -> Upload:
    """What a task really sends for a client."""
    layout = small()
    whole = layout.initial[layout.columns(task.download)]
    models = torch.empty(0) if task.receives == "nothing" else whole
    reply = task(client, models, {}, layout, stream(0, "upload"))
    return Upload(task, 1, 0, client, models, {}, reply.value, reply.extra)


def single(i: int = 0) -> Client:
    client = people()[i]
    return replace(client, x=client.x[:1], y=client.y[:1])


def likeness(found: Tensor, client: Client) -> float:
    return psnr(FRAME.pixels(found[0]), FRAME.pixels(client.x[0]), SPAN)


@pytest.mark.parametrize("i", range(3))
def test_one_sample_is_read_exactly_off_a_first_dense_layer(i: int, figure: Figure) -> None:
    shape, client = people().shape, single(i)
    layout = controls.dense_network(shape, people().classes, seed=i)
    seen = controls.gradient_at(layout, layout.initial, client.x, client.y)
    found = rebuilding.analytic(seen, layout, shape)
    assert found is not None
    figure("control: least dB from a dense layer", round(likeness(found, client)), by="least")
    assert likeness(found, client) >= 40


def test_a_convolution_gives_nothing_to_read_off() -> None:
    client = single()
    seen = controls.gradient_at(small(), small().initial, client.x, client.y)
    assert rebuilding.analytic(seen, small(), people().shape) is None


def test_one_step_of_training_sends_the_gradient() -> None:
    client = single()
    sent = upload(Train(Solver(lr=0.05)), client).again(small(), stream(0, "again"))
    (part,) = parts_of(sent, small(), people().classes)
    seen = rebuilding.gradient_of(sent, part, small())
    true = controls.gradient_at(small(), small().initial, client.x, client.y)
    torch.testing.assert_close(seen.value, true.value, rtol=1e-3, atol=1e-5)


def test_the_image_comes_back_from_the_whole_gradient(figure: Figure) -> None:
    client = single()
    seen = controls.gradient_at(small(), small().initial, client.x, client.y)
    found = rebuilding.matched(seen, small(), FRAME, client.y, stream(0, "attack"))
    figure("control: dB from the whole gradient", round(likeness(found, client)), by="least")
    assert likeness(found, client) >= LIKENESS
    assert ssim(FRAME.pixels(found[0]), FRAME.pixels(client.x[0]), SPAN) > 0.9


@pytest.mark.parametrize("i", range(2))
def test_the_image_does_not_come_back_from_the_averaged_forces(i: int, figure: Figure) -> None:
    client = single(i)
    sent = upload(Trajectory(), client)
    assert sent.value.numel() == 2 * people().classes  # that is all there is to see
    found = rebuilding.pulled(
        small().initial, sent.value, small(), FRAME, client.y, stream(0, "attack")
    )
    blind = psnr(FRAME.typical, FRAME.pixels(client.x[0]), SPAN)
    figure("most dB from averaged forces", round(likeness(found, client), 1), by="most")
    figure("most dB of the mean picture, without an attack", round(blind, 1), by="most")
    assert likeness(found, client) < max(OUTLINE, blind)


def test_nothing_comes_back_from_noise(figure: Figure) -> None:
    client = single()
    seen = controls.gradient_at(small(), small().initial, client.x, client.y)
    noise = controls.noise_like(seen, stream(0, "noise"))
    found = rebuilding.matched(noise, small(), FRAME, client.y, stream(0, "attack"), starts=1)
    figure("control: dB from noise", round(likeness(found, client), 1), by="most")
    assert likeness(found, client) < OUTLINE


def test_a_subspace_of_one_sample_shows_it() -> None:
    client = single()
    found = rebuilding.shown(upload(Basis(3), client).value, FRAME)
    assert len(found) == 1
    assert likeness(found, client) >= LIKENESS


def test_labels_are_told_by_the_bias_and_not_by_noise() -> None:
    found = {c.name: c for c in controls.of_labels(small(), FRAME, auditor().x, auditor().y, 0)}
    assert found["the label of one sample"].value >= 0.9
    assert found["noise in place of the gradient"].value < 0.5


def test_a_histogram_tells_every_label_and_forces_the_set_of_them(figure: Figure) -> None:
    classes = people().classes
    first = {
        "Histogram": [upload(Histogram(classes), client) for client in people()],
        "Trajectory": [upload(Trajectory(), client) for client in people()],
    }
    counts, forces = auditor().labels(first)
    figure("share of labels told by class counts", counts.overlap, by="least")
    figure("share of labels told by forces", round(forces.overlap, 2), by="least")
    figure("share of labels told by an even guess", round(forces.blind, 2), by="most")
    assert (counts.overlap, counts.sets, counts.verdict) == (1.0, len(people()), "told exactly")
    assert forces.sets == len(people())
    assert forces.overlap > forces.blind


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (Train(), "weights"),
        (Train(upload="head"), "last layer"),
        (Train(private="head"), "weights"),
        (TrainHalves(), "last layer"),
        (Histogram(10), "class counts"),
        (Trajectory(), "forces"),
        (Basis(3), "subspace"),
    ],
    ids=lambda given: what_of(given) if isinstance(given, Task) else given,
)
def test_what_a_task_sends_is_known_by_its_kind(task: Task, kind: str) -> None:
    parts = parts_of(upload(task, single()), small(), people().classes)
    assert [part.kind for part in parts] == [kind]


def test_a_number_that_is_sent_along_is_told_apart_from_weights() -> None:
    sent = upload(Train(report=("loss", "steps")), single())
    kinds = {part.name: part.kind for part in parts_of(sent, small(), people().classes)}
    assert kinds == {"": "weights", "loss": "numbers", "steps": "numbers"}


@pytest.mark.parametrize("worked", [True, False])
def test_an_attack_whose_control_failed_is_not_called_safe(worked: bool) -> None:
    control = Control("it works", "matching", "succeed", 0, "dB", "20", passed=worked)
    blank = torch.zeros(1, 2, 2)
    how = {"source": "", "setting": "", "attack": "", "ssim": 0.0, "original": blank}
    found = Rebuilt.judged(
        controls.works([control], "matching"), psnr=5.0, blind=9.0, guess=blank, **how
    )
    assert found.verdict == ("not rebuilt" if worked else "not conclusive")


@pytest.mark.slow
def test_a_whole_audit_tests_the_claim_of_cflgt(tmp_path: Path) -> None:
    solver = Solver(lr=0.05, epochs=1)
    found = auditor().audit(CFLGT(solver=solver, pretrain=1), "cflgt", rounds=2, planned=2)
    assert found.sound
    verdicts = {(r.source, r.setting): r for r in found.rebuilt}
    one = "one sample, one step"
    assert verdicts["weights (Train)", one].psnr >= LIKENESS
    forces = verdicts["forces (Trajectory)", one]
    assert forces.psnr < max(OUTLINE, forces.blind)
    assert forces.verdict == "not rebuilt"
    assert {(s.what, s.bytes) for s in found.sent} == {
        ("Train", small().initial.nbytes),
        ("Trajectory", 80),
    }
    page, data, table = audits.write(tmp_path, [found], "Audit", "coterie audit")
    assert page.read_text().count("data:image/png;base64,") == 2 * len(found.rebuilt)
    assert json.loads(data.read_text())[0]["sound"] is True
    assert len(table.read_text().splitlines()) > len(found.rebuilt)


def test_uploads_of_other_methods_are_told_by_their_kind() -> None:
    solver = Solver(lr=0.05, steps=1)
    kinds = {}
    for method in (DAPFL(solver), FedClust(solver, warmup_epochs=1), FedRep(solver)):
        fed = auditor().federation()
        for _ in run(method, fed, 1):
            pass
        sent = auditor().sent(fed.first, fed.traffic)
        kinds[type(method).__name__] = {one.what: one.kind for one in sent}
    assert kinds == {
        "DAPFL": {"Histogram": "class counts", "Train": "weights"},
        "FedClust": {"Train (head)": "last layer", "Train": "weights"},
        "FedRep": {"PrivateFirst": "weights"},
    }


def test_guesses_of_labels_share_out_all_samples() -> None:
    for bias in (torch.randn(10), torch.full((10,), 5.0)):
        guess = labels.from_bias(bias, torch.full((10,), 0.1), 7)
        assert float(guess.sum()) == pytest.approx(7)
        assert len(labels.most_likely(guess, 7)) == 7
