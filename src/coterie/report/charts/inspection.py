"""The picture of an inspection: the clients' trajectories, and what every threshold would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Trajectories(NamedTuple):
    """The gradient trajectories of n clients through C classes, and the label of each client."""

    values: Tensor  # (n, 2, C) pull and push of each class
    names: Sequence[str]  # n
    classes: Sequence[str]  # C
    labels: Sequence[int]  # n
    kind: str  # of the labels: cluster or group


class Thresholds(NamedTuple):
    """What a cut of the clients' tree at each of T thresholds gives."""

    threshold: Tensor  # (T,)
    clusters: Tensor  # (T,)
    silhouette: Tensor  # (T,)
    chosen: float  # where it is cut if nobody says where


def figure(seen: Trajectories, curve: Thresholds, *, heads: tuple[str, str], title: str) -> Any:
    """A Plotly figure of two parts, one above the other, each under its head."""
    from plotly.subplots import make_subplots

    drawn = make_subplots(
        rows=2, cols=1, specs=[[{}], [{"secondary_y": True}]], subplot_titles=heads
    )
    add_trajectories(drawn, seen, {"row": 1, "col": 1})
    add_thresholds(drawn, curve, {"row": 2, "col": 1})
    return drawn.update_layout(height=900, title=title.replace("\n", "<br>"))


def add_trajectories(drawn: Any, seen: Trajectories, place: Mapping[str, int]) -> None:
    """A line for each client, in the colour of its label."""
    from plotly.colors import qualitative

    met: set[int] = set()
    for name, label, (pull, push) in zip(
        seen.names, seen.labels, seen.values.tolist(), strict=True
    ):
        drawn.add_scatter(
            x=pull,
            y=push,
            mode="lines+markers",
            name=f"{seen.kind} {label}",
            legendgroup=f"{seen.kind} {label}",
            showlegend=label not in met,
            line={"color": qualitative.Plotly[label % len(qualitative.Plotly)], "width": 1},
            text=list(seen.classes),
            hovertemplate=f"client {name}<br>class %{{text}}<extra></extra>",
            **place,
        )
        met.add(label)
    drawn.update_xaxes(title="pull", **place)
    drawn.update_yaxes(title="push", **place)


def add_thresholds(drawn: Any, curve: Thresholds, place: Mapping[str, int]) -> None:
    """Clusters and silhouette as steps, and the threshold that would be chosen."""
    steps = {"x": curve.threshold.tolist(), **place, "line": {"shape": "hv"}}
    drawn.add_scatter(y=curve.clusters.tolist(), name="clusters", **steps)
    drawn.add_scatter(y=curve.silhouette.tolist(), name="silhouette", secondary_y=True, **steps)
    chosen = f"automatic: {curve.chosen:.3g}"
    drawn.add_vline(curve.chosen, line_dash="dot", annotation_text=chosen, **place)
    drawn.update_xaxes(title="threshold", **place)
    drawn.update_yaxes(title="clusters", **place, secondary_y=False)
    drawn.update_yaxes(title="silhouette", **place, secondary_y=True)
