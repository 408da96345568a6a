"""The verbs of node classification as people run them: in a pipe, in a terminal, with mistakes."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_cli import ESCAPE, in_terminal

import fastgrl as fg
from fastgrl import node_commands
from fastgrl.cli import run
from fastgrl.io.writers import write_embedding, write_table
from fastgrl.options import NODE_DESIGNS

VERBS = ["classify", "predict", "explain"]
SIZE = 60
NODES = [f"n{i}" for i in range(SIZE)]
SIDES = ["red" if i < SIZE // 2 else "blue" for i in range(SIZE)]


def ring_pair() -> str:
    """Two rings with chords, joined by two edges: one for each class."""
    half = SIZE // 2
    pairs = [
        (base + u, base + (u + step) % half) for base in (0, half) for u in range(half) for step in (1, 2, 5)
    ]
    return "source,target\n" + "".join(f"n{u},n{v}\n" for u, v in [*pairs, (0, half), (7, half + 9)])


def features_of(ids: list[str], classes: list[str]) -> str:
    rng = np.random.Generator(np.random.Philox(1))
    rows = [
        f"{node},{int(side == 'red')},{int(side == 'blue')},{noise:.3f}\n"
        for node, side, noise in zip(ids, classes, rng.normal(size=len(ids)), strict=True)
    ]
    return "node,height,width,noise\n" + "".join(rows)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """Files of a graph, its labels and features, and two models: with features and without."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "edges.csv").write_text(ring_pair())
    known = [f"{NODES[i]},{SIDES[i]}\n" for i in range(0, SIZE, 5)]
    (folder / "labels.csv").write_text("node,label\n" + "".join(known))
    (folder / "features.csv").write_text(features_of(NODES, SIDES))
    (folder / "links.csv").write_text(ring_pair())
    common = ["classify", str(folder / "edges.csv"), "--labels", str(folder / "labels.csv"), "--quiet"]
    assert run([*common, "-o", str(folder / "plain")]) == 0
    assert run([*common, "--features", str(folder / "features.csv"), "-o", str(folder / "model")]) == 0
    assert (
        run(["link", str(folder / "edges.csv"), "-o", str(folder / "links"), "--rank", "8", "--quiet"]) == 0
    )
    return folder


