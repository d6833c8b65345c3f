"""The picture of an inspection: the clients' trajectories, and what every threshold would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.studies.inspection import Inspection


def figure(seen: Inspection) -> Any:
    """A plotly figure of two parts, one above the other."""
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    drawn = make_subplots(
        rows=2,
        cols=1,
        specs=[[{}], [{"secondary_y": True}]],
        subplot_titles=(
            f"gradient trajectories, {len(seen.names):,} clients (Hopkins {seen.hopkins:.2f})",
            f"clusters by threshold ({seen.measure})",
        ),
    )
    word = "cluster" if seen.group is None else "group"
    labels = (seen.cut.labels if seen.group is None else seen.group).tolist()
    met: set[int] = set()
    for name, label, (pull, push) in zip(
        seen.names, labels, seen.trajectories.tolist(), strict=True
    ):
        drawn.add_scatter(
            x=pull,
            y=push,
            mode="lines+markers",
            name=f"{word} {label}",
            legendgroup=f"{word} {label}",
            showlegend=label not in met,
            line={"color": qualitative.Plotly[label % len(qualitative.Plotly)], "width": 1},
            text=list(seen.classes),
            hovertemplate=f"client {name}<br>class %{{text}}<extra></extra>",
            row=1,
            col=1,
        )
        met.add(label)
    steps = {"x": seen.curve.threshold.tolist(), "row": 2, "col": 1, "line": {"shape": "hv"}}
    drawn.add_scatter(y=seen.curve.k.tolist(), name="clusters", **steps)
    drawn.add_scatter(
        y=seen.curve.silhouette.tolist(), name="silhouette", secondary_y=True, **steps
    )
    chosen = f"automatic: {seen.cut.threshold:.3g}"
    drawn.add_vline(seen.cut.threshold, line_dash="dot", annotation_text=chosen, row=2, col=1)
    drawn.update_xaxes(title="pull", row=1, col=1)
    drawn.update_yaxes(title="push", row=1, col=1)
    drawn.update_xaxes(title="threshold", row=2, col=1)
    drawn.update_yaxes(title="clusters", row=2, col=1, secondary_y=False)
    drawn.update_yaxes(title="silhouette", row=2, col=1, secondary_y=True)
    return drawn.update_layout(height=900, title=seen.verdict.replace("\n", "<br>"))
