"""The verbs of link prediction as people run them: in a pipe, in a terminal, with mistakes."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from badinputs import small_graph
from test_cli import ESCAPE, in_terminal

import fastgrl as fg
from fastgrl.cli import run
from fastgrl.io.pairs import find_ids, read_ids, read_pairs
from fastgrl.options import DESIGNS

VERBS = ["embed", "link", "score", "recommend", "update"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A folder with edges.csv and a model of it; tests copy what they change."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "edges.csv").write_text(small_graph())
    assert (
        run(["link", str(folder / "edges.csv"), "-o", str(folder / "model"), "--quiet", "--rank", "8"]) == 0
    )
    return folder


@pytest.fixture
def place(fitted, tmp_path, monkeypatch) -> Path:
    """A working folder of its own, with links to what was fitted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").symlink_to(fitted / "edges.csv")
    (tmp_path / "model").symlink_to(fitted / "model")
    return tmp_path


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def said(capsys, *arguments: str) -> str:
    """What a command that goes well prints."""
    assert run(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *arguments: str, code: int = 2) -> str:
    """What a command that is refused says."""
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 3
    return err


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz", ".npy", ".txt"])
def test_every_format_of_an_embedding_holds_the_same_numbers_and_the_ids(ending, place, capsys):
    said(capsys, "embed", "edges.csv", "-o", f"out{ending}", "--rank", "6", "--quiet")
    ids, vectors = loaded_embedding(place / f"out{ending}")
    expected = fg.embed(fg.read_graph("edges.csv"), 6)
    assert ids == [f"n{i}" for i in ORDER]
    np.testing.assert_array_equal(vectors.astype(expected.dtype), expected)


# In the order in which the file first names them.
ORDER = list(dict.fromkeys(int(n) for n in re.findall(r"n(\d+)", small_graph())))


def loaded_embedding(path: Path) -> tuple[list[str], np.ndarray]:
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["ids"].tolist(), arrays["embedding"]
    if path.suffix == ".npy":
        return read_ids(path.with_suffix(".ids.csv")).ids.tolist(), np.load(path)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        columns = [table[name].to_numpy() for name in table.column_names[1:]]
        return table["id"].to_pylist(), np.stack(columns, axis=1)
    skip, delimiter = 1, "," if path.suffix == ".csv" else " "
    lines = [line.split(delimiter) for line in path.read_text().splitlines()[skip:]]
    return [line[0] for line in lines], np.array([line[1:] for line in lines], float)


def test_dash_writes_the_embedding_to_stdout_and_nothing_else(place, capsys):
    shown = said(capsys, "embed", "edges.csv", "-o", "-", "--rank", "4")
    said(capsys, "embed", "edges.csv", "-o", "out.csv", "--rank", "4")
    assert shown == Path("out.csv").read_text()
    assert [row["id"] for row in rows_of(shown)][:2] == ["n0", "n1"]


def test_both_sides_of_a_directed_graph_can_be_had(place, capsys):
    for side in ("left", "right"):
        said(capsys, "embed", "edges.csv", "--directed", "--side", side, "-o", f"{side}.npy", "--rank", "4")
    assert not np.allclose(np.load("left.npy"), np.load("right.npy"))
    assert "did you mean left?" in refused(capsys, "embed", "edges.csv", "-o", "x.csv", "--side", "lefft")


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_embeds_and_links(design, place, capsys):
    more = ["--design", design, "--rank", "5", "--no-select"]
    found = json.loads(said(capsys, "embed", "edges.csv", "-o", "out.npy", "--json", *more))
    assert (found["design"], found["rank"], found["nodes"]) == (design, 5, 40)
    assert np.load("out.npy").shape == (40, 5)
    assert json.loads(said(capsys, "link", "edges.csv", "-o", "other", "--json", *more))["design"] == design
    assert len(rows_of(said(capsys, "recommend", "other", "--node", "n3", "-k", "2", "-o", "-"))) == 2


def test_the_designs_on_offer_are_those_of_the_model():
    from fastgrl import link_fits

    assert set(DESIGNS) == set(link_fits.DESIGNS)


