"""Figures, drawn with matplotlib and without touching its global state.

What is told apart by colour is also told apart by shape, letter or dash, so that a grey print can be read.
The same plot gives the same bytes. Two widths are drawn: that of a page, and that of a printed column.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastgrl.errors import MissingExtraError
from fastgrl.reports.curves import AXES, METRICS, Curve, Plot, Point
from fastgrl.reports.tables import QUICK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Safe for the colour-blind, alternating dark and light; the page has a lighter set for dark screens.
PALETTE = (
    "#332288",
    "#88ccee",
    "#117733",
    "#ddcc77",
    "#882255",
    "#44aa99",
    "#cc6677",
    "#999933",
    "#aa4499",
    "#bbbbbb",
)
INK, PAPER, FAINT = "#1f2328", "#ffffff", "#d0d4da"
# Letters on deep and on pale colours; nothing else has these, so that the page can give them others.
ON_DEEP, ON_PALE = "#fdfdfd", "#0f1114"
WIDE, COLUMN = 7.0, 3.4
DPI = 200
_MARKERS = "osD^vPXph*"
_DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.2, 1, 1.2)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 2)),
    (0, (8, 1.5, 2, 1.5)),
    (0, (1, 2.5)),
    (0, (6, 3)),
)
# A log scale in powers of two is needed only where ranks go well beyond the paper's.
_LARGEST_LINEAR_RANK = 32
_LONGEST_LABEL = 32
# A triangle's middle is not where its mark is centred; in points.
_LETTER_SHIFT = {"^": -1.4, "v": 1.4}
# Of the palette, what is dark enough for thin lines.
_LINE_COLOURS = (0, 6, 2, 8, 5, 4, 7)
_FONT = {WIDE: 9.0, COLUMN: 7.0}


def drawn(plot: Plot, *, width: float = WIDE) -> tuple[bytes, bytes]:
    """A figure as PNG and as SVG."""
    with _settings(width):
        figure = _figure(plot, width)
        png = _saved(figure, "png")
        figure.set_layout_engine("none")  # it has its places now, and finding them takes most of the time
        return png, _saved(figure, "svg")


@contextmanager
def _settings(width: float) -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("figures need matplotlib: pip install 'fastgrl[plots]'") from None
    size = _FONT[width]
    settings: dict[Any, Any] = {
        "font.size": size,
        "font.family": "DejaVu Sans",
        "axes.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": size,
        "ytick.labelsize": size,
        "legend.fontsize": size,
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.4,
        "svg.hashsalt": "fastgrl",
        "svg.fonttype": "path",
        "text.parse_math": False,  # a dollar in a label is a dollar
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
        ),
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever a user's own settings are, the bytes are the same
        matplotlib.rcParams.update(settings)
        yield


def _saved(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    date: dict[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(file, format=kind, dpi=DPI, facecolor=PAPER, metadata=date)
    return file.getvalue()


def _figure(plot: Plot, width: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.6 * width), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    keys = _draw_points(axes, plot, width) if plot.points else _draw_curves(axes, plot)
    _legend(figure, width, keys)
    axes.set_ylabel(METRICS.get(plot.spec.metric, plot.spec.metric))
    axes.set_xlabel(AXES.get(plot.spec.axis or "", plot.spec.axis or ""))
    axes.grid(True, color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if plot.quick:
        axes.set_title(QUICK, loc="left")
    return figure


def _draw_points(axes: Axes, plot: Plot, width: float) -> list[tuple[Any, str]]:
    methods = [method.name for method in plot.spec.methods]
    datasets = [dataset.name for dataset in plot.spec.datasets]
    most = max(point.nodes for point in plot.points)
    axes.set_xscale("log")
    # Small marks last, on top of large ones that would hide them; a hidden mark hides its letter too.
    ordered = sorted(plot.points, key=lambda point: (-point.nodes, point.seconds))
    for level, point in enumerate(ordered, 3):
        place = methods.index(point.method.name)
        marker = _MARKERS[datasets.index(point.dataset.name) % len(_MARKERS)]
        size = _diameter(point.nodes / most, width)
        _mark(axes, point, zorder=level, marker=marker, markersize=size, markerfacecolor=_colour(place))
        _write(axes, point, _letter(place), zorder=level, marker=marker, colour=_colour(place))
    axes.margins(0.08, 0.08)
    _ticks_of_seconds(axes, plot)
    return _method_keys(plot) + _dataset_keys(plot)


def _mark(axes: Axes, point: Point, **style: Any) -> None:
    edge: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 0.6, "linestyle": "none"}
    axes.plot([point.seconds], [point.value], **edge, **style)


def _diameter(share: float, width: float) -> float:
    """In points: room for a letter, and beyond it the more the larger the graph is."""
    least, more = (10.5, 5.5) if width == WIDE else (9.5, 4.0)
    return least + more * math.sqrt(share)


def _letter(place: int) -> str:
    return chr(ord("A") + place % 26)


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _write(axes: Axes, point: Point, letter: str, *, zorder: int, marker: str, colour: str) -> None:
    axes.annotate(
        letter,
        (point.seconds, point.value),
        xytext=(0, _LETTER_SHIFT.get(marker, 0.0)),
        textcoords="offset points",
        ha="center",
        va="center_baseline",
        fontsize=_FONT[COLUMN],
        color=ON_DEEP if _deep(colour) else ON_PALE,
        zorder=zorder,
    )


def _deep(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 120


def _ticks_of_seconds(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    times = [point.seconds for point in plot.points]
    crowded = max(times) > 100 * min(times)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if crowded else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _method_keys(plot: Plot) -> list[tuple[Any, str]]:
    present = {point.method.name for point in plot.points}
    return [
        (_key("s", _colour(place)), f"{_letter(place)}  {_drawable(method.label)}")
        for place, method in enumerate(plot.spec.methods)
        if method.name in present
    ]


def _dataset_keys(plot: Plot) -> list[tuple[Any, str]]:
    present = {point.dataset.name for point in plot.points}
    return [
        (_key(_MARKERS[place % len(_MARKERS)], PAPER), f" {_drawable(dataset.label)}")
        for place, dataset in enumerate(plot.spec.datasets)
        if dataset.name in present
    ]


def _key(marker: str, colour: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], marker=marker, color=colour, markeredgecolor=INK, markeredgewidth=0.6, linestyle="none"
    )


def _legend(figure: Figure, width: float, keys: list[tuple[Any, str]]) -> None:
    """To the right of a wide figure; below a narrow one, which grows by as many lines."""
    handles, labels = zip(*keys, strict=True)
    if width == COLUMN:
        lines = math.ceil(len(keys) / 2)
        figure.set_size_inches(width, 2.4 + lines * 1.6 * _FONT[width] / 72)
    figure.legend(
        handles,
        labels,
        loc="outside right upper" if width == WIDE else "outside lower center",
        ncols=1 if width == WIDE else 2,
        frameon=False,
        handlelength=2.6,
        handletextpad=0.5,
        columnspacing=1.2,
        labelspacing=0.5,
    )


def _drawable(text: str) -> str:
    """A label in one line, shortened, with what the font lacks as question marks."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    line = "".join(character if ord(character) in known else "?" for character in " ".join(text.split()))
    return line if len(line) <= _LONGEST_LABEL else line[: _LONGEST_LABEL - 1] + "…"


