"""The picture of an inspection: the clients' trajectories, and what every threshold would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from coterie.report.charts.style import plain


def figure(heads: tuple[str, str]) -> Any:
    """An empty Plotly figure of two parts, one above the other, each under its head."""
    from plotly.subplots import make_subplots

    parts = [[{}], [{"secondary_y": True}]]
    return make_subplots(rows=2, cols=1, specs=parts, subplot_titles=heads)


def add_trajectories(
    drawn: Any,
    values: Tensor,  # (n, 2, C) pull and push of each class
    names: Sequence[str],  # n
    classes: Sequence[str],  # C
    labels: Sequence[int],  # n
    kind: str,  # of the labels: cluster or group
) -> None:
    """The gradient trajectories of n clients through C classes, each in the colour of its label."""
    from plotly.colors import qualitative

    place = {"row": 1, "col": 1}
    met: set[int] = set()
    for name, label, (pull, push) in zip(names, labels, values.tolist(), strict=True):
        drawn.add_scatter(
            x=pull,
            y=push,
            mode="lines+markers",
            name=f"{kind} {label}",
            legendgroup=f"{kind} {label}",
            showlegend=label not in met,
            line={"color": qualitative.Plotly[label % len(qualitative.Plotly)], "width": 1},
            text=[plain(c) for c in classes],
            hovertemplate=f"client {plain(name)}<br>class %{{text}}<extra></extra>",
            **place,
        )
        met.add(label)
    drawn.update_xaxes(title="pull", **place)
    drawn.update_yaxes(title="push", **place)


def add_thresholds(
    drawn: Any, threshold: Tensor, clusters: Tensor, silhouette: Tensor, chosen: float
) -> None:
    """Clusters and silhouette at every threshold as steps, and the one that would be chosen."""
    place = {"row": 2, "col": 1}
    steps = {"x": threshold.tolist(), **place, "line": {"shape": "hv"}}
    drawn.add_scatter(y=clusters.tolist(), name="clusters", **steps)
    drawn.add_scatter(y=silhouette.tolist(), name="silhouette", secondary_y=True, **steps)
    text = f"automatic: {chosen:.3g}"
    drawn.add_vline(chosen, line_dash="dot", annotation_text=text, **place)
    drawn.update_xaxes(title="threshold", **place)
    drawn.update_yaxes(title="clusters", **place, secondary_y=False)
    drawn.update_yaxes(title="silhouette", **place, secondary_y=True)