def test_a_link_predictor_says_how_good_it_is_and_what_to_type_next(place, capsys):
    shown = said(capsys, "link", "edges.csv", "-o", "fresh", "--rank", "8")
    for line in (
        r"graph +40 nodes, 120 edges",
        r"ROC-AUC +\d+\.\d\d %",
        r"captured energy +\d",
        r"time +\w+ \d",
    ):
        assert re.search(f"^  {line}", shown, re.MULTILINE), line
    following = re.search(r"fastgrl (recommend fresh --node \S+)", shown)
    assert following is not None
    assert "best missing links of" in said(capsys, *following[1].split())


def test_validation_pairs_of_ones_own_are_used(place, capsys):
    Path("known.csv").write_text("source,target\nn0,n3\nn10,n13\nn20,n23\nn30,n33\n")
    found = json.loads(said(capsys, "link", "edges.csv", "-o", "m", "--validation", "known.csv", "--json"))
    assert 0 <= found["validation"]["roc_auc"] <= 1
    Path("known.csv").write_text("source,target\nn0,n3\nn10,n99\n")
    err = refused(capsys, "link", "edges.csv", "-o", "m2", "--validation", "known.csv")
    assert "known.csv, line 3" in err
    assert "'n99'" in err
    assert not Path("m2").exists()


def test_scores_are_those_of_the_model_in_the_order_of_the_pairs(place, capsys):
    Path("pairs.csv").write_text("# mine\nfrom;to\nn5;n9\nn9;n5\nn5;n9\nn0;n0\n")
    shown = rows_of(said(capsys, "score", "model", "--pairs", "pairs.csv", "-o", "-"))
    pairs = [("n5", "n9"), ("n9", "n5"), ("n5", "n9"), ("n0", "n0")]
    assert [(row["source"], row["target"]) for row in shown] == pairs
    expected = fg.load("model").score_pairs(pairs)
    assert [float(row["score"]) for row in shown] == expected.tolist()
    said(capsys, "score", "model", "--pairs", "pairs.csv", "-o", "scores.npz")
    said(capsys, "score", "model", "--pairs", "pairs.csv", "-o", "scores.parquet")
    with np.load("scores.npz") as arrays:
        assert arrays["score"].tolist() == expected.tolist()
        assert arrays["source"].tolist() == [u for u, _ in pairs]
    assert read_pairs("scores.parquet").columns[1].tolist() == [v for _, v in pairs]


def test_pairs_come_from_standard_input_too(place):
    command = [sys.executable, "-m", "fastgrl", "score", "model", "--pairs", "-", "-o", "-"]
    done = subprocess.run(command, input="n1,n2\nn1,n7\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["target"] for row in rows_of(done.stdout)] == ["n2", "n7"]
    done = subprocess.run(command, input="n1,n2\nn1,nobody\n", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard input, line 2: no node has the id 'nobody'" in done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("n1,n2\nn1,zz\n", 2),
        ("source,target\n\n# no\nn1,n2\n\nzz,n1\n", 6),
        ('source,target\n"n1",n2\n"n\n3",n2\n', 3),
        ("source,target\r\nn1,n2\r\nn1,zz\r\n", 3),
    ],
)
def test_an_unknown_id_is_named_with_its_line(text, line, place, capsys):
    Path("pairs.csv").write_bytes(text.encode())
    assert f"pairs.csv, line {line}: " in refused(capsys, "score", "model", "--pairs", "pairs.csv", "-o", "-")


def test_recommendations_leave_known_links_out(place, capsys):
    graph = fg.read_graph("edges.csv")
    shown = rows_of(said(capsys, "recommend", "model", "--all", "-k", "3", "-o", "-"))
    pairs = [(row["node"], row["target"]) for row in shown]
    codes = np.stack([graph.index_of([u for u, _ in pairs]), graph.index_of([v for _, v in pairs])])
    assert len(pairs) == len(set(pairs)) == 3 * 40
    assert not graph.has_edges(*codes).any()
    assert (codes[0] != codes[1]).all()


