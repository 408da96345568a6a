"""What the verbs of node classification say: for programs a value, for people the same in sections."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastgrl import link_reports
from fastgrl.link_reports import certificate_rows, following, graph_size, seconds, settings
from fastgrl.terminal import Section, counted, percent, quoted

if TYPE_CHECKING:
    from fastgrl.certificates import Certificate
    from fastgrl.checks import Array
    from fastgrl.command_files import NodeFiles
    from fastgrl.explanations import Explanation
    from fastgrl.node_classification import NodeClassifier

_MEASURES = {"accuracy": "accuracy", "macro_f1": "macro F1", "micro_f1": "micro F1"}
_WIDTH, _MOST_CLASSES, _MOST_HOPS = 30, 12, 6


def fitted(model: NodeClassifier, files: NodeFiles) -> dict[str, Any]:
    """What a fit has found, as JSON has it."""
    from fastgrl.summaries import plain

    labels, matrix = files.labels, files.matrix
    return {
        "nodes": files.graph.num_nodes,
        "edges": files.graph.num_edges,
        "labelled": labels.count,
        "classes": len(labels.classes),
        "class_names": labels.classes,
        "features": None if matrix is None else int(matrix.shape[1]),
        "multilabel": labels.multilabel,
        "design": model.design,
        "seed": model.random_state,
        "chosen": plain(model.chosen_),
        "validation": plain(model.validation_),
        "loo_accuracy": plain(model.loo_accuracy_),
        "seconds": {name: round(value, 3) for name, value in model.seconds_.items()},
        "notices": list(model.notices_),
    }


def certificate_figures(measured: Certificate | None) -> dict[str, Any] | None:
    """A certificate as JSON has it, where a design has one."""
    return None if measured is None else link_reports.certificate_figures(measured)


def predicted_counts(texts: Array) -> dict[str, int]:
    """How many nodes each class was given to, the largest first.

    >>> predicted_counts(np.array(["b", "a", "b", ""], object))
    {'b': 2, 'a': 1}
    """
    counts: dict[str, int] = {}
    for text in texts.tolist():
        counts[str(text)] = counts.get(str(text), 0) + 1
    counts.pop("", None)
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def folder_classes(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl classify` shows of a folder that workers classified."""
    graph = f"{graph_size(found)} in {counted(found['blocks'], 'block')}"
    known = f"{counted(found['labelled'], 'node')}, {len(found['classes'])} classes"
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in found["seconds"].items())
    rows = {"graph": graph, "labelled": known, "took": seconds}
    if found["validation"] is not None:
        held = counted(found["validation"]["nodes"], "node")
        rows["validation"] = f"{percent(found['validation']['accuracy'])} of {held} held out"
        rows["chosen"] = f"restart {found['chosen']['restart']}, ridge {found['chosen']['ridge']}"
    files = f"{found['out']}: {counted(len(found['files']), 'Parquet file')}"
    written = {"folder": files, "rows": f"{found['nodes']:,}: id, class, probability"}
    return [("classes", rows), ("written", written)]


def model(found: Mapping[str, Any], files: NodeFiles, measured: Certificate | None) -> list[Section]:
    """What `fastgrl classify` shows."""
    sections: list[Section] = [(found["file"], _fit_rows(found))]
    if measured is not None:
        sections.append(("certificate (measured, not assumed)", certificate_rows(measured)))
    sections.append(("how good it is", _quality_rows(found)))
    shares = {
        _short(name): counted(count, "node")
        for name, count in list(found["predicted"].items())[:_MOST_CLASSES]
    }
    more = len(found["predicted"]) - _MOST_CLASSES
    sections.append(("predicted", shares | ({"and": f"{more} other classes"} if more > 0 else {})))
    written = {name: found[name] for name in ("model", "predictions") if found[name] is not None}
    sections.append(("written", written))
    if found["model"] is not None:
        folder = shlex.quote(found["model"])
        words = {"explain": following("explain", found["model"], files.graph)}
        words["predict"] = f"fastgrl predict {folder} -o classes.csv"
        sections.append(("next", words))
    return sections


