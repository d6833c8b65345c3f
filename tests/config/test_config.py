"""The experiment file: defaults, precedence, other names, where values come from, round trips."""

from __future__ import annotations

import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.config import Config, ProblemsError, explain, load, loads, resolved
from coterie.config.aliases import ALIASES
from coterie.config.resolved import dotted_keys, template
from coterie.config.schema import SOLVER
from coterie.config.source import assignment
from coterie.core.errors import ConfigError
from coterie.data.kinds import KINDS, parts_of
from coterie.data.named import NAMED
from coterie.methods import METHODS

ELSEWHERE = '[data]\nsource = "./somewhere"\n'  # a source of which nothing is known beforehand


def test_an_empty_file_is_the_default_experiment() -> None:
    assert replace(loads(""), hyper={}) == Config()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("defaults", ["common", "paper"])
def test_what_is_resolved_loads_back_to_the_same(method: str, defaults: str) -> None:
    config = loads(f'method = "{method}"\n[train]\ndefaults = "{defaults}"')
    assert loads(resolved(config)) == config


@pytest.mark.parametrize("kind", [*KINDS, "rotation+quantity", "dirichlet:0.1+permutation:2"])
def test_every_kind_of_partition_loads_back(kind: str) -> None:
    config = loads(ELSEWHERE + f'[partition]\nkind = "{kind}"')
    assert loads(resolved(config)) == config


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 2**62),
            "train.rounds": st.integers(1, 10**6),
            "train.lr": st.floats(1e-300, 1e300),
            "train.momentum": st.floats(0, 0.999),
            "data.source": st.text(st.characters(codec="utf-8", exclude_categories=("Cs",))).map(
                lambda text: f"./{text}"
            ),
            "data.label": st.integers(0, 9) | st.just("species"),
            "data.options": st.just({"separator": ";"}),
            "model.options": st.just({"hidden": (10, 20)}),
            "evaluate.target": st.floats(0.01, 1),
            "evaluate.absent": st.just("last-known"),
            "data.validation_share": st.just(0.25),
        },
    )
)
def test_any_setting_survives_the_way_through_run_toml(given: dict[str, Any]) -> None:
    config = load(None, given.items())
    assert loads(resolved(config)) == config


def test_every_default_is_written_out() -> None:
    unset = {"data.label", "data.owner", "data.size", "data.gray", "model.head", "model.norm"}
    unset |= {
        "data.about",
        "evaluate.target",
        "evaluate.absent",
        "engine.address",
        "train.lr_decay",
    }
    unset |= {"train.stop", "privacy.epsilon", "privacy.noise_multiplier"}
    unset |= {"attack.strength", "server.lr", "data.classes", "data.limit"}
    text = resolved(loads(""))
    written = {".".join(p) for p in _leaves(text)}
    assert written == set(dotted_keys(loads(""))) - unset


def _leaves(text: str) -> list[tuple[str, ...]]:
    from coterie.config import toml

    found = toml.lines(text)
    return [p for p in found if not any(q[: len(p)] == p and len(q) > len(p) for q in found)]


def test_the_command_line_stands_above_the_file() -> None:
    config = loads("[train]\nrounds = 5\nlr = 0.1", settings=[("train.rounds", 7)])
    assert (config.train.rounds, config.train.lr, config.train.batch_size) == (7, 0.1, 32)


def test_the_last_setting_of_the_command_line_wins() -> None:
    assert loads("", settings=[("seed", 1), ("seed", 2)]).seed == 2


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("train.rounds", "train.rounds = 7    command line"),
        ("train.lr", "train.lr = 0.1    my.toml:3"),
        ("train.batch_size", "train.batch_size = 8    my.toml:4"),
        ("train.momentum", "train.momentum = 0.0    default"),
        ("evaluate.target", "evaluate.target = not set    default"),
        ("partition.alpha", "partition.alpha = 0.5    default"),
    ],
)
def test_explain_says_where_a_value_came_from(key: str, said: str) -> None:
    text = '[train]\nrounds = 5\nlr = 0.1\nlocal_bs = 8\n[partition]\nkind = "dirichlet"'
    config = loads(text, "my.toml", [("train.rounds", 7)])
    assert explain(config, key) == said


def test_explain_tells_the_method_s_own_values() -> None:
    config = loads('[train]\ndefaults = "paper"\nlr = 0.5')
    assert explain(config, "train.local_epochs").endswith('(train.defaults = "paper")')
    assert explain(config, "train.lr").endswith("experiment.toml:3")


def test_explain_of_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        explain(loads(""), "train.lrs")
    assert caught.value.fix == "a similar key exists: train.lr"


