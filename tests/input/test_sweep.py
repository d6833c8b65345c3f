"""A sweep over all that a person or a file can hand to a command: a code for each, never X001.

What is changed in it is drawn by a seed, so that a fault that is found is found again.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from coterie.cli.app import COMMANDS
from coterie.cli.main import call
from tests.data.readers.test_cifar import write_binary, write_python
from tests.data.readers.test_folder import picture
from tests.data.readers.test_idx import write_idx
from tests.faults.commands import SMALL

MANY = 25  # of each file
UNFORESEEN = ("X001", "Traceback")
# What readers trip over: ends, signs, brackets, numbers that are none or too many, no text.
WORDS = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\r",
        b",",
        b'"',
        b"'",
        b"=",
        b"-",
        b"#",
        b"%",
        b";",
        b"\xff\xfe",
        b"[" * 99,
    ),
    *(b"nan", b"inf", b"-1", b"1e999", b"0x", b"9" * 40, b"true", b"null", b"{}", b"../../x"),
    *("\u202e\x1b[2J".encode(), b"a." * 2000 + b"a", b"\x00\x00\x08\x03\xff\xff\xff\xff"),
)


def changed(data: bytes, draw: random.Random) -> bytes:
    """A file after one to three accidents."""
    for _ in range(draw.randint(1, 3)):
        a, b = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        how = draw.choice(("cut", "bit", "word", "word", "twice", "without", "swapped"))
        if how == "cut":
            data = data[:b]
        elif how == "bit" and data:
            at = draw.randrange(len(data))
            data = data[:at] + bytes((data[at] ^ 1 << draw.randrange(8),)) + data[at + 1 :]
        elif how == "word":
            data = data[:a] + draw.choice(WORDS) + data[a:]
        elif how == "twice":
            data = data[:b] + data[a:]
        elif how == "without":
            data = data[:a] + data[b:]
        else:
            data = data[b:] + data[a:b] + data[:a]
    return data


def csv(home: Path) -> None:
    lines = [f'"a, {i % 3}",{i / 7},{i}' for i in range(9)]
    (home / "x.csv").write_text("\n".join(["label,size,number", *lines]))


def npz(home: Path) -> None:
    np.savez(home / "x.npz", x=np.ones((6, 4), np.float32), y=np.arange(6) % 2)


def leaf(home: Path) -> None:
    data = {name: {"x": [[1, 2], [3, 4]], "y": [0, 1]} for name in "ab"}
    (home / "all.json").write_text(json.dumps({"users": ["a", "b"], "user_data": data}))


def mat(home: Path) -> None:
    x, y = np.ones((32, 32, 3, 4), np.uint8), np.array([[10], [1], [2], [10]], np.uint8)
    for part in ("train", "test"):
        savemat(home / f"{part}_32x32.mat", {"X": x, "y": y})


def photos(home: Path) -> None:
    for i, name in enumerate(("cat/a.png", "cat/b.bmp", "dog/c.png", "dog/d.jpg")):
        picture(home / name, value=9 * i)


DATA: dict[str, tuple[Callable[[Path], object], str]] = {  # who writes it, and what is read
    "csv": (csv, "x.csv"),
    "npz": (npz, "x.npz"),
    "leaf": (leaf, "all.json"),
    "mat": (mat, "train_32x32.mat"),
    "photos": (photos, ""),
    "idx": (write_idx, ""),
    "zipped idx": (lambda home: write_idx(home, gz=True), ""),
    "cifar": (write_binary, ""),
    "cifar pickles": (write_python, ""),
}


def spoilt(whole: Path, name: str, home: Path) -> Iterator[Path]:
    """A folder, again and again, with one of its files changed."""
    draw = random.Random(name)
    files = sorted(f.relative_to(whole) for f in whole.rglob("*") if f.is_file())
    for n in range(MANY):
        folder = home / f"{n}"
        shutil.copytree(whole, folder)
        file = folder / draw.choice(files)
        file.write_bytes(changed(file.read_bytes(), draw))
        yield folder


@pytest.mark.row(23, 27)
@pytest.mark.parametrize("name", DATA)
def test_no_damage_of_data_is_unforeseen(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], figure: Callable[..., None]
) -> None:
    write, file = DATA[name]
    whole = tmp_path / "whole"
    whole.mkdir()
    write(whole)
    assert call(["data", str(whole / file), "--clients", "2"]) == 0, capfd.readouterr().err
    ends = []
    for folder in spoilt(whole, name, tmp_path):
        ends.append(call(["data", str(folder / file), "--clients", "2"]))
        said = capfd.readouterr().err
        assert not any(word in said for word in UNFORESEEN), f"{folder}: {said}"
        assert ends[-1] in (0, 2, 3), f"{folder}: {said}"
    assert 3 in ends  # or nothing was damaged
    figure("damaged data", MANY)


@pytest.mark.row(24)
@pytest.mark.slow
def test_no_damage_of_an_experiment_file_is_unforeseen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], figure: Callable[..., None]
) -> None:
    draw, file = random.Random("experiment"), tmp_path / "e.toml"
    for n in range(10 * MANY):
        text = changed(f'method = "kin"\n{SMALL}\n[kin]\ngain = 0.1\n'.encode(), draw)
        file.write_bytes(text)
        code = call(["check", str(file)])
        said = capfd.readouterr().err
        assert not any(word in said for word in UNFORESEEN), f"{n}: {text!r}: {said}"
        assert code in (0, 2, 3), f"{n}: {text!r}: {said}"
    figure("damaged experiment files", 10 * MANY)


TYPED = (
    *("", ".", "~nobody", "no/such", "x" * 400, "a\nb", "-", "--no-such", "/dev/null", "/dev/zero"),
    *("=", "=1", "a" + ".a" * 3000 + "=1", "train.lr=", "train.lr=nan", "train.rounds=1e9"),
    *("seed=" + "[" * 300, "method=:", "model.name=os:", "data.source="),
    *("%s", "{}", "\udcff", "\x1b[2J", "\u202e"),
)
# These take no word, wait for somebody, or try each of thousands of runs.
SILENT = {"demo", "doctor", "datasets", "models", "open", "live", "atlas"}


@pytest.mark.row(24, 27)
@pytest.mark.slow
def test_no_word_behind_a_command_is_unforeseen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    figure: Callable[..., None],
) -> None:
    """With a setting that nobody has, lest anything is trained."""
    monkeypatch.chdir(tmp_path)
    unforeseen = []
    for command in sorted(set(COMMANDS) - SILENT):
        for typed in TYPED:
            call([command, typed, "no.such=1"])
            said = capfd.readouterr().err
            if any(word in said for word in UNFORESEEN) or "\x1b[2J" in said:
                unforeseen.append(f"{command} {typed[:30]!r}: {said[:200]}")
            figure("words typed", 1)
    assert unforeseen == []
    assert list(tmp_path.iterdir()) == []
