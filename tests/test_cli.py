"""The command line as people run it: in a pipe, in a terminal, with wrong input, interrupted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgrl as fg
import fastgrl.io
from fastgrl import errors, terminal
from fastgrl.cli import run

PROGRAM = [sys.executable, "-m", "fastgrl"]
FRIENDS = 'source,target,strength\nann,bob,2\nbob,eve,0.5\n"Smith, J.",ann,1\neve,eve,1\n'
INSPECTED = {
    *("nodes", "rows", "edges", "self_loops", "repeats", "isolated", "components", "largest_component"),
    *("degrees", "weighted", "directed", "layout", "notices", "cost", "ids_sample"),
}
WRONG_VALUES = [
    *(["--rank", "2.5"], ["--threads", "0"], ["--seed", "-1"], ["--seed", str(2**64)]),
    *(["--dtype", "float16"], ["--max-memory", "lots"], ["--design", "wlak"]),
]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def friends(tmp_path):
    path = tmp_path / "friends.csv"
    path.write_text(FRIENDS)
    return str(path)


def program(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, "stdin": subprocess.DEVNULL} | options
    return subprocess.run([*PROGRAM, *arguments], **options)


def in_terminal(*arguments, columns=80, env=None, program=PROGRAM):
    """What a terminal of so many columns receives."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = os.environ | {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": ""} | (env or {})
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
    process = subprocess.Popen([*program, *arguments], env=env, **streams)
    os.close(follower)
    received = b""
    with contextlib.suppress(OSError):  # Linux raises one when the last writer has gone
        while chunk := os.read(leader, 1 << 16):
            received += chunk
    os.close(leader)
    assert process.wait(60) == 0
    return received.decode()


def test_a_pipe_gets_plain_text_with_everything_understood(friends):
    done = program("inspect", friends, "--weight", "strength")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert friends in done.stdout.splitlines()
    for line in (
        r"header +yes: source, target, strength",
        r"weights +column 3 \('strength'\)",
        r"nodes +4",
        r"edges +4",
        r"self loops +1",
        r"components +1, the largest of 4 nodes",
        r"first ids +'ann', 'bob', 'eve', 'Smith, J.'",
        r"factorisation +rank 4 of the logarithm of a diffusion",
    ):
        assert re.search(f"^  {line}", done.stdout, re.MULTILINE), line