def test_paper_fills_only_what_was_not_given() -> None:
    from coterie.methods import find

    made: Any = find("fedavg")()
    config = loads('method = "fedavg"\n[train]\ndefaults = "paper"\nbatch_size = 7')
    assert config.train.batch_size == 7
    assert config.train.lr == made.solver.lr
    assert config.train.local_epochs == made.solver.epochs


def test_epochs_that_were_asked_for_are_not_undone_by_the_steps_of_the_paper() -> None:
    text = 'method = "feddsmic"\n[train]\ndefaults = "paper"\n'
    assert loads(text).train.local_steps == 20
    assert loads(text + "local_epochs = 3").train.local_steps == 0


def test_a_method_that_needs_samples_on_the_server_gets_them() -> None:
    assert loads('method = "feddsmic"').data.public == 1
    assert loads('method = "fedavg"').data.public == 0


def test_natural_owners_are_all_of_them_unless_a_number_is_given() -> None:
    text = ELSEWHERE + '[partition]\nkind = "natural"\n'
    assert loads(text).partition.clients is None
    assert loads(text + "clients = 5").partition.clients == 5


def test_the_solver_is_what_train_says() -> None:
    from coterie.studies.run import experiment

    config = loads("[train]\nlr = 0.25\nlocal_epochs = 3\nbatch_size = 9\nmomentum = 0.5")
    train, solver = config.train, experiment.method(config).solver  # type: ignore[attr-defined]
    assert {key: attrgetter(name)(solver) for key, name in SOLVER.items()} == {
        key: getattr(train, key) for key in SOLVER
    }


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("at_top", [True, False])
def test_names_of_the_literature_are_accepted_and_noted(alias: str, at_top: bool) -> None:
    table, key = ALIASES[alias]
    value: Any = {"source": "digits", "dir": "x", "clients": 3, "rounds": 3, "every": 3}.get(key, 1)
    value = {"local_epochs": 3, "batch_size": 3, "schedule": "step"}.get(key, value)
    value = {"optimiser": "adam", "merge": "median"}.get(key, value)
    config = load(None, [(alias if at_top else f"{table}.{alias}", value)])
    assert getattr(getattr(config, table), key) == value
    assert any(alias in note and f"{table}.{key}" in note for note in config.notes)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('kind = "dirichlet"\nbeta = 0.1', "alpha", 0.1),
        ('kind = "classes"\nclasses_per_client = 3', "per_client", 3),
        ('kind = "noniid-labeldir"\nalpha = 0.1', "alpha", 0.1),
        ('kind = "noniid-#label3"', "per_client", 3),
    ],
)
def test_partitions_of_the_literature_are_understood(text: str, key: str, value: Any) -> None:
    assert loads(f"[partition]\n{text}").partition.options[key] == value


def test_a_share_given_as_test_is_the_share_of_the_own_split() -> None:
    data = loads("[data]\ntest = 0.2").data
    assert (data.test, data.test_share) == ("own", 0.2)


def test_another_kind_on_the_command_line_drops_the_fields_of_the_file_s_kind() -> None:
    text = '[partition]\nkind = "shards"\nper_client = 3\nclients = 7'
    config = loads(text, "my.toml", [("partition.kind", "dirichlet:0.3")])
    assert (config.partition.kind, config.partition.clients) == ("dirichlet", 7)
    assert config.partition.options["alpha"] == 0.3
    assert config.notes == (
        'partition.per_client of my.toml:3 left out: partition.kind = "dirichlet:0.3" was given',
    )


def test_another_method_on_the_command_line_drops_the_table_of_the_file_s_method() -> None:
    config = loads('method = "fedprox"\n[fedprox]\nmu = 1', settings=[("method", "fedavg")])
    assert (config.method, dict(config.hyper)) == ("fedavg", {})
    assert len(config.notes) == 1


def test_the_same_method_on_the_command_line_keeps_its_table() -> None:
    config = loads('method = "fedprox"\n[fedprox]\nmu = 1', settings=[("method", "fedprox")])
    assert config.hyper["mu"] == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=5", 5),
        ("a.b=0.5", 0.5),
        ("a.b=true", True),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b={x = 1}", {"x": 1}),
        ('a.b="5"', "5"),
        ("a.b=dirichlet:0.3", "dirichlet:0.3"),
        ("a.b=./my photos", "./my photos"),
        ("a.b=x=y", "x=y"),
        ("a.b=1\nc = 2", "1\nc = 2"),
        ("a.b=", ""),
    ],
)
def test_a_setting_is_toml_or_a_bare_word(text: str, value: Any) -> None:
    assert assignment(text) == ("a.b", value)


