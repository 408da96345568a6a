"""The page of the demo: what was found on the digits graph, in the order a newcomer reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastgrl.reports.demo_drawings import (
    COLUMN,
    WIDE,
    Series,
    drawn_map,
    drawn_shares,
    drawn_values,
    picture,
)
from fastgrl.reports.documents import rendered, templates
from fastgrl.reports.grids import Entry, Grid, signed, words

if TYPE_CHECKING:
    from fastgrl.checks import Array

Command = tuple[str, str]  # what it is for, and what to type


@dataclass(frozen=True, eq=False)
class Pictures:
    """What is drawn beside the figures.

    Places on the map (n, 2), numerals (n), and pixels (n, 8, 8) from 0 for paper to 16 for ink.
    """

    places: Array
    numerals: Array
    pixels: Array


_WHAT = "the page of the demo"


def demo_page(found: Mapping[str, Any], pictures: Pictures, commands: Sequence[Command]) -> str:
    """The whole page as one HTML document, from what `fastgrl demo --json` has; every value is escaped."""
    templates(_WHAT)
    map_words = f"A map of {found['nodes']:,} digits. {_clusters(found)}"
    values_words = "; ".join(
        f"{one.name}: from {one.values[0]:.4g} to {one.values[-1]:.4g}, {len(one.values)} values"
        for one in _series(found)
    )
    shares = found["classes"]["explained"]["pixels"]
    return rendered(
        "demo.html",
        _WHAT,
        styles=("page.css", "demo.css"),
        found=found,
        links=found["links"],
        classes=found["classes"],
        why=found["classes"]["explained"],
        maps=[drawn_map(pictures.places, pictures.numerals, paper, map_words) for paper in (WIDE, COLUMN)],
        values=[drawn_values(_series(found), paper, values_words) for paper in (WIDE, COLUMN)],
        shares=drawn_shares(shares, "What each pixel contributed; the same numbers are in the table below."),
        picture=lambda node: picture(pictures.pixels[node]),
        map_grid=_map_grid(found),
        value_grid=_value_grid(found),
        certificate_grid=_certificate_grid(found),
        pixel_grid=_pixel_grid(shares),
        steps=_steps(found["classes"]["explained"]["hops"]),
        confusion=_confusion(found["classes"]["confusion"]),
        commands=commands,
        record=_record(found),
        hundred=100,
        pairs_per_edge=2,
    )


def _clusters(found: Mapping[str, Any]) -> str:
    share = found["map"]["same_numeral"]
    return f"Digits of one numeral lie together: {share:.1%} of the 10 nearest on the map show the same one."


def _series(found: Mapping[str, Any]) -> list[Series]:
    return [
        Series("log-diffusion matrix, behind the map", found["links"]["singular_values"]),
        Series("walk matrix", found["singular_values"]),
    ]


def _map_grid(found: Mapping[str, Any]) -> Grid:
    rows = [
        (
            words(str(each["numeral"])),
            Entry(f"{each['digits']:,}", each["digits"]),
            *(Entry(signed(place), place) for place in each["middle"]),
            _share(each["same_numeral"]),
        )
        for each in found["map"]["of_each_numeral"]
    ]
    columns = ("numeral", "digits", "across", "up", "of the 10 nearest on the map, the same")
    return Grid("map", "The map", columns, (False, True, True, True, True), tuple(rows))


def _value_grid(found: Mapping[str, Any]) -> Grid:
    series = _series(found)
    rows = [
        (
            Entry(str(place + 1), place + 1),
            *(
                Entry(f"{one.values[place]:.4f}", one.values[place]) if place < len(one.values) else words("")
                for one in series
            ),
        )
        for place in range(max(len(one.values) for one in series))
    ]
    names = ("place", *(one.name for one in series))
    return Grid("values", "Singular values", names, (False, True, True), tuple(rows))


def _certificate_grid(found: Mapping[str, Any]) -> Grid:
    """What was measured of both factorisations, side by side, with what it means."""
    both = (found["links"]["certificate"], found["certificate"])
    largest = (found["links"]["singular_values"][0], found["singular_values"][0])
    counts = (len(found["links"]["singular_values"]), len(found["singular_values"]))
    rows = [
        _row("singular values kept", [Entry(f"{count:,}", count) for count in counts]),
        _row("captured energy", [_share(c["captured_energy"], c["captured_energy_error"]) for c in both]),
        _row(
            "worst residual",
            [
                _small(c["worst_residual"] / most, " of the largest value")
                for c, most in zip(both, largest, strict=True)
            ],
        ),
        _row("gap at the cut", [Entry(f"{c['gap']:.4g}", c["gap"]) for c in both]),
        _row("larger than the residuals", [words(_yes(c["gap"] > c["worst_residual"])) for c in both]),
        _row(
            "larger ones missed",
            [words("none found" if c["complete"] else "some: raise n_iter") for c in both],
        ),
    ]
    columns = ("measured", "log-diffusion matrix, behind the map", "walk matrix")
    return Grid("certificates", "Certificates", columns, (False, True, True), tuple(rows))


def _yes(true: bool) -> str:
    return "yes" if true else "no"


def _row(name: str, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return (words(name), *entries)


def _share(value: float, error: float | None = None) -> Entry:
    detail = "" if error is None else f"± {100 * error:.2f}"
    return Entry(f"{100 * value:.2f} %", value, detail=detail)


def _small(value: float, of: str) -> Entry:
    return Entry(f"{value:.1e}".replace("-", "−"), value, detail=of.strip())


def _pixel_grid(shares: Sequence[Sequence[float]]) -> Grid:
    columns = tuple(f"column {number}" for number in range(1, len(shares[0]) + 1))
    rows = [
        (words(f"row {number}"), *(Entry(f"{share:+.4f}".replace("-", "−"), share) for share in row))
        for number, row in enumerate(shares, 1)
    ]
    return Grid("pixels", "Pixels", ("pixels", *columns), (False, *(True for _ in columns)), tuple(rows))


def _steps(hops: Sequence[float]) -> list[tuple[str, float]]:
    """Contributions by the number of steps from the digit, those far away in one sum."""
    names = ["the digit itself", "its neighbours", "their neighbours"]
    near = [*zip(names, hops, strict=False)]
    rest = hops[len(near) :]
    return [*near, ("digits further away", sum(rest))] if rest else near


def _confusion(counts: Sequence[Sequence[int]]) -> list[list[dict[str, Any]]]:
    """Counts with the share of their row, which shades them."""
    return [
        [{"count": count, "share": round(count / max(sum(row), 1), 3)} for count in row] for row in counts
    ]


def _record(found: Mapping[str, Any]) -> str:
    text = json.dumps(found, indent=2, default=str)
    return f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}"
