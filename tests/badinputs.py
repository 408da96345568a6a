"""The folder of awkward inputs: its cases, and one case run as a user would, in a process of its own.

Starting Python and importing NumPy takes longer than any case, so a server process does that once and forks
for each case; the child then has its own working folder, environment, limits and streams.

    python tests/badinputs.py NAME...      run cases by name and show what they print
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import os
import pickle
import pkgutil
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOBODY = 65534
MARKER = "BADINPUTS_MARKER"  # names the file that code hidden in data would make


def folder() -> Path | None:
    """Where the cases are: FASTGRL_BADINPUTS, or beside the checkout; None if they are not there."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "badinputs"
    found = Path(os.environ.get("FASTGRL_BADINPUTS", beside))
    return found if (found / "index.json").is_file() else None


@dataclass(frozen=True)
class Case:
    """One awkward input with what a user should get; the fields are those of index.json."""

    name: str
    category: str
    command: str
    expect: str
    also_ok: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)
    note: str = ""
    files: dict[str, str] = field(default_factory=dict)
    setup: list[list[str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    lazy: str = ""
    stdin: str = ""
    stdout: str = ""
    needs: str = ""
    signal: dict[str, Any] = field(default_factory=dict)
    parallel: int = 1
    repeat_equal: bool = False

    @property
    def allowed(self) -> set[str]:
        """The outcomes that are right."""
        return {self.expect, *self.also_ok}


def cases() -> list[Case]:
    """Every case of the folder; none if it is not there."""
    found = folder()
    return (
        []
        if found is None
        else [Case(**case) for case in json.loads((found / "index.json").read_text())["cases"]]
    )


@dataclass(frozen=True)
class Outcome:
    """What a run left behind; `exit` is negative for a signal."""

    exit: int
    stdout: str
    stderr: str
    seconds: float
    rss_mb: float


def arguments_of(case: Case) -> list[str]:
    """The arguments of a case, as index.json has them."""
    return shlex.split(case.command)[1:]


def as_inspection(case: Case) -> list[str]:
    """The arguments of a case, with `embed … -o OUT` read as `inspect … --json`."""
    verb, *rest = arguments_of(case)
    if verb == "embed":
        at = rest.index("-o")
        verb, rest = "inspect", [*rest[:at], *rest[at + 2 :]]
    return [verb, *rest, "--json"]


def prepare(case: Case, home: Path, model: Path | None = None) -> dict[str, str]:
    """Copy the case's files below `home`, do its setup steps, and return what its placeholders stand for.

    A case that needs a model gets a copy of the folder `model`.
    """
    source = folder()
    assert source is not None
    home.mkdir()
    if (source / case.name).is_dir():
        shutil.copytree(source / case.name, home, dirs_exist_ok=True, symlinks=True)
    if case.needs == "non-root":  # who must get there, and may write there
        home.parent.chmod(0o755)
        home.chmod(0o777)
    if case.lazy == "gzip_bomb_zeros":
        with gzip.open(home / "edges.csv.gz", "wb", compresslevel=9) as file:
            file.writelines(bytes(1 << 20) for _ in range(200))
    if case.lazy == "big_graph":
        (home / "edges.txt").write_text(big_graph())
    if case.needs == "model":
        assert model is not None
        shutil.copytree(model, home / "model")
    # Names as seen from the case's own folder, where it is run.
    names = {key: os.path.relpath(path, case.name) for key, path in case.files.items()}
    names |= {"dir": str(home), "out": "out.csv", "model": "model"}
    for step, *arguments in case.setup:
        _set_up(step, [argument.format(**names) for argument in arguments], home)
    return names


def _set_up(step: str, arguments: list[str], home: Path) -> None:
    match step, arguments:
        case "mkdir", [name]:
            (home / name).mkdir()
        case "write", [name, text]:
            (home / name).write_text(text)
        case "symlink", [target, name]:
            (home / name).unlink(missing_ok=True)
            (home / name).symlink_to(target)
        case "chmod", [name, mode]:
            (home / name).chmod(int(mode, 8))
        case "mutate", [damage]:
            _damage(home / "model", damage)
        case _:
            raise ValueError(f"unknown setup step {step!r}")


def big_graph(nodes: int = 6_000, edges: int = 24_000) -> str:
    """An edge list that takes a second or two to embed."""
    rng = random.Random(0)
    return "".join(f"{rng.randrange(nodes)} {rng.randrange(nodes)}\n" for _ in range(edges))


def small_graph(nodes: int = 40) -> str:
    """A ring n0, n1, … with chords, for models."""
    pairs = [(u, (u + step) % nodes) for u in range(nodes) for step in (1, 2, 5)]
    return "source,target\n" + "".join(f"n{u},n{v}\n" for u, v in pairs)


def _damage(model: Path, damage: str) -> None:
    """Spoil a model folder in the way that a case names."""
    if damage == "pickle_beside":
        (model / "model.pkl").write_bytes(pickle.dumps(_Touch()))
    elif damage.startswith("json_"):
        for file in model.glob("*.json"):
            file.write_text(_JSON_DAMAGE[damage](file.read_text()))
    else:
        [tensors] = model.glob("*.safetensors")
        tensors.write_bytes(_damaged_tensors(tensors.read_bytes(), damage))


class _Touch:
    """Unpickled, it makes the file that must never appear."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f'touch "${MARKER}"',)


_JSON_DAMAGE = {
    "json_truncated": lambda text: text[: len(text) // 2],
    "json_numbers_changed": lambda text: re.sub(
        r"(?<=[:\[,\s])(\d+)(?=[,\]\s}])", lambda number: str(int(number[1]) + 1), text
    ),
    "json_future_version": lambda text: re.sub(r'("[^"]*version[^"]*":\s*)("[^"]*"|\d+)', r"\g<1>999", text),
}


def _damaged_tensors(data: bytes, damage: str) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    first, second, *_ = sorted(
        (n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"]
    )
    match damage:
        case "tensors_truncated":
            return data[: len(data) // 2]
        case "header_length_huge":
            return (2**63).to_bytes(8, "little") + data[8:]
        case "header_not_json":
            return data[:8] + b"{" * length + data[8 + length :]
        case "offsets_overlap":
            begin, end = header[second]["data_offsets"]
            shared = header[first]["data_offsets"][0]
            header[second]["data_offsets"] = [shared, shared + end - begin]
        case "shape_transposed":
            name = next(n for n in header if len(set(header[n].get("shape", ()))) == 2)
            header[name]["shape"].reverse()
        case "tensor_nan":
            name = next(n for n in header if header[n].get("dtype", "").startswith("F"))
            begin, end = header[name]["data_offsets"]
            body[begin:end] = b"\xff" * (end - begin)
        case "bit_flip":
            body[len(body) // 2] ^= 1
        case _:
            raise ValueError(f"unknown damage {damage!r}")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(body)


def contents(home: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder with what it holds; folders are only places."""
    found: dict[str, bytes | str] = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            mode = path.stat().st_mode
            path.chmod(0o600)
            found[name] = path.read_bytes()
            path.chmod(mode & 0o777)
    return found


class Server:
    """A process that has the program in memory and runs command lines in forked children of its own."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(
        self,
        case: Case,
        home: Path,
        arguments: list[str],
        names: dict[str, str],
        *,
        stop_after: float | None = None,
    ) -> Outcome:
        """Run `fastgrl ARGUMENTS` in `home` under the limits of the case; send its signal when told to."""
        with tempfile.TemporaryDirectory() as streams:
            request = {
                "arguments": [argument.format(**names) for argument in arguments],
                "home": str(home),
                "streams": streams,
                "env": {MARKER: str(home.parent / MARKER)}
                | {key: value.format(**names) for key, value in case.env.items()},
                "stdin": case.stdin.format(**names) or os.devnull,
                "closed_stdout": case.stdout == "closed",
                "unprivileged": case.needs == "non-root" and os.geteuid() == 0,
                "seconds": int(case.limits.get("seconds", 60)),
                "file_bytes": case.limits.get("fsize"),
                "signal": case.signal.get("name"),
                "stop_after": stop_after,
            }
            answer = self._ask(request)
            stdout, stderr = ((Path(streams) / name).read_bytes().decode() for name in ("stdout", "stderr"))
        return Outcome(answer["exit"], stdout, stderr, answer["seconds"], answer["rss_mb"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        self.process.communicate()


def _serve() -> None:
    import scipy.sparse.csgraph  # noqa: F401

    import fastgrl
    from fastgrl.cli import run

    # All of it: a child without privileges may not be able to read the package.
    for module in pkgutil.walk_packages(fastgrl.__path__, "fastgrl."):
        if not module.name.startswith(
            "fastgrl.frameworks."
        ):  # no command uses them, and not all are installed
            importlib.import_module(module.name)

    with contextlib.redirect_stderr(io.StringIO()):
        run(["estimate"])  # makes typer import what it imports late

    for line in iter(sys.stdin.readline, ""):
        request, begin = json.loads(line), time.monotonic()
        child = os.fork()
        if not child:
            _become(request)
        if request["stop_after"] is not None:
            time.sleep(request["stop_after"])
            begin = time.monotonic()
            os.kill(child, getattr(signal, request["signal"]))
        _, status, usage = os.wait4(child, 0)
        answer = {"exit": os.waitstatus_to_exitcode(status), "rss_mb": usage.ru_maxrss / 1024}
        print(json.dumps(answer | {"seconds": time.monotonic() - begin}), flush=True)


def _become(request: dict[str, Any]) -> None:
    """Turn this process into a run of the program; never returns."""
    code = 99
    try:
        signal.alarm(request["seconds"] + 5)
        os.chdir(request["home"])
        os.environ.update(request["env"])
        tempfile.tempdir = None
        _redirect(request)
        if request["file_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
        if request["unprivileged"]:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        from fastgrl.cli import run

        code = run(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        os.write(2, f"Traceback of the test's own child: {error!r}\n".encode())
    finally:
        os._exit(code)


def _redirect(request: dict[str, Any]) -> None:
    streams = Path(request["streams"])
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    # Each stream is opened anew: the server's own may hold what it has read ahead.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.dup2(os.open(streams / "stderr", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open(streams / "stdout", os.O_WRONLY | os.O_CREAT), 1)
    if request["closed_stdout"]:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)


def fit_model(server: Server, home: Path) -> Path:
    """A model of `small_graph` below `home`."""
    home.mkdir()
    (home / "edges.csv").write_text(small_graph())
    case = Case("fit", "", "fastgrl link edges.csv -o model --rank 8", "OK")
    outcome = server.run(case, home, arguments_of(case), {})
    assert outcome.exit == 0, outcome.stderr
    return home / "model"


def _show(names: list[str]) -> None:
    server = Server()
    for case in cases():
        if case.name in names:
            with tempfile.TemporaryDirectory() as top:
                home = Path(top) / case.name
                model = fit_model(server, Path(top) / "fitted") if case.needs == "model" else None
                outcome = server.run(case, home, arguments_of(case), prepare(case, home, model))
            print(f"{case.name}: {case.command}\n  expected {sorted(case.allowed)} {case.says} {case.note}")
            print(f"  exit {outcome.exit}, {outcome.seconds:.2f} s, {outcome.rss_mb:.0f} MB")
            print(outcome.stdout + outcome.stderr)
    server.close()


if __name__ == "__main__":
    _serve() if sys.argv[1:] == ["--serve"] else _show(sys.argv[1:])
