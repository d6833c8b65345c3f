"""Whatever a person or a disk hands over ends in a code that says what it is: no X001, no hang."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.cli.main import call
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)


def leaf(path: Path) -> Path:
    file = path / "all.json"
    digits = "9" * 5000
    file.write_text(f'{{"users": ["a"], "user_data": {{"a": {{"x": [[{digits}]], "y": [0]}}}}}}')
    return file


def brackets(path: Path) -> Path:
    file, header = path / "x.npz", b"[" * 60_000
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("x", "y"):
            content = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
            archive.writestr(f"{name}.npy", content)
    return file


def to_itself(path: Path) -> Path:
    (path / "loop.csv").symlink_to(path / "loop.csv")
    return path / "loop.csv"


def linked_inside(path: Path) -> Path:
    (path / "photos" / "cat").mkdir(parents=True)
    (path / "photos" / "dog").symlink_to(path / "photos" / "dog")
    (path / "photos" / "cat" / "loop.png").symlink_to(path / "photos" / "cat" / "loop.png")
    return path / "photos"


def not_text(path: Path) -> Path:
    os.makedirs(os.fsencode(path / "photos") + b"/caf\xe9")
    Path(os.fsdecode(os.fsencode(path / "photos") + b"/caf\xe9/1.png")).write_bytes(b"")
    return path / "photos"


def pipe(suffix: str) -> Callable[[Path], Path]:
    def made(path: Path) -> Path:
        os.mkfifo(path / f"data{suffix}")
        return path / f"data{suffix}"

    return made


def device(path: Path) -> Path:
    (path / "zero.csv").symlink_to("/dev/zero")
    return path / "zero.csv"


SOURCES = {
    "number of 5,000 digits": (leaf, "D007"),
    "header of brackets": (brackets, "D007"),
    "link to itself": (to_itself, "D002"),
    "link to itself inside": (linked_inside, "D0"),
    "class that is no text": (not_text, "D012"),
    "pipe as csv": (pipe(".csv"), "D023"),
    "pipe as npz": (pipe(".npz"), "D023"),
    "pipe as json": (pipe(".json"), "D023"),
    "pipe as mat": (pipe(".mat"), "D023"),
    "device": (device, "D023"),
    "home of nobody": (lambda path: Path("~nobody-at-all/x.csv"), "D002"),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.row(23, counts="damaged data")
def test_data_that_cannot_be_read_have_a_code(name: str, tmp_path: Path) -> None:
    make, code = SOURCES[name]
    with pytest.raises(ct.DataError) as error:
        ct.load(make(tmp_path))
    assert error.value.code.startswith(code)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The code with which a command ends that must not end well."""
    assert call([str(w) for w in words]) != 0
    err = capsys.readouterr().err
    return err.partition("error[")[2][:4]


