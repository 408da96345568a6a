"""Why was this digit mistaken? A prediction taken apart by pixel, by hop and by labelled node.

The model is one linear solve, so the parts add up to the score exactly.

    python examples/explain.py [FOLDER]      # writes explain.png there
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import fastgrl as fg

SHOWN = 6


def main(folder: Path) -> None:
    digits: Any = fg.load_dataset("digits")
    y, images = np.full(digits.graph.num_nodes, -1), digits.X.toarray().reshape(-1, 8, 8)
    y[digits.train] = digits.y[digits.train]
    nodes = fg.NodeClassifier(views="l", rounds=0, select=False).fit(digits.graph, y, features=digits.X)
    node = int(digits.test[nodes.predict()[digits.test] != digits.y[digits.test]][0])
    why = nodes.explain(node, top=64 * 30)
    print(f"digit {node} shows a {digits.y[node]} and is taken for a {why.predicted}: score {why.score:.3f}")
    print(f"  bias {why.bias:.3f}, by hop: {', '.join(f'{share:+.3f}' for share in why.hops[:4])} …")
    print(f"  they add up: {bool(np.isclose(why.bias + sum(why.hops), why.score))}")
    for share in why.labelled[:SHOWN]:
        print(f"  labelled digit {share.node}, a {share.label}: {share.contribution:+.3f}")

    pixels = np.zeros(64)
    for part in why.features:
        pixels[part.feature] += part.contribution
    figure = Figure(figsize=(10, 5), layout="constrained")
    grid = figure.add_gridspec(2, SHOWN, height_ratios=[3, 2])
    image, heat = figure.add_subplot(grid[0, :2]), figure.add_subplot(grid[0, 2:4])
    image.imshow(images[node], cmap="gray_r")
    image.set_title(f"a {digits.y[node]}, taken for a {why.predicted}")
    most = np.abs(pixels).max()
    heat.imshow(pixels.reshape(8, 8), cmap="RdBu", vmin=-most, vmax=most)
    heat.set_title(f"for a {why.predicted} (blue), against (red)")
    hops = figure.add_subplot(grid[0, 4:])
    hops.bar(range(8), why.hops[:8], color="#3b6ea5")
    hops.set(title="contribution by steps away")
    hops.spines[["top", "right"]].set_visible(False)
    small = [figure.add_subplot(grid[1, column]) for column in range(SHOWN)]
    for axes, share in zip(small, why.labelled, strict=False):
        axes.imshow(images[share.node], cmap="gray_r")
        axes.set_title(f"labelled {share.label}: {share.contribution:+.3f}", fontsize=9)
    for axes in (image, heat, *small):
        axes.set(xticks=[], yticks=[])
    figure.savefig(folder / "explain.png", dpi=120)
    print(f"picture {folder / 'explain.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