def test_one_node_gets_a_table_and_several_get_csv(place, capsys):
    table = said(capsys, "recommend", "model", "--node", "n4", "-k", "2")
    assert table.splitlines()[0] == "best missing links of 'n4', with their scores"
    several = rows_of(said(capsys, "recommend", "model", "--node", "n4", "--node", "n0", "-k", "2"))
    assert [row["node"] for row in several] == ["n4", "n4", "n0", "n0"]
    assert re.search(rf"^  1  {several[0]['target']} +-?\d+\.\d+$", table, re.MULTILINE)
    Path("nodes.txt").write_text("n4\nn0\n")
    assert rows_of(said(capsys, "recommend", "model", "--for", "nodes.txt", "-k", "2")) == several
    found = json.loads(said(capsys, "recommend", "model", "--node", "n4", "-k", "2", "--json"))
    assert [link["target"] for link in found["recommendations"]] == [row["target"] for row in several[:2]]


def test_recommendations_can_be_kept_among_some_nodes(place, capsys):
    Path("among.txt").write_text("n10\nn11\nn12\n")
    shown = rows_of(said(capsys, "recommend", "model", "--all", "--among", "among.txt", "-o", "-"))
    assert {row["target"] for row in shown} == {"n10", "n11", "n12"}
    Path("among.txt").write_text("n10\nelse\n")
    assert "among.txt, line 2" in refused(capsys, "recommend", "model", "--all", "--among", "among.txt")


def test_an_index_gives_nearly_the_same(place, capsys):
    pytest.importorskip("usearch")
    exact = rows_of(said(capsys, "recommend", "model", "--node", "n4", "-o", "-", "-k", "5"))
    near = rows_of(said(capsys, "recommend", "model", "--node", "n4", "-o", "-", "-k", "5", "--approximate"))
    assert len({row["target"] for row in exact} & {row["target"] for row in near}) >= 2


@pytest.mark.parametrize("more", [[], ["--all", "--node", "n1"], ["--for", "x.txt", "--all"]])
def test_recommend_is_told_for_whom_exactly_once(more, place, capsys):
    assert "--node ID" in refused(capsys, "recommend", "model", *more)


def test_an_update_takes_new_nodes_in_and_says_what_it_cost(place, fitted, capsys):
    said(capsys, "link", "edges.csv", "-o", "mine", "--rank", "8")
    before = Path("mine").stat().st_mtime_ns
    Path("new.csv").write_text("source,target\nn0,fresh\nn1,fresh\nn2,n9\n")
    found = json.loads(said(capsys, "update", "mine", "--edges", "new.csv", "-o", "newer", "--json"))
    assert (found["nodes"], found["edges"]) == (41, 123)
    assert (found["update"]["new_nodes"], found["update"]["new_edges"]) == (1, 3)
    assert Path("mine").stat().st_mtime_ns == before
    assert fg.load("newer").score_pairs([("fresh", "n0")]).shape == (1,)
    shown = said(capsys, "update", "mine", "--edges", "new.csv")
    assert re.search(r"captured energy +\d+\.\d+ % before, \d+\.\d+ % after", shown)
    assert fg.load("mine").graph_.num_nodes == 41
    assert "fresh" in said(capsys, "recommend", "mine", "--node", "fresh")


