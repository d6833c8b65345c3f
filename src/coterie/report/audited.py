"""The page of an audit: what left each client, and what an attacker makes of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from coterie.audit.findings import Audit, Control, Rebuilt
from coterie.core.units import count, size
from coterie.report import facts
from coterie.report.blocks import Block
from coterie.report.compared import amount
from coterie.report.page import Picture, Section, html, left_out, save
from coterie.report.verdict import Tile
from coterie.runs.text_table import TextTable

CONTROLS = Block(
    "controls",
    "Whether the attacks work here",
    "Attacks on the same data and network that must succeed, and others that must fail. An attack "
    "whose control did not do so shows nothing: where it finds nothing, that is not conclusive.",
)
SHOWN = 12  # pictures of a method


def write_audit(file: str | Path, audits: Sequence[Audit], title: str, command: str) -> Path:
    """Write the page of the audits of one or several methods on the same data and network."""
    several = len(audits) > 1
    first = (sortable(overview(audits)),) if several else ()
    sections = [Section(CONTROLS, tables=(*first, sortable(control_table(audits[0].controls))))]
    for audit in audits:
        sections += sections_of(audit, several=several)
    again = Block("again", "How to do it again", "The same settings and seed give the same page.")
    sections.append(Section(again, texts=(("Command", command),)))
    warnings = [
        f"{c.name} should {c.must} and did not ({c.value:.2f} {c.unit}, {c.limit}): "
        f"what {c.attack} does not find here is not conclusive."
        for c in audits[0].controls
        if not c.passed
    ]
    warnings += [note for audit in audits for note in audit.notes]
    return save(
        html(
            title=title,
            lead=f"{count(len(audits), 'method')} · a curious server that keeps to the protocol, "
            "knows the network, the recipe and how samples are scaled",
            sentence=f"What {count(len(audits), 'method')} send, attacked."
            if several
            else audits[0].sentence,
            tiles=tiles(audits),
            warnings=warnings,
            sections=sections,
            left_out=left_out(sections),
            colours="method",
        ),
        file,
    )


def tiles(audits: Sequence[Audit]) -> list[Tile]:
    """The worst of each kind, over all methods."""
    controls = audits[0].controls
    held = sum(c.passed for c in controls)
    found = [Tile("controls as they must be", f"{held} of {len(controls)}")]
    rebuilt = [(r.psnr, a.method, r.setting) for a in audits for r in a.rebuilt]
    labels = [(found.overlap, a.method) for a in audits for found in a.labels]
    members = [(m.area.auc, a.method, m.whose) for a in audits for m in a.members]
    if rebuilt:
        most = max(rebuilt)
        found.append(Tile("best likeness", f"{most[0]:.1f} dB", f"{most[1]}, {most[2]}"))
    if labels:
        told = max(labels)
        found.append(Tile("labels told", f"{100 * told[0]:.0f} %", told[1]))
    if members:
        known = max(members)
        found.append(Tile("membership", f"AUC {known[0]:.2f}", f"{known[1]}, {known[2]}"))
    return found


def sections_of(audit: Audit, *, several: bool) -> list[Section]:
    """One method: what it sent, pictures, labels, members."""
    of = f"{audit.method}: " if several else ""
    key = f"{audit.method}-" if several else ""
    where = f"{count(len(audit.audited), 'client')}, {count(audit.rounds, 'round')} played"
    left, samples, guessed, known = (sortable(t) for t in tables(audit))
    protected = (("noise", audit.privacy),) if audit.privacy else ()
    return [
        Section(
            Block(
                f"{key}sent", f"{of}What left each client",
                f"Every tensor that a client answers with, and what it may tell ({where}).",
            ),
            tables=(left,), lines=protected,
        ),
        Section(
            Block(
                f"{key}rebuilt", f"{of}Samples, rebuilt",
                "Left the sample, right what the attack made of what was sent; from 20 dB on it is "
                "a likeness, and what is not better than the mean picture of other clients' "
                "samples is no success. One sample and one step is the worst case, in which most "
                "papers attack; as sent is what this client really sent.",
            ),
            pictures=pictures(audit.rebuilt),
            tables=(samples,) if samples.rows else (),
            absent=() if samples.rows else ("Nothing that it sends can be rebuilt from.",),
        ),
        Section(
            Block(
                f"{key}labels", f"{of}Labels, guessed",
                "The share of a client's labels that a guess from what it sent has right, beside "
                "that of an even guess, which needs no upload.",
            ),
            tables=(guessed,) if guessed.rows else (),
            absent=() if guessed.rows else ("Nothing that it sends tells labels.",),
        ),
        Section(
            Block(
                f"{key}members", f"{of}Who was trained on",
                "The chance that a sample trained on has a smaller loss than one that was not: 0.5 "
                "tells nothing. Intervals are 95 % (DeLong).",
            ),
            tables=(known,) if known.rows else (),
            absent=() if known.rows else ("No whole model can be tested for it.",),
        ),
    ]  # fmt: skip


def tables(audit: Audit) -> tuple[TextTable, TextTable, TextTable, TextTable]:
    """What was sent, rebuilt, told of labels and of members, as tables of text."""
    return sent(audit), rebuilt(audit), labels(audit), members(audit)


def sent(audit: Audit) -> TextTable:
    """Every tensor that left a client."""
    head = ("task", "kind", "each time", "first in round", "rounds", "answers", "may tell")
    rows = (
        (s.what, s.kind, size(s.bytes), f"{s.first}", f"{s.rounds}", f"{s.answers:,}", s.tells)
        for s in audit.sent
    )
    return TextTable("What left", head, tuple(rows))


def rebuilt(audit: Audit) -> TextTable:
    """Every attack on samples."""
    head = ("from", "setting", "attack", "PSNR, dB", "SSIM", "mean picture, dB", "verdict")
    rows = (
        (r.source, r.setting, r.attack, *(f"{n:.{d}f}" for n, d in numbers(r)), r.verdict)
        for r in audit.rebuilt
    )
    return TextTable("Samples", head, tuple(rows))


def numbers(found: Rebuilt) -> tuple[tuple[float, int], ...]:
    """The numbers of an attack on a sample, each with its digits behind the point."""
    return (found.psnr, 1), (found.ssim, 2), (found.blind, 1)


def labels(audit: Audit) -> TextTable:
    """Every guess of labels."""
    head = ("from", "labels right", "even guess", "sets of classes right", "verdict")
    rows = (
        (
            told.source,
            f"{100 * told.overlap:.0f} %",
            f"{100 * told.blind:.0f} %",
            f"{told.sets} of {told.clients}",
            told.verdict,
        )
        for told in audit.labels
    )
    return TextTable("Labels", head, tuple(rows))


def members(audit: Audit) -> TextTable:
    """Every model by which members were told."""
    head = ("whose", "from", "AUC", "95 % interval", "trained on", "not", "verdict")
    rows = (
        (
            m.whose,
            m.source,
            f"{m.area.auc:.3f}",
            f"{m.area.low:.3f} – {m.area.high:.3f}",
            f"{m.area.members}",
            f"{m.area.others}",
            m.verdict,
        )
        for m in audit.members
    )
    return TextTable("Members", head, tuple(rows))


def overview(audits: Sequence[Audit]) -> TextTable:
    """The worst of every method, one row each."""
    head = ("method", "one sample, one step", "as sent", "labels told", "models that tell members")
    return TextTable("At a glance", head, tuple(at_a_glance(audit) for audit in audits))


def at_a_glance(audit: Audit) -> tuple[str, ...]:
    """The worst of a method."""
    found = [audit.method]
    for setting in ("one sample, one step", "as sent"):
        here = [r for r in audit.rebuilt if r.setting == setting]
        worst = max(here, key=lambda r: r.psnr, default=None)
        found.append(f"{worst.psnr:.1f} dB, {worst.verdict}" if worst else "nothing")
    share = max((told.overlap for told in audit.labels), default=None)
    found.append("none" if share is None else f"{100 * share:.0f} %")
    known = sum(m.verdict == "told" for m in audit.members)
    return (*found, f"{known} of {len(audit.members)}")


def sortable(table: TextTable) -> facts.SortableTable:
    """A table of text; its numbers to the right, and its words to the left."""
    rows = (tuple(facts.Cell(text, amount(text)) for text in row) for row in table.rows)
    return facts.SortableTable(table.title, table.head, tuple(rows))


def control_table(controls: Sequence[Control]) -> TextTable:
    """Every control: what it must do, and what it did."""
    head = ("control", "attack", "must", "is", "limit", "as it must be")
    rows = tuple(
        (c.name, c.attack, c.must, f"{c.value:.2f} {c.unit}", c.limit, "yes" if c.passed else "no")
        for c in controls
    )
    return TextTable("Controls", head, rows)


def pictures(found: Sequence[Rebuilt]) -> tuple[Picture, ...]:
    """Samples beside what was made of them; only images can be drawn."""
    return tuple(
        Picture(
            drawn(r.original, r.low, r.high),
            drawn(r.guess, r.low, r.high),
            f"{r.psnr:.1f} dB · {r.verdict}",
            f"{r.source}, {r.setting}, {r.attack}; the mean picture has {r.blind:.1f} dB",
        )
        for r in found[:SHOWN]
        if r.original.ndim == 3
    )


def drawn(image: Tensor, low: float, high: float) -> str:
    """An image (C, H, W) as the address of a PNG that holds it."""
    levels = ((image - low) / max(high - low, 1e-12) * 255).round().clamp(0, 255)
    pixels = levels.numpy().astype(np.uint8)
    flat = pixels[0] if len(pixels) != 3 else np.moveaxis(pixels, 0, 2)
    file = io.BytesIO()
    Image.fromarray(flat).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
