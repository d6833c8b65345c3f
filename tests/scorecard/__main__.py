"""`python -m tests.scorecard` runs the tests of every row and writes docs/scorecard.md.

Further words go to pytest; with some, the page is only printed: it would not be that of all rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.scorecard.page import enough, page, passed, status
from tests.scorecard.rows import ROWS

ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    """Run, write, and tell; 0 if every row passed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "scorecard.json"
        command = [sys.executable, "-m", "pytest", "-p", "tests.scorecard.plugin"]
        command += ["-m", "row", "-n", "2", "--dist", "loadgroup", "--scorecard", str(file)]
        subprocess.run([*command, *(words or ["tests"])], cwd=ROOT, check=False)
        found = json.loads(file.read_text())
    tests, seconds = found["tests"], time.monotonic() - began
    for name in found["strange"]:  # as a process that died, or a file that cannot be imported
        print(f"not of any row, and ended badly: {name}")
    text = page(tests, seconds, f"{os.cpu_count()} cores")
    if words:
        print(text)
    else:
        (ROOT / "docs" / "scorecard.md").write_text(text)
    for row in ROWS:
        how = status([test for test in tests if row.number in test["rows"]])
        if how != "passed":
            print(f"row {row.number}: {how}: {row.fault}")
    print(f"{passed(tests)} of {len(ROWS)} rows passed in {seconds:.0f} s")
    if not (known := words or enough(tests)):
        print("there were fewer crashes than promised, or fewer identical resumes than crashes")
    return 0 if passed(tests) == len(ROWS) and not found["strange"] and known else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
