"""What is rerun: the published numbers as they were printed, and each run of the tables and figures once."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgrl.datasets import describe
from fastgrl.errors import ArgumentError
from fastgrl.experiments.methods import ENGINES, NEEDS
from fastgrl.experiments.plans import Run, plan
from fastgrl.experiments.specs import NAMES, load_spec, load_specs

NODES = ("cora", "citeseer", "pubmed")
LINKS = ("soc-facebook", "ca-AstroPh", "ca-HepTh", "ppi")
# Test accuracy and seconds on a GPU, for Cora, Citeseer and Pubmed.
NODE_TABLE = {
    "planetoid": [(75.7, 13), (64.7, 26), (77.2, 25)],
    "gcn": [(81.5, 4), (70.3, 7), (79.0, 83)],
    "gat": [(83.2, 83), (72.4, 207), (77.7, 333)],
    "mixhop": [(81.9, 26), (71.4, 31), (80.8, 76)],
    "gcnii": [(85.5, 149), (73.4, 175), (80.3, 102)],
    "paper": [(82.4, 0.28), (72.2, 0.13), (79.7, 0.14)],
}
# Test ROC-AUC × 100 for FB, AstroPh, HepTh and PPI.
LINK_TABLE = {
    "wys": (99.4, 97.9, 93.6, 89.8),
    "node2vec": (99.0, 97.8, 92.3, 83.1),
    "netmf": (97.6, 96.8, 90.5, 73.6),
    "netmf-eigen": (97.0, 81.9, 85.0, 63.6),
    "paper-32": (98.7, 92.1, 89.2, 87.9),
    "paper-100": (98.7, 96.0, 90.5, 86.2),
}
COUNTED = {
    "ppi": (3852, 20881),
    "soc-facebook": (4039, 88234),
    "ca-AstroPh": (17903, 197031),
    "ca-HepTh": (8638, 24827),
    "cora": (2708, 5429),
    "citeseer": (3327, 4732),
    "pubmed": (19717, 44338),
}

RUN = Run("table-links", "links", "roc_auc", "walk", "link-predictor", "ppi", 1, False, {"rank": 32})


def test_published_accuracies_and_seconds_are_those_in_print():
    spec = load_spec("table-nodes")
    for method in spec.methods:
        row = NODE_TABLE.get(method.name, [])
        assert dict(method.published) == {name: value for name, (value, _) in zip(NODES, row, strict=False)}
        assert dict(method.published_seconds) == {name: s for name, (_, s) in zip(NODES, row, strict=False)}
    assert NODE_TABLE.keys() <= {method.name for method in spec.methods}


def test_published_areas_are_those_in_print():
    spec = load_spec("table-links")
    for method in spec.methods:
        assert dict(method.published) == dict(zip(LINKS, LINK_TABLE.get(method.name, ()), strict=False))
    assert LINK_TABLE.keys() <= {method.name for method in spec.methods}


def test_all_five_have_the_datasets_of_their_task():
    assert tuple(spec.name for spec in load_specs()) == NAMES
    for spec in load_specs():
        assert tuple(item.name for item in spec.datasets) == (NODES if spec.task == "nodes" else LINKS)
        assert spec.metric == {"nodes": "accuracy", "links": "roc_auc"}[spec.task]
        assert sum(item.quick for item in spec.datasets) == 1
        assert spec.name.partition("-")[0] == spec.kind
        assert (spec.axis is None) == (spec.kind == "table")
        for item in spec.datasets:
            assert describe(item.name).task == spec.task
            assert (item.published_nodes, item.published_edges) == COUNTED[item.name]


def test_every_method_has_an_engine_a_reference_and_words_for_people():
    for spec in load_specs():
        assert len({method.name for method in spec.methods}) == len(spec.methods)
        assert len({method.label for method in spec.methods}) == len(spec.methods)
        datasets = {item.name for item in spec.datasets}
        for method in spec.methods:
            assert method.engine in ENGINES
            assert method.kind in ("published", "paper", "ours")
            assert method.reference
            assert method.label
            for by_dataset in (method.published, method.published_seconds, method.of, method.seeds):
                assert set(by_dataset) <= datasets
            assert set(method.published) in (set(), datasets)
            assert 0 < method.tolerance <= 1.5


def test_what_is_needed_is_said_of_engines_that_exist():
    assert NEEDS.keys() <= set(ENGINES)


def test_settings_of_a_dataset_come_before_those_of_the_method_and_short_ones_before_both():
    method = replace(
        load_spec("table-nodes").method("gcn"),
        settings={"a": 1, "b": 1, "c": 1},
        of={"cora": {"b": 2, "c": 2}},
        brief={"c": 3},
    )
    assert method.settings_for("cora") == {"a": 1, "b": 2, "c": 2}
    assert method.settings_for("cora", quick=True) == {"a": 1, "b": 2, "c": 3}
    assert method.settings_for("pubmed") == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("name", ["tabel-nodes", "figure-dept", "table_links"])
def test_a_mistyped_table_is_guessed_at(name):
    with pytest.raises(ArgumentError, match=r"did you mean [a-z-]+\?") as caught:
        load_spec(name)
    assert f"'{name}'" in str(caught.value)


def test_a_table_that_resembles_none_lists_all():
    with pytest.raises(ArgumentError, match="choose from table-nodes, table-links, figure-time"):
        load_spec("\x1b[2J")


def facts(run: Run) -> tuple[str, str, int]:
    return run.method, run.dataset, run.seed


def test_every_method_dataset_and_seed_is_run_once():
    expected = Counter(
        (method.name, dataset.name, seed)
        for spec in load_specs()
        if spec.shared is None
        for method in spec.methods
        for dataset in spec.datasets
        for seed in range(method.seeds.get(dataset.name, spec.seeds))
    )
    found = plan(load_specs())
    assert Counter(map(facts, found)) == expected
    assert set(expected.values()) == {1}
    assert len({run.key for run in found}) == len(found)
    assert len({run.title for run in found}) == len(found)
    assert min(Counter((run.method, run.dataset) for run in found).values()) >= 3


def test_a_figure_of_a_tables_methods_adds_no_runs():
    shared = [spec for spec in load_specs() if spec.shared is not None]
    assert [spec.name for spec in shared] == ["figure-time"]
    for spec in shared:
        source = load_spec(spec.shared)
        keys = {run.key for run in plan([source])}
        assert {run.key for run in plan([spec])} <= keys
        assert {run.key for run in plan([spec, source])} == keys
        assert all(run.spec == source.name for run in plan([spec]))


def test_first_seeds_come_first():
    seeds = [run.seed for run in plan(load_specs())]
    assert seeds == sorted(seeds)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sets(st.sampled_from([*NODE_TABLE, *LINK_TABLE, "depth-paper"]), max_size=3),
    st.sets(st.sampled_from([*NODES, *LINKS]), max_size=3),
    st.none() | st.integers(1, 7),
    st.booleans(),
)
def test_only_what_is_named_is_run(names, only, datasets, seeds, quick):
    specs = [load_spec(name) for name in NAMES if name in names]
    methods = {method.name for spec in specs for method in spec.methods}
    columns = {dataset.name for spec in specs for dataset in spec.datasets}
    asked = {"only": sorted(only), "datasets": sorted(datasets), "seeds": seeds, "quick": quick}
    if not (only <= methods and datasets <= columns):
        with pytest.raises(ArgumentError, match="is part of this"):
            plan(specs, **asked)
        return
    short = {d.name for spec in specs for d in spec.datasets if d.quick}
    wanted = [
        run
        for run in plan(specs, seeds=seeds or 7, quick=False)
        if (not only or run.method in only)
        and (run.dataset in datasets if datasets else run.dataset in short or not quick)
        and (seeds is not None or run.seed < (1 if quick else usual(run)))
    ]
    if not wanted:
        with pytest.raises(ArgumentError, match="no method that was named goes with a dataset"):
            plan(specs, **asked)
        return
    found = plan(specs, **asked)
    assert set(map(facts, found)) == set(map(facts, wanted))
    assert all(run.quick is quick for run in found)


def usual(run: Run) -> int:
    spec = load_spec(run.spec)
    return spec.method(run.method).seeds.get(run.dataset, spec.seeds)


def test_a_quick_run_is_one_seed_of_one_dataset_and_short():
    found = plan(load_specs(), quick=True)
    assert {run.seed for run in found} == {0}
    assert {run.dataset for run in found} == {"cora", "ppi"}
    assert not {run.key for run in found} & {run.key for run in plan(load_specs())}
    epochs = {run.method: run.settings.get("epochs") for run in found}
    assert epochs["gcn"] == 30


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"only": ["gnc"]}, "no method 'gnc' is part of this; did you mean gcn?"),
        ({"only": ["\x1b[2J"]}, "choose from co-ridge"),
        ({"datasets": ["croa"]}, "no dataset 'croa' is part of this; did you mean cora?"),
        ({"datasets": ["ppi"]}, "choose from citeseer, cora, pubmed"),
    ],
)
def test_mistyped_methods_and_datasets_are_guessed_at(asked, words):
    with pytest.raises(ArgumentError) as caught:
        plan([load_spec("table-nodes")], **asked)
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_methods_that_do_not_go_with_a_dataset_are_no_empty_plan():
    with pytest.raises(ArgumentError, match="nothing is to be run"):
        plan(load_specs(), only=["gcn"], datasets=["ppi"])


# What a folder holds has to be found again by later versions.
def test_keys_are_what_they_always_were():
    assert RUN.key == "f72490fd75f57114"


@settings(deadline=None)
@given(
    st.sampled_from(["task", "metric", "method", "engine", "dataset"]),
    st.text(max_size=10),
    st.integers(0, 9),
    st.booleans(),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=3),
)
def test_keys_differ_exactly_when_runs_differ_in_more_than_what_they_are_for(name, text, seed, quick, told):
    other = replace(RUN, **{name: text, "seed": seed, "quick": quick, "settings": told})
    for a, b in itertools.combinations((RUN, other, replace(RUN, settings=told), replace(RUN, seed=seed)), 2):
        assert (a.key == b.key) == (a == b)
        assert replace(a, spec="figure-time").key == a.key
    shuffled = replace(other, settings=dict(reversed(told.items())))
    assert shuffled.key == other.key


def test_a_command_repeats_its_run():
    for run in [*plan(load_specs(), seeds=2), *plan(load_specs(), quick=True)]:
        words = run.command.split()
        assert words[:2] == ["fastgrl", "reproduce"]
        values = dict(zip(words[3::2], words[4::2], strict=False))
        again = plan(
            [load_spec(words[2])],
            only=[values["--only"]],
            datasets=[values["--dataset"]],
            seeds=int(values["--seeds"]),
            quick="--quick" in words,
        )
        assert run.key in {each.key for each in again}
        assert words[-2:] == ["-o", "DIR"]