@pytest.fixture
def place(fitted, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("edges.csv", "labels.csv", "features.csv", "plain", "model", "links"):
        (tmp_path / name).symlink_to(fitted / name)
    return tmp_path


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


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


CLASSIFY = ["classify", "edges.csv", "--labels", "labels.csv"]


def test_a_classifier_says_what_it_learnt_from_and_what_to_type_next(place, capsys):
    shown = said(capsys, *CLASSIFY, "--features", "features.csv", "-o", "fresh", "--predictions", "p.csv")
    for line in (
        r"graph +60 nodes, 182 edges",
        r"labels +12 nodes in 2 classes, 48 without a label",
        r"features +3 of each node",
        r"design +co-ridge, seed 0",
        r"time +\w+ \d",
        r"(red|blue) +\d+ nodes",
        r"predictions +p\.csv",
    ):
        assert re.search(f"^  {line}", shown, re.MULTILINE), line
    for verb in ("explain", "predict"):
        following = re.search(rf"fastgrl ({verb} fresh .+)", shown)
        assert following is not None
        said(capsys, *following[1].split())
    assert {row["node"] for row in rows_of(Path("classes.csv").read_text())} == set(NODES)


def test_json_has_the_promised_facts(place, capsys):
    found = json.loads(said(capsys, *CLASSIFY, "--features", "features.csv", "-o", "m", "--json"))
    assert (found["nodes"], found["edges"], found["labelled"], found["classes"]) == (60, 182, 12, 2)
    assert (found["class_names"], found["features"], found["design"]) == (["blue", "red"], 3, "co-ridge")
    assert sum(found["predicted"].values()) == 60
    assert {"chosen", "validation", "loo_accuracy", "seconds", "certificate", "notices"} <= found.keys()
    assert (found["model"], found["predictions"]) == ("m", None)
    found = json.loads(said(capsys, "explain", "m", "--node", "n3", "--json"))
    assert {
        "node",
        "label",
        "predicted",
        "probability",
        "hops",
        "features",
        "labelled",
        "exact",
    } <= found.keys()
    found = json.loads(said(capsys, "predict", "m", "-o", "p.csv", "--json"))
    assert (found["nodes"], found["new_nodes"], found["out"]) == (60, 0, "p.csv")


def test_the_classes_of_this_graph_are_found(place, capsys):
    for model in ("plain", "model"):
        rows = rows_of(said(capsys, "predict", model, "-o", "-"))
        assert [row["node"] for row in rows] == list(fg.read_graph("edges.csv").node_ids)
        right = [row["class"] == SIDES[int(row["node"][1:])] for row in rows]
        assert np.mean(right) > 0.9
        assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def test_a_name_that_ends_as_a_table_is_one_of_predictions(place, capsys):
    said(capsys, *CLASSIFY, "-o", "out.csv")
    assert len(rows_of(Path("out.csv").read_text())) == 60
    assert rows_of(said(capsys, *CLASSIFY, "-o", "-")) == rows_of(Path("out.csv").read_text())
    assert "-o is the model's" in refused(capsys, *CLASSIFY, "-o", "a.csv", "--predictions", "b.csv")
    assert "both write to standard output" in refused(capsys, *CLASSIFY, "-o", "-", "--json")


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".npz"])
def test_predictions_can_be_read_as_labels_again(ending, place, capsys):
    said(capsys, "predict", "model", "-o", f"p{ending}")
    write_table("edges.parquet", table_of("edges.csv"))
    found = json.loads(
        said(capsys, "classify", "edges.parquet", "--labels", f"p{ending}", "-o", "again", "--json")
    )
    assert (found["labelled"], found["classes"]) == (60, 2)


def table_of(path: str) -> dict[str, list[str]]:
    rows = rows_of(Path(path).read_text())
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("ending", [".parquet", ".npz", ".npy"])
def test_features_of_every_format_give_the_same_classes(ending, place, capsys):
    _, *rows = csv.reader(Path("features.csv").read_text().splitlines())
    vectors = np.array([row[1:] for row in rows], float)
    order = np.random.Generator(np.random.Philox(0)).permutation(SIZE)
    write_embedding(f"X{ending}", vectors[order], node_ids=[rows[i][0] for i in order])
    said(capsys, *CLASSIFY, "--features", "features.csv", "-o", "a.csv")
    said(capsys, *CLASSIFY, "--features", f"X{ending}", "-o", "b.csv")
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


@pytest.mark.parametrize("design", NODE_DESIGNS)
def test_every_design_classifies_and_explains(design, place, capsys):
    more = ["--features", "features.csv", "--design", design, "--no-select", "--rank", "3"]
    assert json.loads(said(capsys, *CLASSIFY, "-o", "m", "--json", *more))["design"] == design
    assert len(rows_of(said(capsys, "predict", "m", "-o", "-"))) == 60
    assert "explained" in said(capsys, "explain", "m", "--node", "n3")


def test_the_designs_on_offer_are_those_of_the_model():
    from fastgrl import node_models

    assert NODE_DESIGNS == node_models.NODE_DESIGNS