def _fit_rows(found: Mapping[str, Any]) -> dict[str, str]:
    unknown = found["nodes"] - found["labelled"]
    width = "none" if found["features"] is None else f"{found['features']:,} of each node"
    known = counted(found["labelled"], "node")
    return {
        "graph": graph_size(found),
        "labels": f"{known} in {found['classes']:,} classes, {unknown:,} without a label",
        "features": width,
        "design": f"{found['design']}, seed {found['seed']}",
        **_settings(found["chosen"]),
        "time": seconds(found["seconds"]),
    }


def _quality_rows(found: Mapping[str, Any]) -> dict[str, str]:
    rows: dict[str, str] = {}
    if found["validation"]:
        count = found["validation"].get("nodes")
        of = "" if count is None else f" of {counted(count, 'node')} held out"
        rows |= {name: value + of for name, value in measures(found["validation"]).items() if name != "nodes"}
    if found["loo_accuracy"] is not None:
        rows["leave one out"] = (
            f"{100 * found['loo_accuracy']:.2f} % of labelled nodes, each without its label"
        )
    return rows or {"accuracy": "not measured: no labels were held out"}


def measures(found: Mapping[str, Any]) -> dict[str, str]:
    """Measured shares in per cent, with the standard deviation where there is one.

    >>> measures({"accuracy": 0.5, "accuracy_std": 0.01, "nodes": 4000})
    {'accuracy': '50.00 % ± 1.00', 'nodes': '4,000'}
    """
    rows: dict[str, str] = {}
    for name, value in found.items():
        if value is None or name.endswith(("_std", "_worst")):
            continue
        spread = f" ± {100 * found[f'{name}_std']:.2f}" if f"{name}_std" in found else ""
        share = name in _MEASURES and isinstance(value, int | float)
        rows[_MEASURES.get(name, name.replace("_", " "))] = (
            f"{100 * value:.2f} %{spread}" if share else f"{value:,}" if type(value) is int else str(value)
        )
    return rows


def _short(text: Any) -> str:
    return quoted(str(text), _WIDTH)[1:-1]


