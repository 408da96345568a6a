from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

import fastgrl as fg
from fastgrl.link_runs import Parameters

# What each of these costs at the start of a command is more than a small fit takes.
HEAVY = [
    *("sklearn", "joblib", "pandas", "polars", "pyarrow", "narwhals", "networkx", "igraph", "matplotlib"),
    *("torch", "dask", "pooch", "requests", "asyncio", "safetensors"),
    *(
        "scipy.stats",
        "scipy.optimize",
        "scipy.special",
        "scipy.spatial",
        "scipy.ndimage",
        "scipy.interpolate",
    ),
    *("scipy.io", "scipy.fft", "rich", "fastgrl.datasets", "fastgrl.experiments", "fastgrl.reports"),
    *("fastgrl.baselines", "fastgrl.evaluation", "fastgrl.link_prediction", "fastgrl.node_classification"),
]
COMMANDS = [
    ["--version"],
    ["inspect", "EDGES"],
    ["estimate", "EDGES"],
    ["embed", "EDGES", "-o", "OUT.csv", "--design", "degree-walk"],
    ["embed", "EDGES", "-o", "OUT.npy", "--select", "--json"],
    ["link", "EDGES", "-o", "OUT", "-q"],
]
PROGRAM = """
import json, sys
from fastgrl.cli import run
for command in json.loads(sys.argv[1]):
    assert run(command) == 0
    print(json.dumps([command, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.fixture
def edges(tmp_path):
    lines = [f"n{u},n{v}" for u in range(40) for v in (u + 1, u * u % 37 + 1, 3 * u % 41) if u != v]
    file = tmp_path / "edges.csv"
    file.write_text("source,target\n" + "\n".join(lines) + "\n")
    return str(file)


def output_of(program, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-1000:]
    return run.stderr


def modules_after(commands):
    """What is loaded after each of the commands, run one after another in a new process."""
    found = [json.loads(line) for line in output_of(PROGRAM, json.dumps(commands)).splitlines()]
    return {" ".join(command): set(modules) for command, modules in found}


def test_commands_import_nothing_heavy_that_they_do_not_need(edges, tmp_path):
    places = {"EDGES": edges, "OUT": str(tmp_path / "out")}
    commands = [
        [places.get(word, word.replace("OUT.", f"{places['OUT']}.")) for word in command]
        for command in COMMANDS
    ]
    found = modules_after(commands)
    assert not {command: heavy for command, loaded in found.items() if (heavy := loaded & set(HEAVY))}
    assert len(found) == len(COMMANDS)


def test_help_comes_before_numpy():
    (loaded,) = modules_after([["embed", "--help"]]).values()
    assert not loaded & {"numpy", "scipy", *HEAVY} - {"rich"}


def test_embedding_in_python_needs_no_scikit_learn():
    program = """
import sys, fastgrl as fg
fg.embed(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), 2)
print(*sys.modules, file=sys.stderr)
"""
    assert not set(output_of(program).split()) & set(HEAVY)


def test_the_parameters_of_a_run_are_those_of_the_estimator():
    assert dataclasses.asdict(Parameters()) == fg.LinkPredictor().get_params()
