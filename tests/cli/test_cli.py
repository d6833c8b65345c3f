"""The command line: lists, files, pictures; what goes to stdout, what to stderr, and exit codes."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from coterie.cli import doctor, running
from coterie.cli.app import COMMANDS
from coterie.cli.main import call
from coterie.core import errors
from coterie.core.codes import CODES, FAMILIES
from coterie.data.named import NAMED
from coterie.methods import METHODS
from coterie.models.zoo import MODELS

SOURCE = Path(errors.__file__).parent


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    done = python(
        "import sys\n"
        "from coterie.cli.main import call\n"
        "assert call(['--help']) == 0\n"
        "heavy = ('torch', 'numpy', 'pydantic', 'rich', 'scipy', 'sklearn', 'plotly')\n"
        "print('loaded:', *(m for m in heavy if m in sys.modules))\n"
    )
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "demo" in done.stdout


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    names = re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    training, looking = {"demo", "run", "resume"}, {"init", "check", "data", "doctor", "help"}
    assert set(names) >= training | looking | {"methods", "models", "datasets"}
    for name in names:
        assert call([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"Usage: coterie {name}")
        assert "\\[" not in said


def test_help_tells_every_argument_once(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.models import ArgumentInfo

    told = 0
    for name, function in COMMANDS.items():
        hints = get_type_hints(function, include_extras=True).values()
        given = [m for h in hints for m in getattr(h, "__metadata__", ())]
        assert call([name, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        for argument in (m for m in given if isinstance(m, ArgumentInfo)):
            assert argument.help, name
            assert said.count(argument.help) == 1, (name, argument.help)
            told += 1
    assert told > 15


def test_the_list_of_commands_says_each_in_a_whole_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["--help"]) == 0
    lines = re.findall(r"^  (\w+)  +(\S.*)$", capsys.readouterr().out, re.MULTILINE)
    assert {name for name, _ in lines} >= COMMANDS.keys()
    assert [said for name, said in lines if name in COMMANDS and not said.endswith(".")] == []
    assert [said for _, said in lines if said.endswith("...")] == []


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_methods_as_json_have_exactly_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["methods", "--json"]) == 0
    found = objects(capsys)
    assert [m["name"] for m in found] == list(METHODS)
    assert {tuple(m) for m in found} == {("name", "class", "paper", "family", "uploads")}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["methods", name]) == 0
    assert METHODS[name].paper in capsys.readouterr().out
    assert call(["methods", name, "--json"]) == 0
    assert objects(capsys)[0]["class"] == METHODS[name].cls


@pytest.mark.parametrize(("command", "names"), [("models", MODELS), ("datasets", NAMED)])
def test_lists_name_everything(
    command: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([command]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == list(names)
    assert said.err.splitlines()[-1].startswith("next ")
    assert call([command, "--json"]) == 0
    assert [o["name"] for o in objects(capsys)] == list(names)


def test_every_code_in_the_source_is_explained() -> None:
    used = {
        code
        for path in SOURCE.rglob("*.py")
        for code in re.findall(r'code="([A-Z]\d+)"', path.read_text())
    }
    assert used
    assert used <= set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_explained_with_what_to_do(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["help", code.lower()]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{code}  {CODES[code].title}")
    assert "what to do: " in said


def test_help_without_a_code_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["help", "--json"]) == 0
    assert [o["code"] for o in objects(capsys)] == list(CODES)


RAISED = {
    "AccessError": "A",
    "CheckpointError": "K",
    "ClientError": "U",
    "ConfigError": "C",
    "CoterieError": "X",
    "DataError": "D",
    "DivergedError": "R",
    "QuorumError": "Q",
    "StorageError": "S",
}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_an_error_has_a_code_of_its_own_family(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            family = RAISED.get(node.func.id)
            codes = [k.value for k in node.keywords if k.arg == "code"] if family else []
            given = [
                c.value for code in codes for c in ast.walk(code) if isinstance(c, ast.Constant)
            ]
            assert all(str(code).startswith(str(family)) for code in given), node.lineno


def test_exit_codes_are_the_ones_that_scripts_know() -> None:
    known = {"A": 8, "C": 2, "D": 3, "K": 5, "Q": 4, "R": 6, "S": 7, "U": 1, "X": 1}
    assert {letter: family.exit for letter, family in FAMILIES.items()} == known
    assert errors.CoterieError("", code="K001").exit == 5


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["rnu"], "there is no command rnu", "a similar command exists: run"),
        (
            ["run", "--round", "3"],
            "there is no option --round",
            "a similar option exists: --rounds",
        ),
        (
            ["compare", "--clients", "3"],
            "there is no option --clients",
            "here it is a setting: partition.clients=...",
        ),
        (["run", "--rounds", "x"], "invalid value for '--rounds'", "coterie run --help"),
        (["check"], "missing argument 'FILE'", "coterie check --help"),
        (["run", "a.toml", "b.toml"], "more than one experiment file", "name one file"),
        (["run", "seed=1", ".=3"], "'.=3' is not a setting", "write key=value"),
        (["help", "Z999"], "there is no code or command Z999", "coterie help"),
        (["methods", "fedavgg"], "unknown method 'fedavgg'", "a similar name exists: fedavg"),
        (["run", "nowhere.toml"], "there is no file nowhere.toml", "coterie init nowhere.toml"),
    ],
)
def test_a_wrong_command_line_exits_2_and_says_how(
    arguments: list[str], what: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    head, *body = said.err.splitlines()
    assert what in head
    assert any(line.startswith("  fix    ") and fix in line for line in body)
    assert body[-1].startswith("nothing was run. explain: coterie help C")


def raising(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(running, "execute", execute)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x", code="C999"), 2),
        (errors.DataError("x", code="D999"), 3),
        (errors.CheckpointError("x", code="K999"), 5),
        (errors.DivergedError("x", code="R999"), 6),
        (errors.StorageError("x", code="S999"), 7),
        (errors.ClientError("x", code="U999"), 1),
        (ZeroDivisionError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_are_stable(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(error, monkeypatch)
    assert call(["run"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_says_what_where_why_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = errors.StorageError("the disk is full", code="S001", where="/x", why="0 B", fix="rm")
    raising(error, monkeypatch)
    call(["run", "--method", "fedavg"])
    assert capsys.readouterr().err == (
        "error[S001]: the disk is full\n"
        "  where  /x\n"
        "  why    0 B\n"
        "  fix    rm\n"
        "explain: coterie help S001\n"
    )


@pytest.mark.row(25, counts="failures of own code")
def test_what_the_user_s_code_raised_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = errors.ClientError("client 3 failed", code="U001")
    error.__cause__ = ZeroDivisionError("in my loss")
    raising(error, monkeypatch)
    call(["run", "--method", "fedavg"])
    said = capsys.readouterr().err
    assert said.startswith("ZeroDivisionError: in my loss\nerror[U001]: client 3 failed\n")


@pytest.mark.parametrize("where", [0, 1])
def test_debug_shows_the_traceback(
    where: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coterie.cli.main import main

    raising(ZeroDivisionError("why"), monkeypatch)
    arguments = ["run"]
    arguments.insert(where, "--debug")
    monkeypatch.setattr("signal.signal", lambda *a: None)
    with pytest.raises(SystemExit, match="1"):
        main(arguments)
    assert "Traceback" in capsys.readouterr().err


def test_init_writes_a_file_that_passes_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["init", "my.toml", "--method", "fedprox", "--partition", "shards"]) == 0
    assert call(["check", "my.toml", "train.rounds=7", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (plan["method"], plan["rounds"], plan["clients"]) == ("fedprox", 7, 20)
    assert plan["bytes_per_round"]["up"] == 20 * 4 * plan["parameters"]


def test_init_does_not_replace_a_file_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("mine")
    assert call(["init", "my.toml"]) == 2
    assert Path("my.toml").read_text() == "mine"
    assert call(["init", "my.toml", "--force"]) == 0


def test_check_explains_where_a_value_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("[train]\nlr = 0.5\n")
    call(["check", "my.toml", "seed=3", "--explain", "train.lr", "--explain", "seed"])
    assert capsys.readouterr().out == "train.lr = 0.5    my.toml:2\nseed = 3    command line\n"


def test_check_shows_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text('[model]\nname = "mclr"\n')
    assert call(["check", "my.toml"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == [
        "method",
        "data",
        "clients",
        "model",
        "traffic",
    ]
    assert "650 parameters (2.6 kB)" in said.out
    assert said.err == "next    coterie run my.toml\n"


def test_data_shows_classes_and_who_holds_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["data", "digits", "--partition", "classes:2", "--clients", "5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("digits: 1,797 samples of shape 1x8x8, 10 classes\n")
    rows = [line.split()[-1] for line in said.splitlines() if re.match(r"\d+ .*·", line)]
    assert len(rows) == 5
    assert {len(row.replace("·", "")) for row in rows} == {2}


def test_data_as_json_counts_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["data", "digits", "--partition", "rotation", "--clients", "4", "--json"]) == 0
    about, *clients = objects(capsys)
    assert sum(about["counts"]) == about["samples"] == 1797
    assert [c["group"] for c in clients] == [0, 1, 2, 3]
    assert all(sum(c["labels"]) == c["samples"] for c in clients)


def test_data_plots_into_one_file_without_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "who.html"
    assert call(["data", "digits", "--partition", "shards", "--plot", str(page)]) == 0
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page.read_text())


def test_data_passes_options_to_the_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.csv"
    file.write_text("kind;x;y\n" + "a;1;2\nb;3;4\n" * 5)
    assert call(["data", str(file), "label=kind", "separator=;", "--json"]) == 0
    assert objects(capsys)[0]["classes"] == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "fix"),
    [("cifar10", "curl -fL"), ("no-such-place", "coterie datasets")],
)
def test_missing_data_exits_3_and_says_how_to_get_it(
    source: str, fix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setattr("coterie.data.named.SYSTEM", Path("/nowhere"))
    for command in (["data", source], ["run", "--data", source]):
        assert call(command) == 3
        said = capsys.readouterr()
        assert fix in said.err
        assert said.out == ""


def test_missing_named_data_is_told_before_torch_is_imported() -> None:
    done = python(
        "import os, sys\n"
        "os.environ.update(COTERIE_DATA='/nowhere', XDG_CACHE_HOME='/nowhere')\n"
        "from coterie.cli.main import call\n"
        "assert call(['run', '--data', 'femnist']) == 3\n"
        "print('torch' in sys.modules)\n"
    )
    assert done.stdout == "False\n"


def test_doctor_names_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {"torchvision": "0.99", "torch": "2.13.0"}
    monkeypatch.setattr(doctor, "installed", lambda name: versions.get(name, "1.0"))
    broken = "RuntimeError: operator torchvision::nms does not exist"
    monkeypatch.setattr(doctor, "imports", lambda name: broken * (name == "torchvision"))
    assert call(["doctor"]) == 1
    said = capsys.readouterr()
    assert f"!!  torchvision        0.99, does not import: {broken}" in said.out
    assert "pip uninstall torchvision" in said.err


def test_doctor_is_content_with_a_sound_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: "1.0")
    monkeypatch.setattr(doctor, "imports", lambda name: "")
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    assert call(["doctor", "--json"]) == 0
    assert all(f["good"] for f in objects(capsys))