def test_settings_that_are_named_are_kept(place, capsys):
    more = ["--ridge", "0.05", "--restart", "0.2", "--rounds", "1", "--balance", "0.5", "--views", "l,i"]
    found = json.loads(said(capsys, *CLASSIFY, "--features", "features.csv", "-o", "m", "--json", *more))
    kept = {"ridge": 0.05, "restart": 0.2, "rounds": 1, "balance": 0.5}
    assert {name: found["chosen"][name] for name in kept} == kept


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--design", "co-rigde"], ["--design 'co-rigde'", "did you mean co-ridge?"]),
        (["--design", "jknn"], ["did you mean jkn?"]),
        (["--ridge", "-1"], ["--ridge", "'-1'"]),
        (["--rounds", "x"], ["--rounds", "'x'"]),
        (["--class-weight", "balancd"], ["did you mean balanced?"]),
        (["--missing-features", "mean"], ["--missing-features 'mean'"]),
        (["--features", "featurs.csv"], ["featurs.csv: no such file; did you mean 'features.csv'?"]),
        (["--validation", "lables.csv"], ["lables.csv: no such file; did you mean 'labels.csv'?"]),
        (["--label-columns", "a,b,c"], ["--label-columns", "'a,b,c'"]),
        (["--label-columns", "node,colour"], ["labels.csv has no column 'colour'", "'node', 'label'"]),
    ],
)
def test_mistyped_options_and_files_are_named(more, words, place, capsys):
    err = refused(capsys, *CLASSIFY, "-o", "fresh", *more)
    assert all(word in err for word in words), err
    assert not Path("fresh").exists()


def test_a_mistyped_file_of_labels_is_guessed_at(place, capsys):
    err = refused(capsys, "classify", "edges.csv", "--labels", "label.csv", "-o", "fresh")
    assert "did you mean 'labels.csv'?" in err
    assert "can be read once" in refused(capsys, "classify", "-", "--labels", "-", "-o", "fresh")


def test_unknown_ids_are_refused_unless_told_otherwise(place, capsys):
    Path("y.csv").write_text("node,label\nn0,red\nn40,blue\nghost,red\n")
    err = refused(capsys, "classify", "edges.csv", "--labels", "y.csv", "-o", "m")
    assert "y.csv, line 4: no node has the id 'ghost'; 1 of 3 ids are no nodes" in err
    assert run(["classify", "edges.csv", "--labels", "y.csv", "-o", "m", "--ignore-unknown"]) == 0
    assert "note: y.csv: 1 of 3 ids are no nodes and were left out" in capsys.readouterr().err


def test_blank_labels_alone_are_refused(place, capsys):
    Path("y.csv").write_text("node,label\nn0,\nn1,\n")
    assert "y.csv holds no label" in refused(capsys, "classify", "edges.csv", "--labels", "y.csv", "-o", "m")


def test_nodes_to_choose_by_can_be_given(place, capsys):
    Path("held.csv").write_text("node\nn5\nn35\n")
    found = json.loads(said(capsys, *CLASSIFY, "--validation", "held.csv", "-o", "m", "--json"))
    assert found["validation"]["nodes"] == 2
    Path("held.csv").write_text("node,label\nn6,red\nn36,blue\n")
    found = json.loads(said(capsys, *CLASSIFY, "--validation", "held.csv", "-o", "m2", "--json"))
    assert (found["validation"]["nodes"], found["labelled"]) == (2, 14)
    Path("held.csv").write_text("node\nn5\nn36\n")
    err = refused(capsys, *CLASSIFY, "--validation", "held.csv", "-o", "m3")
    assert "held.csv, line 3: the node 'n36' has no label" in err


HARD = ["naïve, “quoted”", "北京", 'say "hi"', "two\nlines", "003", "3", "NaN"]


def test_any_name_of_a_class_comes_back(place, capsys):
    names = [HARD[i % len(HARD)] for i in range(SIZE)]
    write_table("y.csv", {"node": NODES, "label": names})
    shown = said(capsys, "classify", "edges.csv", "--labels", "y.csv", "-o", "m")
    assert "two\\nlines" in shown
    rows = rows_of(said(capsys, "predict", "m", "-o", "-", "--all-classes"))
    assert set(rows[0]) == {"node", "class", "probability", *(f"p({name})" for name in HARD)}
    assert {row["class"] for row in rows} <= set(HARD)
    for row in rows:
        chances = {name: float(row[f"p({name})"]) for name in HARD}
        assert sum(chances.values()) == pytest.approx(1)
        assert float(row["probability"]) == max(chances.values()) == chances[row["class"]]
    found = json.loads(said(capsys, "explain", "m", "--node", "n3", "--class", "two\nlines", "--json"))
    assert found["label"] == "two\nlines"
    assert "\x1b" not in said(capsys, "explain", "m", "--node", "n3", "--class", "two\nlines")


