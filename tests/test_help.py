"""Help fits a screen, its examples work, names are suggested and completed, progress tells the time."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from graph_cases import dataset
from test_cli import ESCAPE, PROGRAM, in_terminal, program

from fastgrl import help as help_pages
from fastgrl.cli import app, run

FRIENDS = """source,target,strength
ann,bob,2
ann,eve,1
bob,eve,3
bob,kim,1
eve,kim,2
kim,ann,1
zoe,tom,2
zoe,una,1
tom,una,3
tom,vic,1
una,vic,2
vic,zoe,1
kim,zoe,1
"""
FILES = {
    "friends.csv": FRIENDS,
    "teams.csv": "id,team\nann,red\nbob,red\neve,red\ntom,blue\nuna,blue\nvic,blue\n",
    "pairs.csv": "source,target\nann,zoe\nbob,tom\n",
    "new.csv": "source,target\nnew,ann\nnew,kim\n",
}


def commands(command=None, words=()):
    """The words of every command, groups too."""
    command = typer.main.get_command(app) if command is None else command
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


COMMANDS = list(commands())
VERBS = [words for words in COMMANDS if words not in ((), ("evaluate",), ("datasets",))]


def names(words):
    return " ".join(words) or "fastgrl"


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def helped(capsys, *arguments):
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_every_help_fits_a_screen_of_80_columns(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    lines = helped(capsys, *words, "--help").splitlines()
    assert len(lines) <= (40 if words else 24)
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("Example: fastgrl") for line in lines) == 1
    assert not re.search(r"<\w+>|\x1b", "".join(lines))


@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_a_terminal_gets_the_same_help_with_headings_in_bold(words, capsys):
    shown = in_terminal(*words, "--help")
    plain = ESCAPE.sub("", shown).replace("\r", "")
    assert "\x1b[1m" in shown
    assert plain == helped(capsys, *words, "--help")
    assert max(map(len, plain.splitlines())) <= 80


@pytest.mark.parametrize("columns", [60, 200])
def test_help_is_folded_for_a_narrow_terminal_and_not_stretched_for_a_wide_one(columns):
    lines = ESCAPE.sub("", in_terminal("link", "--help", columns=columns)).replace("\r", "").splitlines()
    *body, _example, _more = lines  # a command is never folded: it is there to be copied
    assert max(map(len, body)) <= min(columns, 80)


@pytest.mark.parametrize("words", VERBS, ids=names)
def test_everything_is_in_help_all_and_most_is_a_line_each(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    shown = helped(capsys, *words, "--help-all")
    assert len(shown.splitlines()) <= 64
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    options = {name for each in command.params for name in each.opts if name.startswith("--")}
    assert all(re.search(rf"(^|[ /]){name}\b", shown, re.M) for name in options - {"--help-all"})
    short = helped(capsys, *words, "--help")
    assert ("--help-all" in short) == (len(short) < len(shown))


def test_what_is_rare_is_known_and_every_verb_has_its_group_and_its_example():
    root = typer.main.get_command(app)
    options = {
        name
        for words in VERBS
        for command in [root.commands[words[0]]]
        for each in (command.commands[words[1]] if len(words) > 1 else command).params
        for name in each.opts
    }
    assert options >= help_pages.RARE
    grouped = [verb for verbs in help_pages.GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted(root.commands)
    examples = [help_pages.example_of(f"fastgrl {' '.join(words)}") for words in VERBS]
    assert sorted(examples) == sorted(help_pages.EXAMPLES)


def test_every_example_works_one_after_another(place, capsys):
    """All but the last, which needs a dataset of the paper."""
    *examples, _ = help_pages.EXAMPLES
    for example in examples:
        arguments = shlex.split(example)
        assert (run(arguments[1:]), example) == (0, example)
        out, err = capsys.readouterr()
        assert out
        assert "error" not in err
    made = {"demo", "friends", "scores.csv", "teams", "classes.csv", "vectors.csv", "friends-graph"}
    assert {path.name for path in place.iterdir()} == made | set(FILES)


@pytest.mark.slow
def test_the_example_of_reproduce_works(place, monkeypatch, capsys):
    monkeypatch.setenv("FASTGRL_DATA", str(dataset("planetoid").parent))
    program, verb, *rest = shlex.split(help_pages.EXAMPLES[-1])
    assert (program, verb) == ("fastgrl", "reproduce")
    assert run([verb, *rest]) == 0
    assert "1 of 1 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recomend"], "no such command 'recomend'; did you mean recommend?\nsee fastgrl --help"),
        (
            ["evaluate", "linsk", "x"],
            "no such command 'linsk'; did you mean links?\nsee fastgrl evaluate --help",
        ),
        (
            ["link", "friends.csv", "--desing", "walk"],
            "no such option: --desing; did you mean --design?\nsee fastgrl link --help",
        ),
        (["link", "friends.csv", "-o", "m", "--design", "degre-walk"], "did you mean degree-walk?"),
        (["evaluate", "nodes", "coar"], "'coar' is neither a dataset nor a file; did you mean cora?"),
        (
            ["evaluate", "links", "freinds.csv"],
            "'freinds.csv' is neither a dataset nor a file; did you mean 'friends.csv'?",
        ),
        (["datasets", "info", "ciora"], "there is no dataset 'ciora'; did you mean cora?"),
        (["inspect", "freinds.csv"], "freinds.csv: no such file; did you mean 'friends.csv'?"),
        (["classify", "friends.csv", "--labels", "temas.csv", "-o", "m"], "did you mean 'teams.csv'?"),
        (["inspect", "friends.csv", "--weight", "strenght"], "did you mean 'strength'?"),
        (["inspect", "friends.csv", "--columns", "sorce,target"], "did you mean 'source'?"),
        (["recommend", "friend", "--node", "ann"], "there is no such folder; did you mean 'friends'?"),
        (["recommend", "friends.csv", "--node", "ann"], "'friends.csv' is a file; a model is a folder"),
        (
            ["recommend", "friends", "--node", "anne"],
            "no node has the id 'anne' in this graph of 8 nodes; did you mean 'ann'?",
        ),
        (["recommend", "friends", "--node", "KIM"], "did you mean 'kim'?"),
        (["reproduce", "table-node", "-o", "x"], "did you mean table-nodes?"),
    ],
)
def test_what_is_misspelt_is_answered_with_the_nearest_name(arguments, message, place, capsys):
    if "friends" in arguments or "friend" in arguments:
        assert run(["link", "friends.csv", "-o", "friends", "--no-select", "--json"]) == 0
        capsys.readouterr()
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2
    assert message in err


def test_a_misspelt_verb_is_answered_by_the_program_itself(place):
    done = program("recomend")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no such command 'recomend'; did you mean recommend?\nsee fastgrl --help\n"


def completed(shell, line, **more):
    """What the program answers a shell that completes the line."""
    words = line.split(" ")
    asked = {"_FASTGRL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = program(env=os.environ | asked | more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fastgrl re", ["recommend", "reproduce"]),
        ("fastgrl link friends.csv --max", ["--max-memory"]),
        ("fastgrl link friends.csv --design deg", ["degree-walk"]),
        ("fastgrl classify friends.csv --design c", ["co-ridge"]),
        ("fastgrl datasets info ca-", ["ca-AstroPh", "ca-HepTh"]),
        ("fastgrl evaluate nodes co", ["cora"]),
        ("fastgrl explain ", ["people"]),
        ("fastgrl reproduce figure-d", ["figure-depth"]),
        ("fastgrl inspect fr", []),
    ],
)
def test_bash_is_told_verbs_options_designs_datasets_and_models(line, expected, place):
    (place / "people").mkdir()
    (place / "people" / "model.json").write_text("{}")
    assert completed("bash", line).split() == expected


def test_zsh_and_fish_are_told_what_a_name_means(place):
    assert '"ca-HepTh":"Co-authors' in completed("zsh", "fastgrl evaluate links ca-H")
    asked = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert completed("fish", "fastgrl link --desi", **asked).startswith("--design\tlog-diffusion")
    assert completed("zsh", "fastgrl inspect fr").strip() == "_files"


def test_bash_itself_completes_a_line(place):
    """The script that is shown, sourced, and asked as Tab would ask it."""
    (place / "fastgrl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fastgrl "$@"\n')
    (place / "fastgrl").chmod(0o755)
    script = """
