"""Settings that are each possible but not together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.config.fields import Field
from coterie.config.problems import Path, Problem
from coterie.config.tables import all_fields, refuses
from coterie.config.validate import fits
from coterie.core import best_by
from coterie.core.byzantine import hostile, needed
from coterie.core.metric_names import METRICS, objections
from coterie.core.suggest import similar
from coterie.data import kinds, named
from coterie.engines import ENGINES
from coterie.methods import METHODS, public_samples
from coterie.models import zoo

CLUSTERS = ("k", "n_clusters", "clusters")  # how methods call their number of clusters


class _UnsoundError(Exception):
    """A rule asked for a value that is itself wrong."""


@dataclass(frozen=True)
class Sound:
    """The values of an experiment, without those that are already known to be wrong."""

    tree: Mapping[str, Any]
    own: str  # the name of the method's own table
    hyper: Mapping[str, Field]
    bad: Collection[Path]

    def admits(self, key: str, value: Any) -> bool:
        """Whether a hyper-parameter of the method could have this value."""
        return fits(self.hyper[key].annotation, value)

    def __call__(self, *path: str) -> Any:
        """The value at a path; of the method's own table, at ("hyper", key)."""
        shown = (self.own, *path[1:]) if path[0] == "hyper" else path
        if any(shown[:end] in self.bad for end in range(1, len(shown) + 1)):
            raise _UnsoundError
        value = self.tree
        for part in path:
            value = value[part]
        return value


def contradictions(sound: Sound) -> Iterator[Problem]:
    """Every rule that the experiment breaks; a rule about a wrong value waits until it is right."""
    for rule in RULES:
        try:
            yield from rule(sound)
        except _UnsoundError:
            continue


def public(v: Sound) -> Iterator[Problem]:
    """A method that compares models on the server's own samples, and a server without any."""
    method, count = v("method"), v("data", "public")
    if public_samples(method) and not count:
        fix = "the paper has 1 of each class"
        yield Problem(("data", "public"), count, f"{method} needs some", fix)


def cohort(v: Sound) -> Iterator[Problem]:
    """A share of clients that is not even one, or of a method that asks everyone."""
    share, clients = v("train", "participation"), v("partition", "clients")
    if share < 1 and v("method") in METHODS and "fraction" not in all_fields(v("method")):
        fix = "leave it out, or choose another method"
        reason = f"{v('method')} asks every client"
        yield Problem(("train", "participation"), share, reason, fix)
    if clients and share * clients < 0.5:
        reason, fix = f"draws nobody of {clients} clients", f"at least {1 / clients:.2g} draws one"
        yield Problem(("train", "participation"), share, reason, fix)


def recipe(v: Sound) -> Iterator[Problem]:
    """An optimiser with what another has, or that the formulas of the method cannot have."""
    kind, momentum = v("train", "optimiser"), v("train", "momentum")
    if momentum and kind != "sgd":
        fix = "leave it out; train.beta1 is what comes nearest"
        yield Problem(("train", "momentum"), momentum, f"{kind} has none", fix)
    if v("train", "nesterov") and not momentum:
        fix = "give train.momentum, as 0.9"
        yield Problem(("train", "nesterov"), True, "there is no momentum", fix)
    given = {key: v("train", key) for key in ("nesterov", "clip")} | {"optimiser": kind != "sgd"}
    method = v("method")
    for key, why in refuses(method).items():
        if given.get(key):
            fix = f"{why}; leave it out, or choose another method"
            yield Problem(("train", key), v("train", key), f"not with {method}", fix)


def server(v: Sound) -> Iterator[Problem]:
    """An optimiser of the server's for a method that has nothing to step towards."""
    kind, method = v("server", "optimiser"), v("method")
    if kind == "none":
        if (rate := v("server", "lr")) is not None:
            fix = "choose server.optimiser, as momentum"
            yield Problem(("server", "lr"), rate, "there is no optimiser", fix)
        return
    why = refuses(method).get("server", "")
    if not why and "server" not in all_fields(method):
        why = "its class has no field `server`"
    if why:
        fix = f"{why}; leave it out, or choose another method"
        yield Problem(("server", "optimiser"), kind, f"not with {method}", fix)


