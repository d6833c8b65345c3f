"""Processes of a real federation that are killed at a chosen moment, by the named points.

Every process carries a hook that kills it with SIGKILL at its point, once: a client in the midst of
its introduction and of a hand-over, a server in the midst of an agreement and of a commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.flower.machine import Machine, machine, wait
from tests.engines.flower.test_federation import accuracies, final, serial

pytestmark = [pytest.mark.federation, pytest.mark.slow]
KILLER = """
import json, os, signal
def strike(event, args):
    if not event.startswith("coterie."):
        return
    home = os.environ["STRIKES"]
    for name in sorted(os.listdir(home)):
        if not name.endswith(".json"):
            continue
        path = os.path.join(home, name)
        try:
            with open(path) as file:
                wanted = json.load(file)
        except (OSError, ValueError):
            continue
        if [event[8:], *args] == wanted:
            os.rename(path, path.replace(".json", ".done"))
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(strike)
"""


def armed(m: Machine, monkeypatch: pytest.MonkeyPatch, *points: list[object]) -> Path:
    """Lay down at which points somebody is to die."""
    home = m.home / "strikes"
    home.mkdir()
    for i, point in enumerate(points):
        (home / f"{i}.json").write_text(json.dumps(point))
    monkeypatch.setenv("STRIKES", str(home))
    site = m.home / "audit" / "sitecustomize.py"
    site.write_text(site.read_text() + KILLER)
    return home


@pytest.mark.row(1, 5, 7)
def test_killed_in_an_introduction_a_hand_over_and_a_commit_the_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[..., None]
) -> None:
    with machine(tmp_path, method="ditto", clients=3, rounds=3) as m:
        want = serial(m)
        home = armed(
            *(m, monkeypatch),
            ["introduced", "0"],
            ["kept", 2, "1"],  # it knows its new private model, and nobody has its answer
            ["commit", 2],
        )
        joined = [m.join(i) for i in range(3)]
        server = m.serve("run")
        for i in (0, 1):
            wait((home / f"{i}.done").exists, 600, m.said("run"))
            assert joined[i].wait(60) == -9
            m.join(i)
        wait((home / "2.done").exists, 600, m.said("run"))
        assert server.wait(60) == -9
        assert m.serve("run", resume=True).wait(600) == 0, m.said("run")()
        assert final(m.home / "run") == final(want)
        assert accuracies(m.home / "run") == accuracies(want)
        assert list((m.home / "run").rglob("*.tmp")) == []
        figure("process kills", 3)
        figure("identical resumes", 3)  # after each, the federation went on to this end
