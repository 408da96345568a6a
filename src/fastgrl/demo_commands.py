"""The verb demo: the digits graph from end to end, as files, as a page and as a screen of figures."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgrl import node_commands, node_reports, terminal
from fastgrl.command_files import bar, check_model, write_table
from fastgrl.errors import MissingExtraError
from fastgrl.options import Force, PrintingOptions, grouped

if TYPE_CHECKING:
    from fastgrl.demonstration import Demonstration

_GRAPH, _VECTORS, _CLASSES = "digits.csv", "digits-embedding.csv", "digits-classes.csv"
_LABELS, _FEATURES, _PAGE = "digits-labels.csv", "digits-features.csv", "demo.html"
_TABLES = (_GRAPH, _VECTORS, _CLASSES, _LABELS, _FEATURES)
_LINK_MODEL, _CLASS_MODEL = "digits-links", "digits-classes"


@grouped
def demo(
    printing: PrintingOptions,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="DIR", help="For the files and a page of them.")
    ] = None,
    force: Force = False,
) -> None:
    """Factorise the walk matrix of scikit-learn's digits, predict links and classes, say how good all are."""
    targets = [] if out is None else _targets(out, force)
    from fastgrl.demonstration import demonstrate

    found = demonstrate(lambda what: bar(what, printing))
    value = found.value | {"files": targets, "page": None}
    if out is not None:
        _write(found, out, force)
        value["page"] = _write_page(found, out, printing)
    value["next"] = _following(value, out)
    terminal.show(value, node_reports.demonstration(value, found.certificate), as_json=printing.json)


def _targets(folder: str, force: bool) -> list[str]:
    from fastgrl.io.atomic import check_output

    os.makedirs(folder, exist_ok=True)
    tables = [os.path.join(folder, name) for name in _TABLES]
    models = [os.path.join(folder, name) for name in (_LINK_MODEL, _CLASS_MODEL)]
    check_output(*tables, os.path.join(folder, _PAGE), force=force)
    for model in models:
        check_model(model, force=force)
    return tables + models


def _write(found: Demonstration, folder: str, force: bool) -> None:
    from fastgrl.demonstration import pixels
    from fastgrl.io.writers import write_embedding, write_graph

    digits, ids = found.digits, found.digits.graph.node_ids
    names = {name: os.path.join(folder, name) for name in (*_TABLES, _LINK_MODEL)}
    write_graph(digits.graph, names[_GRAPH], force=force)
    write_embedding(names[_VECTORS], found.links.embedding_, node_ids=ids, force=force)
    write_table(names[_CLASSES], node_commands.predicted(found.classes))
    write_table(names[_LABELS], {"node": ids[digits.train], "label": digits.y[digits.train]})
    columns = {f"pixel{number}": column for number, column in enumerate(pixels(digits).T, 1)}
    write_table(names[_FEATURES], {"node": ids} | columns)
    found.links.save(names[_LINK_MODEL], force=force)
    found.classes.save(os.path.join(folder, _CLASS_MODEL), force=force)


def _write_page(found: Demonstration, folder: str, printing: PrintingOptions) -> str | None:
    """The page, or a note on what it needs."""
    from fastgrl.io.atomic import whole_file
    from fastgrl.reports.demo_page import demo_page

    try:
        html = demo_page(found.value, found.pictures, _to_try(found.value))
    except MissingExtraError as missing:
        terminal.print_notes([str(missing)], quiet=printing.quiet)
        return None
    page = os.path.join(folder, _PAGE)
    with whole_file(page) as file:
        file.write(html.encode())
    return page


def _following(value: dict[str, Any], folder: str | None) -> list[str]:
    if folder is None:
        return ["fastgrl demo -o digits"]
    names = (_GRAPH, _LINK_MODEL, _CLASS_MODEL)
    graph, links, classes = (shlex.quote(os.path.join(folder, name)) for name in names)
    return [
        f"fastgrl inspect {graph}",
        f"fastgrl recommend {links} --node {value['links']['recommended'][0]['node']}",
        f"fastgrl explain {classes} --node {value['classes']['explained']['node']}",
    ]


def _to_try(value: dict[str, Any]) -> list[tuple[str, str]]:
    """What the page offers to type in its folder, each with what it is for."""
    files = f"{_GRAPH} --labels {_LABELS} --features {_FEATURES}"
    link, why = value["links"]["recommended"][0], value["classes"]["explained"]
    return [
        ("See what was understood of a file of edges.", f"fastgrl inspect {_GRAPH}"),
        ("The best missing links of one node.", f"fastgrl recommend {_LINK_MODEL} --node {link['node']}"),
        ("What made a prediction.", f"fastgrl explain {_CLASS_MODEL} --node {why['node']}"),
        ("Fit a link predictor; it says how good it is.", f"fastgrl link {_GRAPH} -o my-links"),
        (
            "Three new links for every node, as a table.",
            "fastgrl recommend my-links --all -k 3 -o my-links.csv",
        ),
        ("Tell classes from a few labels.", f"fastgrl classify {files} -o my-classes"),
    ]
