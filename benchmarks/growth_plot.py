"""Seconds and memory over edges, on logarithmic scales, for growth.py."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS, MARKERS = ("#332288", "#cc6677", "#117733"), "osD"
INK, FAINT = "#1f2328", "#d0d4da"


def draw(tables: Mapping[str, Sequence[Any]], exponents: Mapping[str, float], path: Path) -> None:
    """One line for every design in each of two panels, and the slopes of edges to the power 1 and 2."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for (name, fits), colour, marker in zip(tables.items(), COLOURS, MARKERS, strict=False):
        edges = [fit.edges for fit in fits]
        style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.4}
        left.plot(edges, [fit.seconds for fit in fits], label=f"{name}, edges^{exponents[name]:.2f}", **style)
        right.plot(edges, [fit.peak_bytes / 1e9 for fit in fits], **style)
    _slopes(left, [fit for fits in tables.values() for fit in fits])
    for axes, what in ((left, "seconds of the fit"), (right, "GB resident at most")):
        axes.set(xscale="log", yscale="log", xlabel="edges", ylabel=what)
        axes.grid(visible=True, color=FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150, metadata={"Software": None})
    path.write_bytes(content.getvalue())


def _slopes(axes: Any, fits: Sequence[Any]) -> None:
    """Dashed lines of exponent 1 and 2 through the quickest fit."""
    edges = np.geomspace(min(fit.edges for fit in fits), max(fit.edges for fit in fits), 100)
    first, most = min(fit.seconds for fit in fits), max(fit.seconds for fit in fits)
    for power, dash in ((1, "dashed"), (2, "dotted")):
        line = first * (edges / edges[0]) ** power
        seen = line <= 2 * most
        axes.plot(edges[seen], line[seen], color=INK, linestyle=dash, linewidth=0.9, label=f"edges^{power}")