@pytest.mark.parametrize("arguments", [["inspect", "friends.csv"], ["datasets", "info", "digits"]])
def test_a_terminal_of_80_columns_is_never_overrun(arguments, friends, monkeypatch):
    monkeypatch.chdir(os.path.dirname(friends))
    shown = in_terminal(*arguments)
    lines = ESCAPE.sub("", shown).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[1m" in shown
    assert re.search(r"\x1b\[[0-9;]*36m", shown)


def test_no_color_is_respected(friends):
    shown = in_terminal("inspect", friends, "--no-progress", env={"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_fits_a_screen_and_has_an_example(arguments, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 24
    assert "Example: fastgrl link" in shown
    verbs = (
        "demo inspect estimate link recommend score update classify predict explain embed import datasets "
        "evaluate reproduce"
    )
    listed = re.findall(r"^(?:[A-Z]\w+)? +([a-z]+) +[A-Z]", shown, re.MULTILINE)
    assert " ".join(listed) == verbs


def test_version_names_kernel_blas_and_optional_parts(capsys):
    assert run(["--version"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in (fg.__version__, fg.kernel_info().kernel, "BLAS", "torch"))


def test_starting_imports_no_more_than_it_needs():
    code = (
        "import sys; from fastgrl.cli import run; run(['--version']); "
        "print([name for name in ('sklearn', 'pandas', 'pyarrow', 'torch', 'pooch', 'networkx') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["--version"], {"version", "kernel", "blas", "found", "missing"}),
        (["inspect", "FILE"], INSPECTED),
        (["estimate", "FILE"], {"graph_bytes", "work_bytes", "peak_bytes", "passes", "product_columns"}),
        (["datasets", "list"], {"datasets"}),
        (["datasets", "info", "digits"], {"name", "licence", "citation", "counts"}),
        (["datasets", "download", "digits"], {"name", "files"}),
        (["datasets", "verify"], {"datasets"}),
        (["datasets", "path"], {"path"}),
        (
            ["demo"],
            {"nodes", "edges", "singular_values", "captured_energy", "files", "seconds", "links", "classes"},
        ),
    ],
)
def test_json_is_one_object_with_the_promised_keys(arguments, keys, friends, capsys):
    assert run([friends if word == "FILE" else word for word in arguments] + ["--json"]) == 0
    assert keys <= json.loads(capsys.readouterr().out).keys()


def test_figures_of_an_inspection_are_those_of_the_graph(friends, tmp_path, capsys):
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("ann\nbob\neve\nSmith, J.\ntom\nkim\n")
    more = ["--directed", "--columns", "source,target", "--nodes", str(nodes), "--unweighted", "--json"]
    assert run(["inspect", friends, *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["edges"], found["isolated"], found["components"]) == (6, 4, 2, 3)
    assert found["largest_component"] == 4
    assert found["degrees"] == {"min": 0, "median": 1.5, "mean": pytest.approx(8 / 6, abs=1e-6), "max": 3}
    assert (found["directed"], found["weighted"]) == (True, False)


def test_dash_is_standard_input():
    assert json.loads(program("inspect", "-", "--json", input=FRIENDS, stdin=None).stdout)["nodes"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspcet", "x.csv"], ["inspcet", "inspect"]),
        (["inspect", "x.csv", "--rnak", "3"], ["--rnak", "--rank"]),
        (["datasets", "info", "croa"], ["croa", "cora"]),
        (["datasets", "lsit"], ["lsit", "list"]),
        (["inspect"], ["EDGES"]),
        (["inspect", "x.csv", "--rank"], ["--rank"]),
        (["inspect", "x.csv", "--rank", "1" * 5000], ["--rank"]),
        *((["inspect", "x.csv", *wrong], wrong) for wrong in WRONG_VALUES),
    ],
)
def test_a_wrong_call_is_named_in_one_style(arguments, words, capsys):
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2
    assert all(word in err for word in words), err


def test_the_nearest_file_name_is_suggested(friends, capsys):
    assert run(["inspect", friends.replace("friends", "freinds")]) == 2
    assert "did you mean 'friends.csv'?" in capsys.readouterr().err


def test_a_rank_may_equal_the_number_of_nodes_and_no_more(friends, capsys):
    assert run(["inspect", friends, "--rank", "4"]) == 0
    assert run(["inspect", friends, "--rank", "5"]) == 2
    assert "rank 5 is above the number of nodes, 4" in capsys.readouterr().err


def test_a_limit_on_memory_is_a_note_to_inspect_and_an_error_to_estimate(friends, capsys):
    assert run(["inspect", friends, "--max-memory", "1kB"]) == 0
    assert capsys.readouterr().err.startswith("note: log-diffusion of rank 4 needs about")
    assert run(["estimate", friends, "--max-memory", "1kB"]) == 1
    assert capsys.readouterr().err.startswith("error: log-diffusion of rank 4 needs about")
    assert run(["estimate", friends, "--max-memory", "1GB"]) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError("x"), 2),
        (errors.UnknownIdError("x"), 2),
        (errors.UnavailableError("x"), 1),
        (errors.MissingExtraError("x"), 1),
        (MemoryError(), 1),
        (PermissionError(13, "Permission denied", "a.csv"), 1),
        (RecursionError("x"), 1),
        (KeyboardInterrupt(), 130),
        (terminal.Terminated(), 143),
    ],
)
def test_every_exception_has_its_exit_code_and_no_traceback(error, code, friends, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(fastgrl.io, "read", fail)
    assert run(["inspect", friends]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_only_debug_shows_the_traceback(friends, monkeypatch, capsys):
    monkeypatch.setattr(fastgrl.io, "read", lambda *_, **__: 1 / 0)
    assert run(["inspect", friends, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert run(["inspect", friends]) == 1
    assert re.match(r"error: internal error: ZeroDivisionError.*\n.*--debug", capsys.readouterr().err)


def test_warnings_about_the_input_are_notes_and_quiet_hides_them(friends, monkeypatch, capsys):
    read = fastgrl.io.read

    def warn(*arguments, **options):
        for number in range(100):
            warnings.warn(f"odd {number} \x1b[2J", errors.FastgrlWarning, stacklevel=1)
        warnings.warn("of a library", RuntimeWarning, stacklevel=1)
        return read(*arguments, **options)

    monkeypatch.setattr(fastgrl.io, "read", warn)
    assert run(["inspect", friends]) == 0
    shown = capsys.readouterr().err
    assert shown.startswith("note: odd 0 \\x1b[2J\n")
    assert len(shown) < 4096
    assert "library" not in shown
    assert run(["inspect", friends, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@given(st.text())
def test_cleaned_text_has_nothing_that_acts_on_a_terminal(text):
    shown = terminal.clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown.replace("\n", ""))
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    if text.isascii() and text.isprintable():
        assert shown == text


@given(st.text(min_size=1), st.integers(1, 3000))
def test_errors_and_notes_are_short_whatever_they_say(text, times):
    message = text * times
    shown = terminal._shortened(message)
    assert 1 <= len(shown.splitlines()) <= 8
    assert len(shown.encode()) < 3100
    assert len(terminal._cut(message.encode(errors="replace").decode(), 400).encode()) < 410


@pytest.mark.parametrize(
    "name", ["[bold]a[red].csv", "a\x1b[2Jb.csv", "a\nb.csv", "\u202egpj.csv", "é北.csv"]
)
def test_names_of_files_are_shown_literally_and_escaped(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", name]) == 2
    missing = capsys.readouterr().err
    Path(name).write_text(FRIENDS)
    assert run(["inspect", name]) == 0
    found = capsys.readouterr().out
    expected = name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert expected.replace("\n", "\\n") in missing
    assert expected.replace("\n", "\\n") in found.replace("a\nb", "a\\nb")
    assert not set(missing + found) & {"\x1b", "\u202e"}


def test_ids_are_no_markup(tmp_path, capsys):
    (path := tmp_path / "edges.csv").write_text("source,target\n[red]x[/red],:smile:\n[/],\\[b]\n")
    assert run(["inspect", str(path)]) == 0
    assert "'[red]x[/red]', ':smile:', '[/]'" in capsys.readouterr().out
    assert "[red]x[/red]" in in_terminal("inspect", str(path), "--no-progress", columns=200)


def test_a_name_that_is_no_text_is_refused_cleanly(tmp_path):
    done = subprocess.run([*PROGRAM, "inspect", os.fsencode(tmp_path) + b"/\xff.csv"], capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert b"\xff" not in done.stderr


@pytest.mark.parametrize("arguments", [["inspect", "FILE"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(arguments, friends):
    arguments = [friends if word == "FILE" else word for word in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    done = program(*arguments, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_an_error(friends):
    with open("/dev/full", "w") as full:
        done = program("inspect", friends, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*space.*\n", done.stderr)


def test_closed_streams_are_no_error(friends):
    command = f"{sys.executable} -m fastgrl inspect '{friends}' >&- 2>&-"
    assert subprocess.run(["bash", "-c", command]).returncode == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_says_so_in_one_line(sent, code):
    taken = threading.Event()

    def feed(stream):
        # More than a pipe holds: once all of this is taken, the program is reading.
        stream.write(b"".join(b"n%d,n%d\n" % (i, i + 1) for i in range(100_000)))
        stream.flush()
        taken.set()

    with subprocess.Popen([*PROGRAM, "inspect", "-"], stdin=-1, stdout=-1, stderr=-1) as process:
        threading.Thread(target=feed, args=[process.stdin], daemon=True).start()
        assert taken.wait(30)
        begin = time.monotonic()
        process.send_signal(sent)
        try:
            assert process.wait(10) == code
        finally:
            process.kill()
        out, err = process.stdout.read(), process.stderr.read()
    assert time.monotonic() - begin < 2
    assert out == b""
    assert err in (b"error: interrupted\n", b"error: terminated\n")


def test_an_interrupt_during_the_first_imports_is_answered_too():
    program = """
import builtins
from fastgrl.__main__ import main
whole = builtins.__import__
def interrupted(name, *rest):
    if name == "fastgrl.cli":
        raise KeyboardInterrupt
    return whole(name, *rest)
builtins.__import__ = interrupted
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_a_wrong_file_of_a_dataset_is_found_by_verify_and_info(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTGRL_DATA", str(tmp_path))
    assert run(["datasets", "verify"]) == 0
    assert "cora            not here" in capsys.readouterr().out
    (tmp_path / "planetoid").mkdir()
    (tmp_path / "planetoid" / "ind.cora.x").write_bytes(b"wrong")
    assert run(["datasets", "verify"]) == 1
    out, err = capsys.readouterr()
    assert "wrong: ind.cora.x" in out
    assert "cora" in err
    assert run(["datasets", "info", "cora"]) in (1, 2)
    assert "ind.cora.x" in capsys.readouterr().err
    assert run(["datasets", "info", "pubmed"]) == 1
    out, err = capsys.readouterr()
    assert "licence" in out
    assert "fastgrl datasets download pubmed" in err
    assert run(["datasets", "path"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"


@pytest.mark.parametrize("verb", ["inspect", "estimate"])
def test_every_common_option_is_offered_by_the_commands_that_read(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert run([verb, "--help-all"]) == 0
    shown = capsys.readouterr().out
    reading = "directed weight unweighted delimiter header no-header columns comment encoding nodes threads"
    for option in (reading + " rank design seed dtype max-memory json quiet no-progress debug").split():
        assert f"--{option}" in shown
