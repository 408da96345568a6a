"""How many labels are enough? Handwritten digits classified from a few labels, three ways.

A logistic regression sees the labelled digits alone, `NodeClassifier` those that nobody labelled as well. The
graph joins digits with like pixels, so that pixels beside it add nothing.

    python examples/classify.py [FOLDER]      # writes classify.png there
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import fastgrl as fg
from fastgrl.metrics import accuracy
from fastgrl.splits import split_nodes

PER_CLASS, SEEDS = (1, 2, 5, 10, 20, 40), 3
DIGITS: Any = fg.load_dataset("digits")


def predicted(way: str, y: Any) -> Any:
    if way == "pixels alone":
        return LogisticRegression().fit(DIGITS.X[y >= 0] / 16, y[y >= 0]).predict(DIGITS.X / 16)
    features = DIGITS.X if way == "graph and pixels" else None
    return fg.NodeClassifier(select=False).fit(DIGITS.graph, y, features=features).predict()


def tried(way: str, per_class: int, seed: int) -> float:
    split = split_nodes(DIGITS.y, per_class=per_class, validation=0, test=1000, seed=seed)
    y = np.full(len(DIGITS.y), -1)
    y[split.train] = DIGITS.y[split.train]
    return 100 * accuracy(DIGITS.y[split.test], predicted(way, y)[split.test])


def main(folder: Path) -> None:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    ways = {"graph alone": "#3b6ea5", "graph and pixels": "#c46a2d", "pixels alone": "#8a8a8a"}
    print(f"labels per class      {'  '.join(f'{count:4}' for count in PER_CLASS)}")
    for way, colour in ways.items():
        runs = np.array([[tried(way, count, seed) for seed in range(SEEDS)] for count in PER_CLASS])
        print(f"{way:<20}  {'  '.join(f'{mean:4.1f}' for mean in runs.mean(axis=1))}")
        axes.plot(PER_CLASS, runs.mean(axis=1), color=colour)
        axes.fill_between(PER_CLASS, *np.quantile(runs, [0, 1], axis=1), color=colour, alpha=0.15, lw=0)
        side = "top" if way == "pixels alone" else "bottom"
        axes.text(PER_CLASS[-1] * 1.06, runs[-1].mean(), way, color=colour, va=side)
    axes.set(xscale="log", xlim=(1, 110), xticks=PER_CLASS, xticklabels=PER_CLASS, xlabel="labels per class")
    axes.minorticks_off()
    axes.set_title(f"% right of 1000 digits without a label (mean and range of {SEEDS} draws)", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "classify.png", dpi=120)
    print(f"picture {folder / 'classify.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
