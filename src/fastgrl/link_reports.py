"""What the verbs of link prediction say: for programs a value, for people the same in sections."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastgrl.terminal import Section, counted, percent, quoted

if TYPE_CHECKING:
    from fastgrl.certificates import Certificate
    from fastgrl.graph import Graph
    from fastgrl.link_models import Fit
    from fastgrl.ranking import Recommendations

_MEASURES = {"roc_auc": "ROC-AUC", "average_precision": "average precision"}
_ID_WIDTH = 40


def fitted(fit: Fit, graph: Graph, seed: int) -> dict[str, Any]:
    """What a fit of a graph has found, as JSON has it."""
    from fastgrl.summaries import plain

    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "design": fit.chosen["design"],
        "rank": int(fit.model.n_components),
        "seed": seed,
        "chosen": plain(fit.chosen),
        "validation": plain(fit.validation),
        "singular_values": plain(fit.model.singular_values),
        "seconds": {name: round(value, 3) for name, value in fit.seconds.items()},
        "notices": list(fit.notices),
    }


def certificate_figures(measured: Certificate) -> dict[str, Any]:
    """A certificate as JSON has it."""
    from fastgrl.summaries import plain

    worst = max(measured.left_residuals.max(), measured.right_residuals.max())
    return {
        "captured_energy": plain(float(measured.captured)),
        "captured_energy_error": plain(float(measured.captured_error)),
        "residual_norm": plain(float(measured.residual_norm)),
        "norm": plain(float(measured.norm)),
        "worst_residual": plain(float(worst)),
        "gap": plain(measured.gap),
        "complete": bool(measured.complete),
    }


def certificate_rows(measured: Certificate) -> dict[str, str]:
    """A certificate for people, by the names it gives its figures."""
    lines = (line.partition("  ") for line in str(measured).splitlines())
    return {name.strip(): text.strip() for name, _, text in lines}


def graph_size(found: Mapping[str, Any]) -> str:
    """How many nodes and edges there are."""
    return f"{counted(found['nodes'], 'node')}, {counted(found['edges'], 'edge')}"


def fit_rows(found: Mapping[str, Any]) -> dict[str, str]:
    """The graph, the design and its settings, and the time."""
    return {
        "graph": graph_size(found),
        "design": f"{found['design']}, {found['rank']} columns, seed {found['seed']}",
        "settings": settings(found["chosen"]),
        "time": seconds(found["seconds"]),
    }


def settings(chosen: Mapping[str, Any]) -> str:
    """Settings in one line, without the design and the rank, which are named elsewhere.

    >>> settings({"design": "walk", "window": 5, "negative": None, "both": True})
    'window 5 · both yes'
    """
    words = {True: "yes", False: "no"}
    shown = {
        name.replace("_", " "): words[value] if isinstance(value, bool) else _short(value)
        for name, value in chosen.items()
        if name not in ("design", "rank") and value is not None
    }
    return " · ".join(f"{name} {value}" for name, value in shown.items()) or "none to choose"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_short, value)) if isinstance(value, list) else str(value)


def seconds(spent: Mapping[str, float]) -> str:
    """Seconds by what they were spent on, in the order of the work.

    >>> seconds({"fit": 0.5, "select": 2.04})
    'select 2.04 s · fit 0.50 s'
    """
    ordered = sorted(spent, key=("select", "fit", "score").index)
    return " · ".join(f"{name} {spent[name]:.2f} s" for name in ordered)


def measures(found: Mapping[str, Any]) -> dict[str, str]:
    """Measured shares in per cent, with the standard deviation where there is one.

    >>> measures({"roc_auc": 0.5, "roc_auc_std": 0.01, "pairs": 4000})
    {'ROC-AUC': '50.00 % ± 1.00', 'pairs': '4,000'}
    """
    rows: dict[str, str] = {}
    for name, value in found.items():
        if value is None or name.endswith("_std"):
            continue
        spread = f" ± {100 * found[f'{name}_std']:.2f}" if f"{name}_std" in found else ""
        label = _MEASURES.get(name, name.replace("_", " "))
        share = name in _MEASURES or name.startswith("hits")
        rows[label] = f"{percent(value)}{spread}" if share else _figure(value)
    return rows


def embedding(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl embed` shows."""
    rows = {"file": ", ".join(found["files"]), "rows": f"{found['nodes']:,}, one per node, with its id"}
    return [(found["file"], fit_rows(found)), ("written", rows)]


