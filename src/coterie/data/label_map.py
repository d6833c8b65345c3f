"""The picture of a population: who holds which labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def label_map(
    counts: Tensor, names: Sequence[str], classes: Sequence[str], group: Tensor | None
) -> Any:
    """A plotly heat-map of clients x labels, clients of a group side by side."""
    import plotly.graph_objects as go

    order = torch.arange(len(counts)) if group is None else group.argsort(stable=True)
    rows = [names[i] if group is None else f"{names[i]} (group {int(group[i])})" for i in order]
    figure = go.Figure(
        go.Heatmap(
            z=counts[order].tolist(),
            x=list(classes),
            y=rows,
            colorscale="Viridis",
            colorbar={"title": "samples"},
            hovertemplate="client %{y}<br>label %{x}<br>%{z:,} samples<extra></extra>",
        )
    )
    total = int(counts.sum())
    return figure.update_layout(
        title=f"{len(names):,} clients, {total:,} training samples",
        xaxis={"title": "label", "type": "category"},
        yaxis={"title": "client", "type": "category", "autorange": "reversed"},
    )