def _draw_curves(axes: Axes, plot: Plot) -> list[tuple[Any, str]]:
    for curve in plot.curves:
        _draw_curve(axes, curve, _dataset_style(plot, curve) | {"linestyle": _dash(plot, curve)})
    _ticks_of_curves(axes, plot)
    return _curve_keys(plot)


def _dataset_style(plot: Plot, curve: Curve) -> dict[str, Any]:
    place = plot.spec.datasets.index(curve.dataset)
    colour = _colour(_LINE_COLOURS[place % len(_LINE_COLOURS)])
    return {"color": colour, "marker": _MARKERS[place % len(_MARKERS)]}


def _dash(plot: Plot, curve: Curve) -> Any:
    """One for each method, or for each dataset when there is but one method."""
    place = _methods(plot).index(curve.method.label) or (
        plot.spec.datasets.index(curve.dataset) if len(_methods(plot)) == 1 else 0
    )
    return _DASHES[place % len(_DASHES)]


def _methods(plot: Plot) -> list[str]:
    return list(dict.fromkeys(curve.method.label for curve in plot.curves))


def _draw_curve(axes: Axes, curve: Curve, style: dict[str, Any]) -> None:
    bars = [deviation or 0.0 for deviation in curve.deviation]
    spread = bars if any(bars) else None
    axes.errorbar(curve.x, curve.y, yerr=spread, markersize=3.5, capsize=2, elinewidth=0.7, **style)
    if curve.apart:
        x, y = zip(*curve.apart, strict=True)
        axes.plot(x, y, **(style | _HOLLOW))


def _curve_keys(plot: Plot) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    several = len(_methods(plot)) > 1
    keys: dict[str, Any] = {}
    for curve in plot.curves:
        dash = "none" if several else _dash(plot, curve)
        style = _dataset_style(plot, curve) | {"linestyle": dash, "markersize": 4.5}
        keys.setdefault(f" {_drawable(curve.dataset.label)}", Line2D([], [], **style))
    for curve in plot.curves if several else ():
        line = Line2D([], [], color=INK, linestyle=_dash(plot, curve))
        keys.setdefault(f" {_drawable(curve.method.label)} ", line)
    if any(curve.apart for curve in plot.curves):
        keys[" fitted on its own"] = Line2D([], [], color=INK, marker="o", **_HOLLOW)
    return [(handle, label) for label, handle in keys.items()]


_HOLLOW: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgewidth": 1.0,
    "zorder": 5,
}


def _ticks_of_curves(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    largest = max(x for curve in plot.curves for x in curve.x)
    if plot.spec.axis == "rank" and largest > _LARGEST_LINEAR_RANK:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
