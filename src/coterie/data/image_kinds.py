"""Kinds of partition whose groups see the same things in another way, as by another camera."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MinLen

from coterie.core.bounds import Finite
from coterie.core.bounds import dataclass as checked
from coterie.data.kind import Modifier

Levels = Annotated[tuple[Finite, ...], MinLen(1)]


@checked(frozen=True)
class Contrast(Modifier):
    """Clients come in equal groups, and each group sees its images with its own contrast.

    Every image keeps its mean: x becomes mean + level (x - mean). Groups are assigned as in
    `Rotation`.
    """

    groups_in = "levels"
    levels: Levels = (1.0, 0.5, 0.25, 0.1)  # one a group; 1: as it is, below 0: inverted


@checked(frozen=True)
class Noise(Modifier):
    """Clients come in equal groups, and each group's images have their own amount of noise.

    Gaussian, the same for a sample whenever it is seen, in units of the scaled numbers: with
    data.scaling = "standard", in deviations of the data. Groups are assigned as in `Rotation`.
    """

    groups_in = "levels"
    levels: Levels = (0.0, 0.5, 1.0, 2.0)  # deviation of the noise, one a group


@checked(frozen=True)
class Blur(Modifier):
    """Clients come in equal groups, and each group's images are blurred to its own degree.

    By a Gaussian whose deviation is a share of the image's width, so that it means the same for
    images of any size. Groups are assigned as in `Rotation`.
    """

    groups_in = "levels"
    levels: Levels = (0.0, 0.04, 0.08, 0.12)  # deviation over width, one a group
