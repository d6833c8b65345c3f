"""A whole run in a few numbers: what summary.json holds."""

from __future__ import annotations

from math import isnan
from typing import Any

from coterie.core import best_by
from coterie.core.model_kind import kind_of
from coterie.core.types import VALIDATION, Engine, Method, State
from coterie.data.population import Population
from coterie.runs import choosing, metrics
from coterie.runs.history import History
from coterie.studies.insight.shots import by_shots
from coterie.studies.run import changes, private, trust, tuned
from coterie.studies.run.plan import Plan


def summary_of(
    method: Method, population: Population, plan: Plan, history: History, state: State, fed: Engine
) -> dict[str, Any]:
    """The numbers of a whole run under their names, as summary.json holds them: of the round that
    was taken, which is the last one or the best on validation data, never the best on test data."""
    ways, stage = ("bytes_down", "bytes_up"), (history.stages or method.score.stages)[-1]
    series = {stage: history.series("accuracy_mean", stage) for stage in history.stages}
    last = max(series[stage] if series else (row.round for row in history))
    best = choosing.taken(plan.stop, history)
    final = best.round if best else last
    out: dict[str, Any] = {"method": repr(method), "kind": kind_of(method, state)}
    out |= {"rounds": plan.rounds, "clients": len(population), "round": final, "stage": stage}
    out |= {"absent": plan.absent} if plan.absent else {}
    if best and plan.stop:
        how = {"metric": best_by.full(plan.stop.metric), "value": best.value}
        out["taken"] = {"round": final, "of": last, **how}
    if not series:  # nobody has test samples
        out[stage] = {"accuracy_mean": None, "accuracy_worst": None}
    for name, values in series.items():
        trained = [v for t, v in values.items() if t > 0] or list(values.values())
        out[name] = history.whole(final, name) | {
            f"accuracy_last_{plan.last_k}": metrics.last_k_mean(trained, plan.last_k),
            "accuracy_top_5": metrics.top_k_mean(trained, 5),
            **weighted_top_5(history, name),
        }
        if plan.target is not None:
            rounds = [t for t in values if t > 0]
            place = metrics.rounds_to_target([values[t] for t in rounds], plan.target)
            hit = None if place is None else rounds[place - 1]
            sent = None if hit is None else int(sum(history.total(w, until=hit) for w in ways))
            out[name] |= {"target": plan.target, "rounds_to_target": hit, "bytes_to_target": sent}
    if plan.tuned:
        last_rows = [r for r in history if not r.client and r.stage == tuned.STAGE]
        out[tuned.STAGE] = {"epochs": plan.tuned} | {r.metric: r.value for r in last_rows}
    if held := history.whole(final, VALIDATION):
        out[VALIDATION] = held
    if found := by_shots(history, population, final, stage):
        out["by_shots"] = {k: v for k, v in found.items() if not isnan(v)}
    out["clusters"] = history.whole(final, "clusters")
    if population.course.at:
        took = changes.recoveries(history, population)
        out["clusters"]["rounds_to_recover"] = took[0] if took else None
        if population.course.pattern == "recurring":
            out["clusters"]["rounds_to_recover_each"] = took
    out |= trust.doubted(state, population.names)
    out |= {way: int(history.total(way)) for way in ways}
    return out | private.accounts(fed, method)


def weighted_top_5(history: History, stage: str) -> dict[str, float]:
    """Accuracy counted by samples in its five best rounds, and the five worst clients in those."""
    series = (history.series(f"accuracy_{name}", stage) for name in ("weighted", "bottom_5"))
    best, worst = ([v for t, v in s.items() if t > 0] or list(s.values()) for s in series)
    return {
        "accuracy_weighted_top_5": metrics.top_k_mean(best, 5),
        "accuracy_bottom_5_top_5": metrics.in_top_k(best, worst, 5),
    }