def predictions(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl predict` shows beside its file."""
    best = list(found["predicted"].items())[:_MOST_CLASSES]
    rows = {
        "nodes": f"{found['nodes']:,}" + f", {found['new_nodes']:,} of them new" * bool(found["new_nodes"]),
        "classes": " · ".join(f"{_short(name)} {count:,}" for name, count in best),
        "file": found["out"],
        "time": f"{found['seconds']:.2f} s",
    }
    return [(found["model"], rows)]


def explained(found: Explanation, probability: float) -> dict[str, Any]:
    """An explanation as JSON has it."""
    from fastgrl.summaries import plain

    value = plain(found.as_dict())
    assert isinstance(value, dict)
    return value | {"probability": probability}


def explanation(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl explain` shows: one score, taken apart by hops, by features and by labelled nodes."""
    predicted = found["predicted"]
    if isinstance(predicted, list):
        predicted = ", ".join(_short(name) for name in predicted) or "no class"
    label = _short(found["label"])
    rows = {
        "predicted": _short(predicted),
        "probability": f"{100 * found['probability']:.2f} % for {label}",
        "score": f"{found['score']:+.4f} for {label}, of which {found['bias']:+.4f} for any node",
        "exact": _exactness(found),
    }
    return [
        (f"{_short(found['node'])}, explained", rows),
        ("by steps from the node", _hops(found["hops"])),
        ("by feature, the largest", _features(found["features"], found["other_features"])),
        ("by label, the largest", _labelled(found)),
    ]


def _exactness(found: Mapping[str, Any]) -> str:
    if found["exact"]:
        return "yes: these sums are the model's own score"
    if not found["difference"]:
        return "nearly: its last linear step, taken apart here, gives every\nnode the same class"
    share = f"{100 * found['difference']:.1f} %"
    return f"nearly: its last linear step, taken apart here, gives {share}\nof all nodes another class"


def _hops(values: Sequence[float]) -> dict[str, str]:
    """Contributions by hop, those far away in one sum."""
    near = len(values) if len(values) <= _MOST_HOPS + 1 else _MOST_HOPS
    rows = {_steps(hop): f"{value:+.4f}" for hop, value in enumerate(values[:near])}
    far = {f"{near} to {len(values) - 1} steps": f"{sum(values[near:]):+.4f}"} if near < len(values) else {}
    return rows | far


def _steps(hop: int) -> str:
    return "the node itself" if hop == 0 else f"{hop} step{'s' * (hop > 1)}"


def _features(shares: Sequence[Mapping[str, Any]], others: float) -> dict[str, str]:
    digits = len(str(len(shares)))
    rows = {
        f"{number:{digits}}  {_feature(share)}": f"{share['contribution']:+.4f}  {_steps(share['hop'])}"
        for number, share in enumerate(shares, 1)
    }
    return rows | {"all others": f"{others:+.4f}"}


def _feature(share: Mapping[str, Any]) -> str:
    if share["kind"] == "constant":
        return "a constant"
    if isinstance(share["feature"], str):
        return _short(share["feature"])
    return f"{share['kind']} {share['feature'] + 1}"


def _labelled(found: Mapping[str, Any]) -> dict[str, str]:
    digits = len(str(len(found["labelled"])))
    rows = {}
    for number, share in enumerate(found["labelled"], 1):
        label = share["label"]
        text = ", ".join(map(_short, label)) if isinstance(label, list) else _short(label)
        rows[f"{number:{digits}}  {_short(share['node'])}"] = f"{share['contribution']:+.4f}  {text}"
    rows["all others"] = f"{found['other_labelled']:+.4f}"
    if found["pseudo_labelled"]:
        rows["without a label"] = f"{found['pseudo_labelled']:+.4f}, by what the model made of them"
    return rows


def _settings(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Settings, those of self-training on a line of their own."""
    later = {name: value for name, value in chosen.items() if name in ("balance", "rounds", "averaged")}
    first = {name: value for name, value in chosen.items() if name not in later}
    return {"settings": settings(first), **({"self-training": settings(later)} if later else {})}


def evaluation(found: Mapping[str, Any]) -> list[Section]:
    """What `fastgrl evaluate nodes` shows."""
    many = len(found.get("repeats", ()))
    seeds = f"seeds {found['seed']} to {found['seed'] + many - 1}, mean ± deviation" if many else ""
    split = "its official split" if found["split"] == "official" else "a random split of the labelled nodes"
    rows = {
        "graph": graph_size(found),
        "design": f"{found['design']}, {seeds or 'seed ' + str(found['seed'])}",
        **_settings(found["chosen"]),
        "time": seconds(found["seconds"]) + " each" * bool(many),
    }
    sections: list[Section] = [(f"{found['dataset']}: {split}", rows)]
    if validation := measures(found["validation"]):
        sections.append(("validation (settings were chosen by it)", validation))
    sections.append(("test", measures(found["test"])))
    for name, other in found.get("beside", {}).items():
        spent = " · ".join(f"{name} {value:.2f} s" for name, value in other["seconds"].items())
        rows = {**measures(other["test"]), "time": spent + " each" * bool(many)}
        sections.append((f"test of {name.upper()} on the same splits", rows))
    return sections


def first_reason(found: Explanation) -> dict[str, Any]:
    """A node, its class, and the labelled node that spoke for it most."""
    from fastgrl.summaries import plain

    most = found.labelled[0]  # a fitted model has labelled nodes
    value = plain({"node": found.node, "label": found.label, "by": most.node, "as": most.label})
    assert isinstance(value, dict)
    return value


def demonstration(found: Mapping[str, Any], measured: Certificate) -> list[Section]:
    """What `fastgrl demo` shows, on one screen: the SVD, links, classes, files, and the page at the end."""
    classes = found["classes"]
    why = classes["explained"]
    rows = {
        "accuracy": f"{percent(classes['accuracy'])} of the other {classes['others']:,} digits",
        "why": f"node {why['node']} is a {why['label']} first of all by node {why['by']}, a {why['as']}",
    }
    title = f"classes: from {classes['labelled']} labelled digits, in {classes['seconds']:.2f} s"
    following = {"try": "\n".join(found["next"])}
    written = (
        f"{len(found['files'])} files are in {os.path.dirname(found['files'][0])}" if found["files"] else ""
    )
    sections = [*link_reports.demonstration(found, measured), (title, rows)]
    sections.append((written or "no files and no page were written; to have them", following))
    return sections + ([(f"open in a browser: {found['page']}", {})] if found["page"] else [])