def folder_embedding(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl embed` shows of a folder that workers embedded."""
    graph = f"{graph_size(found)} in {counted(found['blocks'], 'block')}"
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in found["seconds"].items())
    rows = {"graph": graph, "design": f"{found['design']}, rank {found['rank']}", "took": seconds}
    files = f"{found['out']}: {counted(len(found['files']), 'Parquet file')}"
    written = {"folder": files, "rows": f"{found['nodes']:,}, in the order of their ids"}
    return [("embedding", rows), ("written", written)]


def model(found: Mapping[str, Any], graph: Graph, measured: Certificate) -> list[Section]:
    """What `fastgrl link` shows."""
    checked = measures(found["validation"]) or {"ROC-AUC": "not measured: no edges were held out"}
    return [
        (found["file"], fit_rows(found)),
        ("certificate (measured, not assumed)", certificate_rows(measured)),
        ("validation (edges held out)", checked),
        (
            "next",
            {
                "recommend": following("recommend", found["model"], graph),
                "score": f"fastgrl score {shlex.quote(found['model'])} --pairs PAIRS.csv -o scores.csv",
            },
        ),
    ]


def following(verb: str, folder: str, graph: Graph) -> str:
    """A command that works: the verb on a node with neighbours."""
    node = str(graph.node_ids[int(graph.degrees.argmax())])
    example = shlex.quote(node) if len(node) <= _ID_WIDTH and node.isprintable() else "ID"
    option = f"--node={example}" if example.startswith("-") else f"--node {example}"
    return f"fastgrl {verb} {shlex.quote(folder)} {option}"


def scores(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl score` shows beside its file."""
    spread = " · ".join(f"{name} {value:.4g}" for name, value in found["scores"].items())
    rows = {"pairs": f"{found['pairs']:,}", "scores": spread, "file": found["out"]}
    return [(found["model"], rows | {"time": f"{found['seconds']:.2f} s"})]


def recommended(found: Recommendations) -> list[dict[str, Any]]:
    """Recommendations as JSON has them."""
    from fastgrl.summaries import plain

    columns = (plain(list(column)) for column in (found.nodes, found.targets, found.scores))
    return [
        {"node": node, "target": target, "score": score} for node, target, score in zip(*columns, strict=True)
    ]


def best_links(node: str, found: Recommendations) -> list[Section]:
    """The best missing links of one node, for people."""
    digits = len(str(len(found.targets)))
    rows = {
        f"{number:{digits}}  {quoted(str(target), _ID_WIDTH)[1:-1]}": f"{score:.4f}"
        for number, (target, score) in enumerate(zip(found.targets, found.scores, strict=True), 1)
    }
    title = (
        f"best missing links of {quoted(node)}, with their scores"
        if rows
        else f"{quoted(node)} has no missing links"
    )
    return [(title, rows)]


def recommendations_written(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl recommend` shows beside its file."""
    rows = {"links": f"{found['links']:,} for {counted(found['nodes'], 'node')}", "file": found["out"]}
    return [(found["model"], rows | {"time": f"{found['seconds']:.2f} s"})]


def update(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl update` shows."""
    done = found["update"]
    rows = {
        "new": f"{counted(done['new_nodes'], 'node')}, {counted(done['new_edges'], 'edge')}",
        "graph": graph_size(found),
        "captured energy": "{} before, {} after".format(
            *(percent(done[f"captured_{when}"]) for when in ("before", "after"))
        ),
        "work": f"{done['product_columns']:,} columns multiplied, "
        f"where a refit takes {done['refit_product_columns']:,}",
    }
    return [(f"{found['model']}, updated", rows)]


def _figure(value: Any) -> str:
    return f"{value:,}" if type(value) is int else _short(value)


def evaluation(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl evaluate links` shows."""
    many = len(found.get("repeats", ()))
    seeds = f"seeds {found['seed']} to {found['seed'] + many - 1}, mean ± deviation" if many else ""
    split = "its official split" if found["split"] == "official" else "20 % of the edges held out at random"
    rows = {
        "graph": f"{graph_size(found)} to learn from",
        "design": f"{found['design']}, {seeds or 'seed ' + str(found['seed'])}",
        "settings": settings(found["chosen"]),
        "time": seconds(found["seconds"]) + " each" * bool(many),
    }
    sections: list[Section] = [(f"{found['dataset']}: {split}", rows)]
    validation = measures(found["validation"])
    if near := found.get("near_best"):
        values = [setting["value"] for setting in near["settings"]]
        validation["near best"] = (
            f"{len(values)} settings from {percent(min(values))} to {percent(max(values))}"
        )
    if validation:
        sections.append(("validation (edges held out of those)", validation))
    sections.append((f"test ({found['test_pairs']:,} pairs)", measures(found["test"])))
    if near:
        test = near["test"]
        shares = [percent(test[name]) for name in ("mean", "std", "min", "max")]
        text = "{} ± {}, from {} to {}".format(*shares)
        sections.append((f"test of the {near['count']} settings near the best", {near["metric"]: text}))
    titles = {"dot": "the plain dot product on the same pairs", "both_ways": "both directions averaged"}
    return sections + [(title, measures(found[name])) for name, title in titles.items() if name in found]


def demonstration(found: Mapping[str, Any], measured: Certificate) -> list[Section]:
    """What `fastgrl demo` shows of the SVD and of links, in few lines."""
    values = found["singular_values"]
    certified = certificate_rows(measured)
    links, alike = found["links"], found["links"]["best"]
    best = " · ".join(
        f"{link['node']} and {link['target']} (both {link['numerals'][0]})"
        if link["numerals"][0] == link["numerals"][1]
        else f"{link['node']} and {link['target']} ({link['numerals'][0]} and {link['numerals'][1]})"
        for link in links["recommended"]
    )
    return [
        (
            f"{found['nodes']:,} digits joined to their nearest neighbours: {found['edges']:,} edges",
            {
                "matrix": found["matrix"],
                "singular values": f"{values[0]:.4g}, {values[1]:.4g} … {values[-1]:.4g}: "
                f"the {found['rank']} largest, in {found['seconds']:.2f} s",
                **{name: certified[name] for name in ("captured energy", "worst residual", "complete")},
            },
        ),
        (
            f"links: {links['test_pairs'] // 2:,} hidden edges found again, in {links['seconds']:.2f} s",
            measures(links["test"])
            | {
                "best missing": best,
                "same numeral": f"{alike['same_numeral']} of the best {alike['count']} missing links",
            },
        ),
    ]