def test_several_labels_of_a_node_are_learnt_and_written(place, capsys):
    rows = [(NODES[i], label) for i in range(SIZE) for label in (SIDES[i], "even" if i % 2 == 0 else "")]
    kept = [(node, label) for node, label in rows if label and node not in ("n8", "n9")]
    write_table("y.csv", {"node": [node for node, _ in kept], "label": [label for _, label in kept]})
    common = ["classify", "edges.csv", "--labels", "y.csv"]
    assert "--multi-label takes both" in refused(capsys, *common, "-o", "m")
    found = json.loads(said(capsys, *common, "-o", "m", "--multi-label", "--json"))
    assert (found["multilabel"], found["classes"], found["labelled"]) == (True, 3, 58)
    told = rows_of(said(capsys, "predict", "m", "-o", "-"))
    assert {row["node"] for row in told} == set(NODES)
    assert {row["class"] for row in told} <= {"red", "blue", "even", ""}
    assert (
        np.mean([row["class"] == SIDES[int(row["node"][1:])] for row in told if row["class"] != "even"]) > 0.8
    )
    each = rows_of(said(capsys, "predict", "m", "-o", "-", "--all-classes"))
    assert set(each[0]) == {"node", "p(blue)", "p(even)", "p(red)"}
    assert len(each) == SIZE


def test_classes_of_new_nodes_are_found_by_their_edges(place, capsys):
    Path("new.csv").write_text("source,target\nann,n1\nann,n2\nbob,n41\nbob,n42\nbob,n50\nann,n6\n")
    rows = rows_of(said(capsys, "predict", "plain", "--edges", "new.csv", "-o", "-"))
    assert [(row["node"], row["class"]) for row in rows] == [("ann", "red"), ("bob", "blue")]
    Path("some.csv").write_text("node\nbob\nn3\n")
    rows = rows_of(said(capsys, "predict", "plain", "--edges", "new.csv", "--for", "some.csv", "-o", "-"))
    assert [row["node"] for row in rows] == ["bob", "n3"]
    Path("some.csv").write_text("node\nbob\neve\n")
    err = refused(capsys, "predict", "plain", "--edges", "new.csv", "--for", "some.csv", "-o", "-")
    assert "some.csv, line 3: 'eve' is neither a node of the model nor a new one" in err


def test_new_nodes_bring_their_features_if_the_model_has_any(place, capsys):
    Path("new.csv").write_text("source,target\nbob,n41\nann,n1\nann,n2\nbob,n42\n")
    err = refused(capsys, "predict", "model", "--edges", "new.csv", "-o", "-")
    assert "fitted with features" in err
    assert "--features FILE" in err
    Path("X.csv").write_text("node,height,width,noise\nn1,9,9,9\nann,1,0,0.5\nbob,0,1,0.1\n")
    rows = rows_of(said(capsys, "predict", "model", "--edges", "new.csv", "--features", "X.csv", "-o", "-"))
    assert {row["node"]: row["class"] for row in rows} == {"ann": "red", "bob": "blue"}
    Path("X.csv").write_text("node,height,width,noise\nann,1,0,0.5\n")
    err = refused(capsys, "predict", "model", "--edges", "new.csv", "--features", "X.csv", "-o", "-")
    assert "X.csv: 1 of 2 nodes have no features, the first is 'bob'" in err
    assert "give their edges with --edges" in refused(
        capsys, "predict", "model", "--features", "X.csv", "-o", "-"
    )
    Path("new.csv").write_text("source,target\nn1,n2\n")
    assert "names no new node" in refused(capsys, "predict", "plain", "--edges", "new.csv", "-o", "-")