PATH=$PWD:$PATH
eval "$(fastgrl --show-completion)"
COMP_WORDS=(fastgrl evaluate links ca-H) COMP_CWORD=3
complete -p fastgrl
_fastgrl_completion fastgrl
echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-2:] == [
        "complete -o default -F _fastgrl_completion fastgrl",
        "ca-HepTh",
    ]


def test_completion_is_installed_in_the_home_of_the_user(place):
    inner = shlex.join([*PROGRAM, "--install-completion"])
    done = subprocess.run(
        ["bash", "-c", f"{inner}; echo $?"],
        env=os.environ | {"HOME": str(place), "SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"
    assert "bash completion installed in" in done.stdout
    assert "_fastgrl_completion" in (place / ".bash_completions" / "fastgrl.sh").read_text()
    assert ".bash_completions/fastgrl.sh" in (place / ".bashrc").read_text()


@pytest.mark.parametrize("line", ["fastgrl l", "fastgrl link x --design ", "fastgrl datasets info c"])
def test_completion_comes_before_numpy(line):
    code = (
        "import sys; from fastgrl.cli import run; assert run([]) == 0; "
        "assert not {'numpy', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    asked = {"_FASTGRL_COMPLETE": "complete_bash", "COMP_WORDS": line}
    asked["COMP_CWORD"] = str(len(line.split(" ")) - 1)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()


def test_progress_says_how_long_it_takes_on_a_terminal_and_nothing_in_a_pipe():
    code = """
import sys, time
from fastgrl.terminal import progress_bar
with progress_bar("fitting " + "long/" * 20 + "friends.csv") as progress:
    for step in range(16):
        if progress is not None:
            progress(step, 16)
        time.sleep(float(sys.argv[1]))
with progress_bar("connecting") as progress:
    time.sleep(0.2)
print("done")
"""
    program = [sys.executable, "-c", code]
    piped = subprocess.run([*program, "0"], capture_output=True, text=True, timeout=60)
    assert (piped.stdout, piped.stderr) == ("done\n", "")
    shown = in_terminal("0.1", program=program)
    assert re.search(r"\d+%.*\d s · about \d s left", ESCAPE.sub("", shown))
    assert "connecting" in shown
    drawn = ESCAPE.sub("", shown).replace("\r", "\n").splitlines()
    assert max(map(len, drawn)) <= 80
    plain = in_terminal("0.02", program=program, env={"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)
    dumb = in_terminal("0", program=program, env={"TERM": "dumb"})
    assert dumb.replace("\r", "").split("\n")[-2:] == ["done", ""]
    assert "\x1b" not in dumb


def test_a_dumb_terminal_gets_text_without_codes(place):
    shown = in_terminal("inspect", "friends.csv", env={"TERM": "dumb"})
    assert "\x1b" not in shown
    assert "factorisation" in shown


def test_an_interrupted_fit_leaves_nothing_and_says_one_line(place):
    """A graph that takes long enough, stopped as soon as its fit has begun."""
    edges = "\n".join(f"n{a},n{a * b % 4001}" for a in range(4000) for b in range(2, 40))
    Path("large.csv").write_text(edges + "\n")
    code = """
import os, signal, sys
import fastgrl.link_runs as runs
from fastgrl.cli import run
whole = runs.fit_graph
def fit(*arguments, progress=None, **options):
    def stop(done, total):
        if done:
            os.kill(os.getpid(), signal.SIGINT)
    return whole(*arguments, progress=stop, **options)
runs.fit_graph = fit
sys.exit(run(["link", "large.csv", "-o", "large"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")
    assert {path.name for path in place.iterdir()} == {"large.csv", *FILES}
