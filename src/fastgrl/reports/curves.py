"""What figures are drawn from: points and curves, and the same in words for those who do not see them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastgrl.reports.grids import MISSING, Entry, Grid, percentage, seconds, words
from fastgrl.reports.summary import PER_CENT, Record, Selection, belonging, figures, number, summarise

if TYPE_CHECKING:
    from fastgrl.experiments.specs import DatasetSpec, MethodSpec, Spec

METRICS = {"roc_auc": "test ROC-AUC × 100", "accuracy": "test accuracy × 100"}
AXES = {"seconds": "training seconds", "hops": "hops L", "rank": "rank k"}


@dataclass(frozen=True)
class Point:
    """One method on one dataset: its seconds, its score in per cent, and the size of the graph."""

    method: MethodSpec
    dataset: DatasetSpec
    seconds: float
    value: float
    nodes: float


@dataclass(frozen=True)
class Curve:
    """Means and sample standard deviations over seeds in per cent; `apart` are fits of one x alone."""

    method: MethodSpec
    dataset: DatasetSpec
    x: tuple[float, ...]
    y: tuple[float, ...]
    deviation: tuple[float | None, ...]
    apart: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Plot:
    """A figure, in numbers: points for seconds, curves for every other axis."""

    spec: Spec
    points: tuple[Point, ...]
    curves: tuple[Curve, ...]
    quick: bool

    @property
    def empty(self) -> bool:
        return not (self.points or self.curves)


def plot_of(chosen: Selection, spec: Spec) -> Plot:
    """What there is to draw of a figure."""
    if spec.axis == "seconds":
        return Plot(spec, tuple(_points(chosen, spec)), (), chosen.quick)
    pairs = ((method, dataset) for method in spec.methods for dataset in spec.datasets)
    curves = (_curve(method, dataset, belonging(chosen, spec, dataset, method)) for method, dataset in pairs)
    return Plot(spec, (), tuple(curve for curve in curves if curve.x), chosen.quick)


def _points(chosen: Selection, spec: Spec) -> Iterable[Point]:
    for row in summarise(chosen, spec).rows:
        for dataset, cell in zip(spec.datasets, row.cells, strict=True):
            if cell.mean is not None and cell.seconds:
                yield Point(row.method, dataset, cell.seconds, cell.mean, _nodes(cell.records, dataset))


def _nodes(records: Iterable[Record], dataset: DatasetSpec) -> float:
    counted = figures((record.get("counts") or {} for record in records), "nodes")
    return counted[-1] if counted else float(dataset.published_nodes or 1)


def _curve(method: MethodSpec, dataset: DatasetSpec, records: tuple[Record, ...]) -> Curve:
    curves = [record["curve"] for record in records]
    values, apart = _by_x(curves), _by_x([curve.get("separate") or {} for curve in curves])
    return Curve(
        method,
        dataset,
        x=tuple(values),
        y=tuple(map(statistics.fmean, values.values())),
        deviation=tuple(statistics.stdev(v) if len(v) > 1 else None for v in values.values()),
        apart=tuple((x, statistics.fmean(v)) for x, v in apart.items()),
    )


def _by_x(curves: Iterable[Mapping[str, Any]]) -> dict[float, list[float]]:
    found: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in zip(curve.get("x") or (), curve.get("y") or (), strict=False):
            place, value = number(x), number(y)
            if place is not None and value is not None:
                found.setdefault(place, []).append(PER_CENT * value)
    return dict(sorted(found.items()))


def described(plot: Plot) -> str:
    """The figure in words."""
    start = (
        f"{plot.spec.title}: {METRICS.get(plot.spec.metric, plot.spec.metric)} against {_axis(plot.spec)}. "
    )
    sentences = map(_point_words, plot.points) if plot.points else map(_curve_words, plot.curves)
    return start + " ".join(sentences)


def _axis(spec: Spec) -> str:
    return AXES.get(spec.axis or "", spec.axis or "")


def _point_words(point: Point) -> str:
    where = f"{point.method.label} on {point.dataset.label}"
    return f"{where}: {percentage(point.value)} in {seconds(point.seconds)} s."


def _curve_words(curve: Curve) -> str:
    top = max(range(len(curve.y)), key=curve.y.__getitem__)
    return (
        f"{curve.method.label} on {curve.dataset.label}: {percentage(curve.y[0])} at {curve.x[0]:g}, "
        f"{percentage(curve.y[-1])} at {curve.x[-1]:g}, "
        f"highest {percentage(curve.y[top])} at {curve.x[top]:g}."
    )


def plot_grid(plot: Plot) -> Grid:
    """The numbers of a figure as a table."""
    return _point_grid(plot) if plot.points else _curve_grid(plot)


def _point_grid(plot: Plot) -> Grid:
    rows = (
        (
            words(point.method.label),
            words(point.dataset.label),
            Entry(seconds(point.seconds), point.seconds),
            Entry(percentage(point.value), point.value),
        )
        for point in plot.points
    )
    columns = ("method", "dataset", AXES["seconds"], METRICS.get(plot.spec.metric, plot.spec.metric))
    return Grid(f"{plot.spec.name}-data", plot.spec.title, columns, (False, False, True, True), tuple(rows))


def _curve_grid(plot: Plot) -> Grid:
    places = sorted({x for curve in plot.curves for x in curve.x})
    rows = ((words(c.method.label), words(c.dataset.label), *_values(c, places)) for c in plot.curves)
    columns = ("method", "dataset", *(f"{x:g}" for x in places))
    right = (False, False, *(True for _ in places))
    groups = (("", 2), (_axis(plot.spec), len(places)))
    return Grid(f"{plot.spec.name}-data", plot.spec.title, columns, right, tuple(rows), groups)


def _values(curve: Curve, places: list[float]) -> Iterable[Entry]:
    found = dict(zip(curve.x, curve.y, strict=True))
    for x in places:
        yield Entry(percentage(found[x]), found[x]) if x in found else Entry(MISSING)
