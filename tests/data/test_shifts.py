"""Images under another camera: what contrast, noise and blur change, and what they leave alone."""

from __future__ import annotations

import pytest
import torch

from coterie.core.errors import DataError
from coterie.data.divide.shifts import blurred, shifted
from coterie.data.population import Population, partition


def clients(kind: str, **more: int) -> Population:
    return partition("digits", kind, 8, **more)


def test_the_first_group_sees_what_there_is() -> None:
    plain, made = clients("iid"), clients("contrast+noise+blur")
    assert torch.equal(plain[0].x, made[0].x)
    assert torch.equal(plain[0].x_test, made[0].x_test)
    assert not torch.equal(plain[7].x, made[7].x)
    assert all(torch.equal(plain[i].y, made[i].y) for i in range(8))


def test_contrast_keeps_the_mean_of_an_image_and_scales_its_deviation() -> None:
    plain, made = clients("iid")[7].x, clients("contrast:1,0.25")[7].x
    assert torch.allclose(plain.mean((1, 2, 3)), made.mean((1, 2, 3)), atol=1e-5)
    assert torch.allclose(0.25 * plain.std((1, 2, 3)), made.std((1, 2, 3)), atol=1e-5)


def test_noise_has_the_deviation_asked_for_and_is_the_same_every_time() -> None:
    plain, made = clients("iid")[7].x, clients("noise:0,2")[7].x
    assert float((made - plain).std()) == pytest.approx(2, abs=0.1)
    assert torch.equal(made, clients("noise:0,2")[7].x)
    assert not torch.equal(made[0] - plain[0], made[1] - plain[1])


def test_the_noise_of_a_sample_is_its_own_in_whatever_company() -> None:
    x, index = torch.zeros(4, 1, 3, 3), torch.tensor([2, 5, 600, 9])
    whole = shifted(x, index, (1.0, 1.0, 0.0), (0, "train"))
    some = shifted(x[1:3], index[1:3], (1.0, 1.0, 0.0), (0, "train"))
    assert torch.equal(whole[1:3], some)


def test_blur_keeps_what_is_flat_and_smooths_the_rest_alike_in_both_directions() -> None:
    x = torch.randn(2, 3, 9, 9)
    made = blurred(x, 1.0)
    assert float(made.std()) < float(x.std())
    assert torch.allclose(blurred(x.transpose(-2, -1), 1.0), made.transpose(-2, -1), atol=1e-6)


def test_groups_are_the_levels_and_drift_takes_the_look_along() -> None:
    made = clients("contrast:1,0.1+drift:3,0.5")
    assert made.group is not None
    assert made.group.tolist() == [0] * 4 + [1] * 4
    later = made.at(3)
    moved = [i for i in range(8) if not torch.equal(made[i].y, later[i].y)]
    assert moved
    assert made.partition.moves is not None
    other = int(made.partition.moves[moved[0]])
    assert torch.equal(later[moved[0]].x, made[other].x)


def test_what_is_no_image_has_no_blur() -> None:
    with pytest.raises(DataError, match="no blur"):
        partition((torch.zeros(20, 3), torch.arange(20) % 2), "blur", 4)