def test_columns_of_new_nodes_are_matched_by_name(place, capsys):
    Path("new.csv").write_text("source,target\nbob,n41\nann,n1\n")
    asked = ("predict", "model", "--edges", "new.csv", "--features", "X.csv", "-o", "-")
    Path("X.csv").write_text("node,height,width,noise\nann,1,0,0.5\nbob,0,1,0.1\n")
    wanted = said(capsys, *asked)
    Path("X.csv").write_text("node,noise,height,width\nann,0.5,1,0\nbob,0.1,0,1\n")
    assert said(capsys, *asked) == wanted
    Path("X.csv").write_text("node,noise,hight,width\nann,0.5,1,0\nbob,0.1,0,1\n")
    assert 'X.csv lacks the column "height"' in refused(capsys, *asked).replace("'", '"')


def test_only_the_nodes_of_a_list_are_classified_in_its_order(place, capsys):
    Path("some.txt").write_text("n7\nn3\nn7\n")
    rows = rows_of(said(capsys, "predict", "model", "--for", "some.txt", "-o", "-"))
    assert [row["node"] for row in rows] == ["n7", "n3", "n7"]
    Path("some.txt").write_text("n7\nghost\n")
    assert "some.txt, line 2" in refused(capsys, "predict", "model", "--for", "some.txt", "-o", "-")


def test_integer_ids_work_as_well(place, capsys):
    said(capsys, *CLASSIFY, "-o", "a.csv")
    for name in ("edges.csv", "labels.csv"):
        Path(f"i{name}").write_text(re.sub(r"\bn(\d)", r"\1", Path(name).read_text()))
    said(capsys, "classify", "iedges.csv", "--labels", "ilabels.csv", "-o", "b.csv")
    a, b = (rows_of(Path(name).read_text()) for name in ("a.csv", "b.csv"))
    assert [{**row, "node": row["node"][1:]} for row in a] == b


def test_an_explanation_adds_up_and_fits_eighty_columns(place, capsys):
    found = json.loads(said(capsys, "explain", "model", "--node", "n3", "--top", "100", "--json"))
    assert found["score"] == pytest.approx(found["bias"] + sum(found["hops"]), abs=1e-6)
    by_label = sum(share["contribution"] for share in found["labelled"])
    assert found["score"] == pytest.approx(
        by_label + found["other_labelled"] + found["pseudo_labelled"], abs=1e-6
    )
    shown = said(capsys, "explain", "model", "--node", "n3")
    assert max(map(len, shown.splitlines())) <= 80
    for line in (r"predicted +red", r"probability +\d+\.\d\d % for red", r"the node itself +[+-]\d"):
        assert re.search(f"^  {line}", shown, re.MULTILINE), line
    for name in ("height", "width"):
        assert name in shown
    assert len(said(capsys, "explain", "model", "--node", "n3", "--top", "1").splitlines()) < len(
        shown.splitlines()
    )


def test_explanations_of_wrong_nodes_and_classes_are_refused(place, capsys):
    assert "'ghost'" in refused(capsys, "explain", "model", "--node", "ghost")
    err = refused(capsys, "explain", "model", "--node", "n3", "--class", "rde")
    assert "knows no class 'rde'; did you mean 'red'?" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "model", "--pairs", "edges.csv", "-o", "s.csv"],
        ["recommend", "model", "--node", "n0"],
        ["update", "model", "--edges", "edges.csv"],
    ],
)
def test_verbs_of_links_say_that_a_model_classifies_nodes(arguments, place, capsys):
    err = refused(capsys, *arguments)
    assert "node classifier" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["predict", "links", "-o", "p.csv"], ["explain", "links", "--node", "n0"]]
)
def test_verbs_of_nodes_say_that_a_model_predicts_links(arguments, place, capsys):
    err = refused(capsys, *arguments)
    assert "link predictor" in err
    assert len(err.splitlines()) == 1