def merging(v: Sound) -> Iterator[Problem]:
    """A robust merge for a method that does not average, or of too few answers."""
    rule, method = v("server", "merge"), v("method")
    if rule == "mean" and not v("server", "flag"):
        return
    if why := no_merge(method):
        able = ", ".join(name for name in METHODS if not no_merge(name))
        key, given = ("merge", rule) if rule != "mean" else ("flag", True)
        fix = f"{why}; leave it out, or choose a method that averages: {able}"
        yield Problem(("server", key), given, f"not with {method}", fix)
    clients, share = v("partition", "clients"), v("server", "byzantine")
    if rule == "mean" or not clients:
        return
    m = max(1, int(v("train", "participation") * clients + 0.5))
    several = method not in METHODS or METHODS[method].family == "clustered"
    if not any(n >= needed(rule, n, share) for n in (range(2, m + 1) if several else (m,))):
        f, least = hostile(m, share), needed(rule, m, share)
        reason = f"takes {least} answers where {f} of {m} may be hostile"
        fix = "more clients, a larger train.participation, or a smaller server.byzantine"
        yield Problem(("server", "merge"), rule, reason, fix)


def no_merge(method: str) -> str:
    """Why a method has nothing that could be merged in another way, or nothing."""
    no = refuses(method)
    if "merge" in no or "server" in all_fields(method):
        return no.get("merge", "")
    return no.get("server", "its class has no field `server`")


def clusters(v: Sound) -> Iterator[Problem]:
    """More clusters than clients."""
    clients, own = v("partition", "clients"), v("hyper")
    for key in CLUSTERS:
        k = own.get(key)
        if clients and isinstance(k, int) and not isinstance(k, bool) and k > clients:
            v("hyper", key)
            auto = '"auto" or ' if v.admits(key, "auto") else ""
            fix = f"use {auto}2 – {clients}" if clients > 1 else "use more clients"
            yield Problem((v.own, key), k, f"more than clients ({clients})", fix)


def groups(v: Sound) -> Iterator[Problem]:
    """More planted groups than clients, or labels that a named set does not have."""
    clients, name = v("partition", "clients"), v("partition", "kind")
    source = named.canonical(v("data", "source"))
    classes = named.NAMED[source].classes if source else 0
    if v("data", "options"):
        classes = 0  # an option may choose other labels
    for kind in name.split("+"):
        cls = kinds.KINDS[kind]
        below: Path = (kind,) if "+" in name else ()
        at, own = ("partition", *below), v("partition", "options", *below)
        many = f"more groups than clients ({clients})", f"at most {clients} groups, or more clients"
        few = f"{source} has {classes} labels", f"use 1 – {classes}"
        for key, most, said in ((cls.groups_in, clients, many), (cls.labels_in, classes, few)):
            if key and most and (*at, key) not in v.bad and kinds.count(own[key]) > most:
                yield Problem((*at, key), own[key], *said)
        if cls.needs_owners and source and not named.may_own(source):
            fix = "use another kind; femnist has writers, a CSV has data.owner"
            yield Problem(("partition", "kind"), name, f"{source} does not say who owns what", fix)


def protocol(v: Sound) -> Iterator[Problem]:
    """A test protocol that has nothing to test on."""
    test, pool = v("data", "test"), v("data", "pool")
    if test == "own":
        share = v("data", "test_share")
        if share == 1:
            fix = "use a share below 1; papers use 0.2 and 0.25"
            yield Problem(("data", "test_share"), share, "leaves nothing to train on", fix)
        return
    if pool == "all":
        fix = 'use pool = "train", or test = "own"'
        yield Problem(("data", "pool"), pool, f'leaves no test set for test = "{test}"', fix)
    name = named.canonical(v("data", "source"))
    if name and named.NAMED[name].embedded:
        reason = f"{name} has no official test set"
        yield Problem(("data", "test"), test, reason, 'use test = "own"')


def choosing(v: Sound) -> Iterator[Problem]:
    """A round that is to be chosen, and nothing to choose it by."""
    stop, at = v("train", "stop"), ("train", "stop")
    if stop is None:
        return
    if not v("data", "validation_share"):
        fix = "set data.validation_share=0.2; test data never choose"
        yield Problem(at, stop, "there is no validation data to choose by", fix)
    metric, names = v("train", "stop", "metric"), best_by.choosable(v("evaluate", "metrics"))
    if best_by.full(metric) not in names:
        fix = similar(metric, ["accuracy", *names]) or f"one of {', '.join(names)}"
        yield Problem((*at, "metric"), metric, "not measured", f"{fix} (see evaluate.metrics)")
    if v("evaluate", "tuned"):
        fix = "leave out evaluate.tuned, which is tested after the last round; or train.stop"
        yield Problem(at, stop, "takes another round than is tuned", fix)
    for change in {"drift", "arrivals"} & set(v("partition", "kind").split("+")):
        fix = f"leave out {change}, or train.stop"
        yield Problem(at, stop, "no round is best while the clients change", fix)