def test_ids_that_are_integers_are_found_by_their_text(place, capsys):
    graph = fg.Graph.from_codes([0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0])
    np.save("edges.npy", graph.edge_codes())
    said(capsys, "link", "edges.npy", "-o", "numbers", "--rank", "3")
    found = json.loads(said(capsys, "recommend", "numbers", "--node", "3", "--json"))
    assert found["recommendations"][0]["node"] == 3
    assert "'03'" in refused(capsys, "recommend", "numbers", "--node", "03")
    Path("pairs.csv").write_text("3,0\n")
    assert rows_of(said(capsys, "score", "numbers", "--pairs", "pairs.csv", "-o", "-"))[0]["source"] == "3"
    np.save("pairs.npy", np.array([[3, 0]]))
    assert rows_of(said(capsys, "score", "numbers", "--pairs", "pairs.npy", "-o", "-"))[0]["source"] == "3"
    assert find_ids(fg.Graph.from_edges([("7", "8")]), np.array([8, 9])).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["embed", "edges.csv"], ["-o"]),
        (["embed", "edges.csv", "-o", "x.doc"], [".parquet", "x.doc"]),
        (["embed", "edges.csv", "-o", "edges.csv", "--force"], ["input"]),
        (["embed", "edges.csv", "-o", "model"], [".parquet"]),
        (["embed", "edges.csv", "-o", "x.csv", "--design", "shrunkn"], ["shrunkn", "shrunken"]),
        (["embed", "edges.csv", "-o", "x.csv", "--negative", "-1"], ["--negative", "-1"]),
        (["embed", "edges.csv", "-o", "x.csv", "--rank", "41"], ["rank 41", "40"]),
        (["embed", "edges.csv", "-o", "-", "--json"], ["--json"]),
        (["link", "edges.csv", "-o", "model"], ["--force"]),
        (["link", "edges.csv", "-o", "edges.csv"], ["edges.csv"]),
        (["link", "edges.csv", "-o", "missing/model"], ["missing"]),
        (["score", "model", "--pairs", "pears.csv", "-o", "-"], ["pears.csv"]),
        (["score", "model", "--pairs", "edges.csv", "-o", "scores.xlsx"], [".csv", "scores.xlsx"]),
        (["score", "edges.csv", "--pairs", "edges.csv", "-o", "-"], ["edges.csv"]),
        (["recommend", "modle", "--node", "n0"], ["modle"]),
        (["recommend", "model", "--node", "N0"], ["'N0'"]),
        (["recommend", "model", "--node", "n0", "-k", "0"], ["-k"]),
        (["update", "model"], ["--edges"]),
        (["evaluate", "links", "ca-HepTj"], ["ca-HepTh"]),
        (["evaluate", "links", "ppi", "--directed"], ["--directed"]),
        (["evaluate", "links", "edges.csv", "--metric", "hits@0"], ["hits@0"]),
        (["evaluate", "nodess", "cora"], ["nodess"]),
    ],
)
def test_a_wrong_call_is_refused_before_any_work(arguments, words, place, capsys):
    before = sorted(path.name for path in place.iterdir())
    err = refused(capsys, *arguments)
    assert all(word in err for word in words), err
    assert sorted(path.name for path in place.iterdir()) == before


def test_what_is_there_is_overwritten_only_when_told(place, capsys):
    Path("out.csv").write_text("mine")
    assert "--force" in refused(capsys, "embed", "edges.csv", "-o", "out.csv", "--rank", "3")
    assert Path("out.csv").read_text() == "mine"
    said(capsys, "embed", "edges.csv", "-o", "out.csv", "--rank", "3", "--force")
    assert len(rows_of(Path("out.csv").read_text())) == 40


def test_a_limit_on_memory_refuses_rather_than_dies(place, capsys):
    err = refused(capsys, "link", "edges.csv", "-o", "m", "--max-memory", "1kB", code=1)
    assert "1 kB" in err
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("columns", "arguments"),
    [
        (80, ["link", "edges.csv", "-o", "fresh", "--rank", "4"]),
        (80, ["recommend", "model", "--node", "n0"]),
        (120, ["evaluate", "links", "edges.csv", "--rank", "4", "--no-select"]),
    ],
)
def test_a_terminal_is_never_overrun(columns, arguments, place):
    shown = in_terminal(*arguments, columns=columns)
    lines = ESCAPE.sub("", shown).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= columns
    assert "\x1b[1m" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_is_one_column_of_short_lines(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    shown = said(capsys, verb, "--help-all")
    assert len(shown.splitlines()) <= 50
    assert all(f"--{option}" in shown for option in ("json", "quiet", "no-progress", "debug", "threads"))


@pytest.mark.parametrize("words", [["embed"], ["link"], ["evaluate", "links"]])
def test_what_fits_offers_every_common_option(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    shown = said(capsys, *words, "--help-all")
    fit = "rank design window negative seed max-memory bipartite no-bipartite select no-select"
    reading = "directed weight unweighted delimiter header columns nodes threads"
    assert all(f"--{option}" in shown for option in (fit + " " + reading).split())


@pytest.mark.parametrize("option", [("--window", "3"), ("--negative", "2")])
def test_settings_of_another_design_are_refused(place, capsys, option):
    error = refused(capsys, "link", "edges.csv", "-o", "new", *option)
    assert f"{option[0]} is about the designs degree-walk, walk, as-released; log-diffusion has none" in error
