"""Recommend items to users: a graph with two sides, one item of every user hidden, and where it comes back.

The graph is made up: 800 users of one or two tastes choose among 400 films, some of which everybody knows.
What a recommender must beat is the list of the most popular films.

    python examples/recommend_items.py [FOLDER]      # writes recommend_items.png there
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fastgrl as fg

USERS, FILMS, GENRES, SEEN, MOST = 800, 400, 20, 12, 30


def choices(rng: np.random.Generator) -> list[list[str]]:
    """For every user the films that were seen, in random order: three in four are to the user's taste."""
    genre, fame = rng.integers(GENRES, size=FILMS), rng.pareto(1.5, FILMS) + 0.1
    seen = []
    for _ in range(USERS):
        taste = np.isin(genre, rng.integers(GENRES, size=2))
        chance = fame * np.where(taste, 0.75 / (fame @ taste), 0.25 / (fame @ ~taste))
        chosen = rng.choice(FILMS, SEEN, replace=False, p=chance / chance.sum())
        seen.append([f"film {film}" for film in chosen])
    return seen


def main(folder: Path) -> None:
    seen = choices(np.random.default_rng(0))
    hidden = {f"user {user}": films[-1] for user, films in enumerate(seen)}
    known = {f"user {user}": films[:-1] for user, films in enumerate(seen)}
    graph = fg.Graph.from_edges((user, film) for user, films in known.items() for film in films)
    links = fg.LinkPredictor(bipartite=True, random_state=0).fit(graph)
    print(f"{graph}; one film of every user is hidden", links.recommend(["user 7"], k=3), sep="\n")
    ours = links.recommend(list(hidden), k=MOST).as_dict()
    popular = [film for film, _ in Counter(film for films in known.values() for film in films).most_common()]
    best = {user: [film for film, _ in ours[user]] for user in hidden}
    usual = {user: [film for film in popular if film not in known[user]] for user in hidden}
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, lists, colour in (("LinkPredictor", best, "#3b6ea5"), ("most popular", usual, "#8a8a8a")):
        right = np.array([[film == hidden[user] for film in lists[user][:MOST]] for user in hidden])
        share = 100 * right.mean(axis=0).cumsum()
        print(f"{name}: the hidden film is among the best 10 for {share[9]:.1f} % of the users")
        axes.plot(range(1, MOST + 1), share, color=colour)
        axes.text(MOST + 0.5, share[-1], name, color=colour, va="center")
    axes.set(xlim=(1, MOST + 7), ylim=(0, None), xlabel="films recommended")
    axes.set_title("% of users whose hidden film is among them", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "recommend_items.png", dpi=120)
    print(f"picture {folder / 'recommend_items.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