def newcomers(v: Sound) -> Iterator[Problem]:
    """Clients held out of a population that has none to spare, or whose samples move."""
    share, clients = v("newcomers", "share"), v("partition", "clients")
    if share and clients == 1:
        fix = "use more clients"
        yield Problem(("newcomers", "share"), share, "there is one client", fix)
    if share and "drift" in v("partition", "kind").split("+"):
        fix = "leave out drift, or the newcomers"
        yield Problem(("newcomers", "share"), share, "not with drift", fix)


def network(v: Sound) -> Iterator[Problem]:
    """A network that does not exist, or cannot be had like this."""
    name, data = v("model", "name"), named.canonical(v("data", "source"))
    shape = named.NAMED[data].shape if data else ()
    if name == zoo.AUTO and shape:
        name = zoo.suited(shape)
    if ":" in name or name == zoo.AUTO:
        return
    if name not in zoo.MODELS:
        fix = similar(name.lower(), zoo.MODELS) or "`coterie models` lists them"
        yield Problem(("model", "name"), name, "unknown model", fix)
        return
    model = zoo.MODELS[name]
    for found in model.objections(norm=v("model", "norm")):
        yield Problem(("model", "norm"), found.value, found.reason, found.fix)
    for found in model.objections(options=v("model", "options")):
        yield Problem(("model", "options", found.setting), found.value, found.reason, found.fix)
    if shape:
        for found in model.objections(shape=shape, whose=str(data)):
            yield Problem(("model", "name"), name, found.reason, found.fix)


def engine(v: Sound) -> Iterator[Problem]:
    """An engine that does not exist."""
    name = v("engine", "name")
    if name not in ENGINES:
        fix = f"one of {', '.join(ENGINES)}"
        yield Problem(("engine", "name"), name, "unknown engine", fix)


def metrics(v: Sound) -> Iterator[Problem]:
    """Metrics that do not exist, or cannot be told apart."""
    asked = v("evaluate", "metrics")
    for name, reason in objections(asked):
        known = f"one of {', '.join(METRICS)}, or package.module:function"
        yield Problem(("evaluate", "metrics"), name, reason, similar(name, METRICS) or known)


def folder(v: Sound) -> Iterator[Problem]:
    """A name of the run's folder that is none, or cannot be filled in."""
    pattern = v("output", "dir")
    if not pattern.strip():
        yield Problem(("output", "dir"), pattern, "no name", 'use "runs/{date}_{method}"')
    try:
        pattern.format(date="", method="", seed="")
    except (KeyError, IndexError, ValueError):
        fix = "use {date}, {method}, {seed}"
        yield Problem(("output", "dir"), pattern, "cannot be filled in", fix)


def privacy(v: Sound) -> Iterator[Problem]:
    """Noise where something would leave a client without it, or where nobody keeps its account."""
    keys = ("epsilon", "noise_multiplier")
    given = {key: v("privacy", key) for key in keys if v("privacy", key) is not None}
    if not given:
        return
    key, value = next(iter(given.items()))
    at, method = ("privacy", key), v("method")
    covered = [name for name, entry in METHODS.items() if entry.noise]
    if method in METHODS and method not in covered:
        reason = f"not all that {method} sends can be under noise"
        yield Problem(at, value, reason, f"use {', '.join(covered)}; or leave out [privacy]")
    if v("hyper").get("follow") and method == "kin":
        reason = "gains are asked for, which no noise covers"
        yield Problem((v.own, "follow"), True, reason, "kin.follow = false keeps the first groups")
    if v("engine", "name") == "flower":
        fix = "use serial, pool or auto"
        yield Problem(at, value, "accounts of clients on other machines are not kept", fix)
    if v("train", "stop") is not None:
        fix = "leave out train.stop"
        yield Problem(("train", "stop"), v("train", "stop"), "validation is not under noise", fix)
    if "drift" in v("partition", "kind").split("+") and "noise_multiplier" not in given:
        fix = "give noise_multiplier; what was spent is reported"
        yield Problem(at, value, "how much drift will cost is not known beforehand", fix)
    name, norm = v("model", "name"), v("model", "norm")
    norms = zoo.MODELS[name].norms if name in zoo.MODELS else ()
    if norms and (norm or norms[0]) == "batch":
        reason = "batch normalisation mixes samples, so that none can be hidden"
        yield Problem(("model", "norm"), norm or "batch", reason, 'use norm = "group"')


RULES: tuple[Callable[[Sound], Iterator[Problem]], ...] = (
    public,
    cohort,
    recipe,
    server,
    merging,
    privacy,
    clusters,
    groups,
    protocol,
    choosing,
    newcomers,
    network,
    engine,
    metrics,
    folder,
)