def test_a_model_is_overwritten_only_by_force_and_no_input_ever(place, capsys):
    shutil.copytree("model", "own")
    assert "--force" in refused(capsys, *CLASSIFY, "-o", "own")
    said(capsys, *CLASSIFY, "-o", "own", "--force")
    Path("y.csv").write_text(Path("labels.csv").read_text())
    err = refused(
        capsys, "classify", "edges.csv", "--labels", "y.csv", "-o", "m", "--predictions", "y.csv", "--force"
    )
    assert "never overwritten" in err
    assert not Path("m").exists()
    said(capsys, "predict", "model", "-o", "p.csv")
    assert "--force" in refused(capsys, "predict", "model", "-o", "p.csv")
    assert "must end in one of" in refused(capsys, "predict", "model", "-o", "p.txt")


@pytest.mark.parametrize("moment", ["fit", "predict_proba", "save"])
def test_ctrl_c_leaves_nothing_behind(moment, place, monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = sorted(path.name for path in place.iterdir())
    monkeypatch.setattr(fg.NodeClassifier, moment, interrupted)
    assert run([*CLASSIFY, "-o", "fresh", "--predictions", "p.csv"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert sorted(path.name for path in place.iterdir()) == before


def test_the_same_seed_gives_the_same_bits(place, capsys):
    for name in ("a.csv", "b.csv"):
        said(capsys, *CLASSIFY, "--features", "features.csv", "--seed", "3", "-o", name)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_files_are_evaluated_on_random_splits(place, capsys):
    write_table("y.csv", {"node": NODES, "label": SIDES})
    more = ["--labels", "y.csv", "--features", "features.csv", "--no-select", "--repeat", "2"]
    found = json.loads(said(capsys, "evaluate", "nodes", "edges.csv", *more, "--json"))
    assert (found["task"], found["split"], found["dataset"]) == ("nodes", "random", "edges.csv")
    assert found["test"]["accuracy"] > 0.8
    assert len(found["repeats"]) == 2
    assert re.search(r"accuracy +\d+\.\d\d % ±", said(capsys, "evaluate", "nodes", "edges.csv", *more))
    found = json.loads(
        said(capsys, "evaluate", "nodes", "edges.csv", "--labels", "y.csv", "--no-select", "--json")
    )
    assert 0 <= found["test"]["accuracy"] <= 1


def test_datasets_are_evaluated_on_their_own_split(place, capsys):
    found = json.loads(said(capsys, "evaluate", "nodes", "digits", "--no-select", "--json"))
    assert {"validation", "test", "chosen", "seconds", "peak_memory_bytes"} <= found.keys()
    assert (found["split"], found["design"]) == ("official", "co-ridge")
    assert found["test"]["accuracy"] > 0.9


def test_settings_may_be_chosen_without_validation_nodes(place, capsys):
    found = json.loads(said(capsys, "evaluate", "nodes", "digits", "--leave-one-out", "--json"))
    assert found["validation"]["accuracy"] is None
    assert found["chosen"]["averaged"] == 1
    assert found["test"]["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("asked", "random_split", "there", "trained"),
    [
        (None, True, True, ("gcn",)),
        (None, True, False, ()),
        (None, False, True, ()),
        ("none", True, True, ()),
        ("gcn", False, False, ("gcn",)),
    ],
)
def test_a_network_is_trained_beside_on_random_splits_if_it_is_there(
    asked, random_split, there, trained, monkeypatch
):
    monkeypatch.setattr(node_commands, "find_spec", lambda name: there or None)
    assert node_commands._beside(asked, random_split=random_split) == trained


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["croa"], "did you mean cora?"),
        (["edges.csv"], "name its classes with --labels FILE"),
        (["ca-HepTh"], "use fastgrl evaluate links ca-HepTh"),
        (["digits", "--labels", "labels.csv"], "--labels is about files"),
        (["digits", "--features", "features.csv"], "--features is about files"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(arguments, words, place, capsys):
    assert words in refused(capsys, "evaluate", "nodes", *arguments)


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_terminal(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_terminal_of_eighty_columns_is_not_overrun(place):
    shown = ESCAPE.sub("", in_terminal(*CLASSIFY, "-o", "fresh", "--no-progress")).replace("\r", "")
    assert max(map(len, shown.splitlines())) <= 80