TEXTS = {
    "nested": ("a = " + "[" * 5000, "C011"),
    "dots": ("a" + ".a" * 5000 + " = 1", "C011"),
    "lists in lists": ("a = " + "[" * 99 + "]" * 99, "C011"),
    "no folder": ('[output]\ndir = ""', "C012"),
    "too many threads": ("[engine]\nthreads = 10000000000", "C012"),
    "too many workers": ("[engine]\nworkers = 10000000", "C012"),
    "a date that is none": ("seed = 2024-13-45", "C011"),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.row(24)
def test_experiments_that_cannot_be_meant_have_a_code(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code = TEXTS[name]
    (tmp_path / "e.toml").write_text(text)
    assert said(capsys, "check", tmp_path / "e.toml") == code


@pytest.mark.row(24)
def test_a_pipe_as_an_experiment_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "e.toml")
    assert said(capsys, "check", tmp_path / "e.toml") == "C010"


OUT = {
    "a file": "file",
    "below a file": "file/r",
    "too long": "x" * 400,
    "far too long": "x/" * 5000,
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.row(11)
def test_a_folder_that_cannot_be_made_has_a_code(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    people = ct.Population.of(clients(2), classes=4)
    with pytest.raises(ct.StorageError) as error:
        ct.fit(ct.FedAvg(SOLVER), people, network(), rounds=1, out=tmp_path / OUT[name])
    assert error.value.code == "S001"
    assert len(str(error.value)) < 500
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_the_system_refuses_nobody_expected_it_has_a_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files", "/some/where")

    monkeypatch.setattr("coterie.config.load", refused)
    assert said(capsys, "run") == "S002"


def test_a_key_that_is_none_has_a_code(tmp_path: Path) -> None:
    certs = pytest.importorskip("coterie.engines.flower.certs")
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "a.pub").write_text("rubbish")
    with pytest.raises(ct.AccessError, match=r"a\.pub cannot be used") as error:
        certs.listed(tmp_path)
    assert error.value.code == "A002"


@pytest.mark.row(11)
def test_half_a_page_does_not_stay_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.core import storage

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(ct.StorageError):
        storage.replace_file(tmp_path / "report.html", b"x")
    assert list(tmp_path.iterdir()) == []


# -- the folder of a run -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("damaged") / "r"
    people = ct.Population.of(clients(4), classes=4, group=[0, 0, 1, 1])
    method = ct.FedClust(SOLVER, clusters=2, warmup_epochs=1)
    ct.fit(method, people, network(), rounds=2, out=out, page=False)
    return out


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": cut,
    "cut in a line": lambda data: data[:-7] + b"\n",
    "no text": lambda data: b"\xff\xfe" + data,
    "zeros": lambda data: bytes(len(data)),
    "turned round": lambda data: data[::-1],
    "lines twice": lambda data: data + data,
    "every second line": lambda data: b"".join(data.splitlines(keepends=True)[::2]),
    "no commas": replaced(b",", b";"),
    "words for numbers": replaced(b"0", b"zero"),
    "huge numbers": replaced(b"1", b"9" * 30),
    "other names": replaced(b"event", b"tnevE"),
    "null": lambda data: b"null\n",
    "a list": lambda data: b"[1, 2]\n",
    "an object": lambda data: b"{}\n",
    "brackets": lambda data: b"[" * 100_000 + b"\n",
    "digits": lambda data: b"7" * 6000 + b"\n",
    "dots": lambda data: b"a" + b".a" * 5000 + b" = 1\n",
}
FILES = ("run.toml", "events.jsonl", "metrics.csv", "clusters.csv", "summary.json", "model.json")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.row(12)
def test_a_damaged_record_is_told_by_its_name_or_done_without(
    file: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unforeseen = []
    for name, change in DAMAGE.items():
        folder = tmp_path / name.replace(" ", "-")
        shutil.copytree(run, folder)
        (folder / file).write_bytes(change((folder / file).read_bytes()))
        for words in (["report", folder], ["report", folder, "--format", "csv"]):
            call([str(w) for w in words])
            if "X001" in (err := capsys.readouterr().err):
                unforeseen.append(f"{name}: {' '.join(map(str, words[:1]))}: {err.splitlines()[0]}")
    assert unforeseen == []


@pytest.mark.parametrize("file", FILES)
def test_a_pipe_in_the_place_of_a_record_is_not_opened(
    file: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(run, folder)
    (folder / file).unlink()
    os.mkfifo(folder / file)
    call(["report", str(folder)])
    err = capsys.readouterr().err
    assert "X001" not in err
    assert file in err or file == "model.json"  # which the page does without


@pytest.mark.parametrize("words", [["resume"], ["place", "--data", "digits"], ["export"]])
@pytest.mark.row(12)
def test_a_damaged_run_toml_is_told(
    words: list[str], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, change in DAMAGE.items():
        folder = tmp_path / name.replace(" ", "-")
        shutil.copytree(run, folder)
        (folder / "run.toml").write_bytes(change((folder / "run.toml").read_bytes()))
        code = said(capsys, words[0], folder, *words[1:])
        assert code[0] in "CKD", f"{name}: {code}"


def test_a_comparison_whose_request_is_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", "methods = 3", "methods = ['a']\nseeds = 'x'", "[" * 5000):
        (tmp_path / "compare.toml").write_text(text)
        assert said(capsys, "report", tmp_path) == "K018"


def test_every_file_of_a_run_is_read_at_one_place() -> None:
    """A brother of these would raise a riddle for a damaged file, and wait for a pipe."""
    home = Path(ct.__file__).parent
    found = [
        f"{file.relative_to(home)}:{number}"
        for room in ("runs", "studies")
        for file in (home / room).rglob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if re.search(r"\.read_(text|bytes)\(|json\.load\(|[^.\w]open\(", line)
    ]
    ours = ("studies/reproduction/", "studies/atlas/")  # files that come with the package
    known = ("runs/reading.py", "runs/records.py", *ours)
    assert [place for place in found if not place.startswith(known)] == []


def test_numbers_survive(run: Path) -> None:
    """The records that the other tests damage are whole."""
    assert json.loads((run / "summary.json").read_text())["rounds"] == 2
    assert np.isfinite(ct.open_run(run, model=network()).accuracy.mean())
