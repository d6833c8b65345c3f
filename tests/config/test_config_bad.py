"""Bad experiment files: the whole message of each, and that finding it out costs next to nothing.

After a change of wording, `python -m tests.config.test_config_bad` writes them anew: read the diff.
"""

from __future__ import annotations

import io
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr
from pathlib import Path

import pytest

from coterie.cli.main import call
from coterie.config import ProblemsError, load

BAD = Path(__file__).parent / "bad"
FILES = sorted(path.name for path in BAD.glob("*.toml"))


def complaint(name: str) -> tuple[int, str]:
    text = io.StringIO()
    with chdir(BAD), redirect_stderr(text):
        code = call(["check", name])
    return code, text.getvalue()


@pytest.mark.row(24)
def test_there_are_enough_bad_files(figure: Callable[..., None]) -> None:
    assert len(FILES) >= 40
    figure("bad files", len(FILES))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.row(24)
def test_the_message_is_the_one_on_record(name: str) -> None:
    code, text = complaint(name)
    assert text == (BAD / name).with_suffix(".txt").read_text()
    assert code == 2


@pytest.mark.parametrize("name", FILES)
@pytest.mark.row(24)
def test_every_problem_has_place_reason_and_fix(name: str) -> None:
    head, *rows, foot = complaint(name)[1].splitlines()
    assert foot == f"nothing was run. explain: coterie help {head[6:10]}"
    if "C011" in head:
        assert [row.split()[0] for row in rows if row[2] != " "] == ["where", "why", "fix"]
        return
    assert head == f"error[C012]: {len(rows)} problem{'s' * (len(rows) > 1)} in {name}"
    for row in rows:
        assert re.match(rf"  {name}:\d+ {{2,}}\S", row)
    with pytest.raises(ProblemsError) as caught, chdir(BAD):
        load(name)
    assert all(problem.reason and problem.fix for _, problem in caught.value.rows)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.row(24)
def test_problems_come_in_the_order_of_the_file(name: str) -> None:
    lines = [int(n) for n in re.findall(rf"^  {name}:(\d+) ", complaint(name)[1], re.MULTILINE)]
    assert lines == sorted(lines)


@pytest.mark.row(24)
def test_no_bad_file_makes_torch_be_imported(figure: Callable[..., None]) -> None:
    code = (
        "import sys, contextlib, io\n"
        "from coterie.cli.main import call\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.redirect_stderr(io.StringIO()):\n"
        "        assert call(['check', name]) == 2, name\n"
        "print(*(m for m in ('torch', 'numpy', 'sklearn', 'scipy') if m in sys.modules))\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *FILES], cwd=BAD, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.strip() == ""
    # Of all files together: one alone takes hardly less than starting the program.
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figure("seconds of computing for all bad files", seconds)
    assert seconds < len(FILES)


@pytest.mark.row(24)
def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"seed = 1\n\xff\xfe")
    text = io.StringIO()
    with chdir(tmp_path), redirect_stderr(text):
        code = call(["check", "x.toml"])
    assert (code, text.getvalue()) == (
        2,
        "error[C010]: x.toml is not a text file\n"
        "  why    byte 10 is not UTF-8\n"
        "  fix    save it as UTF-8 text\n"
        "nothing was run. explain: coterie help C010\n",
    )


@pytest.mark.row(24)
def test_a_file_that_is_not_there_names_the_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    text = io.StringIO()
    with chdir(tmp_path), redirect_stderr(text):
        code = call(["check", "mime.toml"])
    assert code == 2
    assert "  fix    name mine.toml, which is there\n" in text.getvalue()


if __name__ == "__main__":
    for file in FILES:
        (BAD / file).with_suffix(".txt").write_text(complaint(file)[1])
