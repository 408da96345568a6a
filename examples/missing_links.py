"""Hide a tenth of the links of a graph in a CSV file with names for nodes, and find them again.

The nodes are handwritten digits ("three-0013"), joined to their nearest neighbours.

    python examples/missing_links.py [FOLDER]      # writes digits.csv and missing_links.png there
"""

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure

import fastgrl as fg
from fastgrl.metrics import hits_at_k, roc_auc
from fastgrl.splits import split_edges

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def main(folder: Path) -> None:
    digits = fg.load_dataset("digits")
    names = [f"{NAMES[label]}-{number:04}" for number, label in enumerate(digits.y)]
    lines = [f"{names[u]},{names[v]}" for u, v in digits.graph.edge_codes()]
    (folder / "digits.csv").write_text("\n".join(["source,target", *lines, ""]))

    graph = fg.read_graph(folder / "digits.csv")
    split = split_edges(graph, fraction=0.1, seed=0)
    links = fg.LinkPredictor(random_state=0).fit(split.train)
    print(f"{graph}, {len(split.held_out)} of them hidden; chosen on the rest: {links.chosen_}")
    hidden, others = (links.score_pairs(graph.node_ids[pairs]) for pairs in (split.held_out, split.negatives))
    print(f"ROC-AUC {roc_auc(hidden, others):.3f}, Hits@20 {hits_at_k(hidden, others, k=20):.3f}")
    print(links.recommend(["three-0013"], k=3))

    best, A = links.recommend(k=40), split.train.to_scipy().astype(np.int32)  # a pair may come from both ends
    codes = np.stack([graph.index_of(best.nodes), graph.index_of(best.targets)], axis=1)
    codes = np.sort(codes[np.argsort(-best.scores, kind="stable")], axis=1)
    codes = codes[np.sort(np.unique(codes, axis=0, return_index=True)[1])]
    common = sp.triu(A @ A - (A @ A).multiply(A), 1).tocoo()
    rival = np.stack(common.coords, axis=1)[np.argsort(-common.data, kind="stable")]
    hides = np.zeros((graph.num_nodes,) * 2, bool)
    hides[tuple(split.held_out.T)] = True
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    ways = {"log-diffusion": (codes, "#3b6ea5", "bottom"), "common neighbours": (rival, "#8a8a8a", "top")}
    for name, (pairs, colour, side) in ways.items():
        share = 100 * np.cumsum(hides[tuple(pairs[:20_000].T)]) / len(split.held_out)
        axes.plot(np.arange(1, len(share) + 1), share, color=colour)
        axes.text(len(share) * 1.05, share[-1], name, color=colour, va=side)
    axes.set(xscale="log", xlim=(10, 150_000), ylim=(0, 100), xlabel="pairs looked at, best first")
    axes.set_title(f"% of {len(split.held_out)} hidden links that are found", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "missing_links.png", dpi=120)
    print(f"picture {folder / 'missing_links.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
