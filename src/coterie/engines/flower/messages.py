"""What crosses: questions and answers as Flower's typed records. A model is one flat array."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from coterie.core.types import AnswerForm, Reply
from coterie.engines.flower import validate
from coterie.engines.flower.validate import Address, NotFiniteError, RefusedError

HELLO = "query.hello"
AWAY = "query.away"  # to a client that is not let in, with why
BYE = "query.bye"  # the run is over: what a client holds now is what it keeps
TASK = {"train": "train.task", "evaluate": "evaluate.task"}
FORMAT = 1
LIMIT = 1 << 34  # bytes of an array that a client takes from its server


@dataclass(frozen=True)
class Asking:
    """A question as it travels to one client."""

    address: Address
    seed: int
    task: str  # as `wire` writes it
    setup: str  # JSON: the network, the classes, how data are read
    models: Tensor
    sent: Mapping[str, Tensor]
    floor: int = -2  # no round before this one is done again: older memories may go
    void: tuple[int, ...] = ()  # abandoned rounds, whose memories do not count


def asking(q: Asking) -> RecordDict:
    """A question as records."""
    head: dict[str, Any] = {
        "format": FORMAT,
        **asdict(q.address),
        "seed": q.seed,
        "task": q.task,
        "setup": q.setup,
        "floor": q.floor,
        "void": json.dumps(q.void),
    }
    return RecordDict(
        {
            "question": ConfigRecord(head),
            "models": packed({"models": q.models}),
            "sent": packed(q.sent),
        }
    )


def asked(content: RecordDict) -> Asking:
    """The question in the records."""
    head = content.config_records["question"]
    if head["format"] != FORMAT:
        raise RefusedError(f"a question of format {head['format']!r}, this client reads {FORMAT}")
    return Asking(
        Address(**{name: head[name] for name in Address.__dataclass_fields__}),  # type: ignore[arg-type]
        int(head["seed"]),  # type: ignore[arg-type]
        str(head["task"]),
        str(head["setup"]),
        unpacked(content, "models", None, LIMIT)["models"],
        unpacked(content, "sent", None, LIMIT),
        int(head["floor"]),  # type: ignore[arg-type]
        tuple(json.loads(str(head["void"]))),
    )


def answering(address: Address, reply: Reply, samples: int) -> RecordDict:
    """An answer as records; what the client keeps is not among them."""
    extra = {f"extra.{name}": t for name, t in reply.extra.items()}  # never the value's name
    return RecordDict(
        {
            "answer": ConfigRecord({**asdict(address), "samples": samples, "error": ""}),
            "values": packed({"value": reply.value, **extra}),
        }
    )


def failing(address: Address, error: str, *, diverged: bool = False) -> RecordDict:
    """An answer that says why there is none; whether that is because its training diverged."""
    why: dict[str, Any] = {"samples": 0, "error": error, "diverged": diverged}
    return RecordDict({"answer": ConfigRecord({**asdict(address), **why})})


def answered(
    content: RecordDict, expected: Address, forms: AnswerForm | None, samples: int, limit: int
) -> Reply:
    """The answer in the records, refused unless everything about it is as it must be."""
    head = content.config_records.get("answer")
    if head is None:
        raise RefusedError("it holds no answer")
    validate.address(dict(head), expected)
    if error := head.get("error"):
        if head.get("diverged") is True:
            raise NotFiniteError(str(error))
        raise RefusedError("it could not: " + str(error))
    validate.samples(head.get("samples"), samples)
    values = unpacked(content, "values", forms, limit)
    if "value" not in values:
        raise RefusedError("it holds no value")
    value = values.pop("value")
    return Reply(value, {n.removeprefix("extra."): t for n, t in values.items()})


def packed(values: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors as a record of arrays."""
    return ArrayRecord(
        {name: Array(t.detach().cpu().contiguous().numpy()) for name, t in values.items()}
    )


def unpacked(
    content: RecordDict, name: str, forms: AnswerForm | None, limit: int
) -> dict[str, Tensor]:
    """A record of arrays as tensors."""
    record = content.array_records.get(name)
    if record is None:
        raise RefusedError(f"it holds no {name}")
    return validate.tensors(dict(record), forms, limit)