@pytest.mark.parametrize("text", ["train.rounds", "=5", ".a=5", "a..b=5", "a b=5"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assignment(text)
    assert caught.value.code == "C013"


def test_problems_of_the_command_line_say_so() -> None:
    with pytest.raises(ProblemsError) as caught:
        loads("[train]\nlr = 0", "my.toml", [("train.rounds", 0), ("train.x", 1)])
    lines = str(caught.value).splitlines()[1:]
    assert [line.split("  ")[1] for line in lines] == ["my.toml:2", "command line", "command line"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", [n for n, e in NAMED.items() if e.shape])
def test_the_template_means_the_same_as_its_flags(method: str, data: str) -> None:
    text = template(data=data, method=method, partition="dirichlet")
    config = loads(text)
    assert (config.method, config.data.source) == (method, data)
    assert loads(resolved(config)) == config


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "natural"] + ["shards+rotation"])
def test_the_template_has_every_key_of_the_kind(kind: str) -> None:
    text = template(data="digits", method="fedavg", partition=kind)
    config = loads(text)
    written = {".".join(p) for p in _leaves(text)}
    parts = parts_of(config.partition.spec)
    home = "partition." if len(parts) == 1 else "partition.{}."
    unsaid = {home.format(part.name) + key for part in parts for key in part.unsaid}
    assert written - unsaid == set(dotted_keys(config)) - _commented(text)
    assert written | _commented(text) >= unsaid, "also what a resolved file leaves out"


def _commented(text: str) -> set[str]:
    found, table = set(), ""
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif line.startswith("# ") and "= ..." in line:
            found.add(f"{table}.{line.split()[1]}")
    return found


@pytest.mark.row(22, counts="odd clusterings")
def test_more_clusters_than_clients_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters_for_a_test.py").write_text(
        "from dataclasses import dataclass\n"
        "from coterie.core.bounds import Count\n"
        "from typing import Literal\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n"
        '    n_clusters: Count | Literal["auto"] = "auto"  # how many\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "clusters_for_a_test", raising=False)
    text = 'method = "clusters_for_a_test:Mine"\n[partition]\nclients = 30\n[Mine]\n'
    with pytest.raises(ProblemsError) as caught:
        loads(text + "num_clusters = 40", "my.toml", allow_code=True)
    assert str(caught.value).splitlines()[1] == (
        '  my.toml:5  [Mine] num_clusters = 40        more than clients (30) use "auto" or 2 – 30'
    )
    assert loads(text + "n_clusters = 30", allow_code=True).hyper["n_clusters"] == 30


def test_metrics_are_known_by_name_and_code_among_them_must_be_allowed() -> None:
    asked = loads('[evaluate]\nmetrics = ["auc", "macro_f1"]').evaluate.metrics
    assert asked == ("auc", "macro_f1")
    with pytest.raises(ProblemsError, match="a similar name exists: macro_f1"):
        loads('[evaluate]\nmetrics = ["macro_f"]')
    with pytest.raises(ProblemsError, match="auc comes twice"):
        loads('[evaluate]\nmetrics = ["auc", "auc"]')
    own = '[evaluate]\nmetrics = ["auc", "math:hypot"]'
    with pytest.raises(ProblemsError, match="--allow-code"):
        loads(own)
    assert loads(own, allow_code=True).evaluate.metrics[1] == "math:hypot"
    typed = [("evaluate.metrics", ["math:hypot"])]
    assert load(None, typed).evaluate.metrics == ("math:hypot",)


def test_classes_and_a_limit_reach_the_reader() -> None:
    config = loads("[data]\nclasses = [0, 1, 2]\nlimit = 500\n")
    assert config.data.reader == {"only": (0, 1, 2), "limit": 500}
    assert loads(resolved(config)) == config


@pytest.mark.parametrize(
    "settings", [("partition", "partition.clients"), ("train", "train.rounds")]
)
def test_a_value_in_the_place_of_a_table_is_never_dropped(settings: tuple[str, str]) -> None:
    table, key = settings
    for text in (f'{table} = "dirichlet:0.1"', ""):
        changes = [(table, "dirichlet:0.1")] * (not text) + [(key, 3)]
        with pytest.raises(ConfigError, match=f'{table} = "dirichlet:0.1" is no table') as caught:
            loads(text, settings=changes)
        assert caught.value.code == "C012"
    with pytest.raises(ConfigError, match="must be a table"):
        loads("", settings=[(key, 3), (table, "dirichlet:0.1")])
