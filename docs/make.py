"""Writes the tables of the documentation from the tables of the code.

    python docs/make.py            rewrite every generated block
    python docs/make.py --check    change nothing; exit 1 if a page is not current

A block stands between `<!-- table: NAME ... -->` and `<!-- end -->` in any page.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from coterie.config import tables, toml
from coterie.config.fields import Field, Required
from coterie.config.tables import keys_at_top, keys_of, keys_of_kind
from coterie.config.validate import describe, plain
from coterie.core.codes import CODES, FAMILIES
from coterie.data import kinds, named
from coterie.methods import METHODS
from coterie.models import zoo

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BLOCK = re.compile(r"(<!-- table: (?P<call>[^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(value: object) -> str:
    """A value as it can stand in a table."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def code(value: object) -> str:
    """A value as code."""
    return f"`{value}`"


def default(field: Field) -> str:
    """The default of a field as a file would have it."""
    if field.default is Required:
        return "required"
    value = plain(field.default)
    if value is None or value == {}:
        return "not set"
    return code(toml.inline(value))


def keys(known: dict[str, Field]) -> str:
    """The keys of a table, one row each."""
    rows = [(code(k), default(f), describe(f.annotation), f.comment) for k, f in known.items()]
    return table(("key", "default", "may be", "meaning"), rows)


def methods(to: str = "") -> str:
    """Every method; `to` is the way to the folder of their pages."""
    rows = [(f"[{code(m.name)}]({to}{m.name}.md)", m.paper, m.uploads) for m in METHODS.values()]
    return table(("name", "paper", "what is uploaded"), rows)


def noise() -> str:
    """Every method that can be under noise, with what is hidden."""
    rows = [(code(m.name), m.noise) for m in METHODS.values() if m.noise]
    return table(("method", "what is shortened and blurred"), rows)


def families() -> str:
    """Every method with what it does."""
    rows = [(f"[{code(m.name)}]({m.name}.md)", m.family, m.summary) for m in METHODS.values()]
    return table(("name", "family", "what it does"), rows)


def method(name: str) -> str:
    """What is known of one method: its class, paper, uploads, options and own training."""
    about = METHODS[name]
    facts = [
        ("Python", code(f"coterie.{about.cls}")),
        ("paper", about.paper),
        ("family", about.family),
        ("uploads", about.uploads),
        *((f"refuses {code(key)}", why) for key, why in tables.refuses(name).items()),
    ]
    text = table(("", ""), facts)
    own = tables.hyperparameters(name)
    if own:
        text += f"\nIts table in an experiment file is `[{name}]`:\n\n{keys(own)}"
    else:
        text += "\nIt has no table of its own in an experiment file.\n"
    training = ", ".join(f"{k} = {toml.inline(v)}" for k, v in tables.paper(name).items())
    return f'{text}\nIts own training, used with `train.defaults = "paper"`: `{training}`.\n'


def experiment(name: str) -> str:
    """The keys of one table of an experiment file; `top` for those above all tables."""
    return keys(keys_at_top() if name == "top" else keys_of(name))


def partitions(which: str) -> str:
    """Every kind of partition and its fields: `bases` or `modifiers`."""
    text = ""
    for name, cls in kinds.KINDS.items():
        if issubclass(cls, kinds.Modifier) == (which == "modifiers"):
            known = keys_of_kind(cls)
            shown = keys(known) if known else "It has no fields.\n"
            text += f"### `{name}`\n\n{paragraphs(cls)}\n\n{shown}\n"
    return text


def paragraphs(cls: type) -> str:
    """What a class says of itself, without the indentation of its source."""
    return re.sub(r"\n[ ]+", "\n", (cls.__doc__ or "").strip())


def networks() -> str:
    """Every network."""
    rows = [
        (
            code(m.name),
            f"{m.parameters:,}",
            f"{'x'.join(map(str, m.input))}, {m.classes} classes",
            f"images from {m.least}x{m.least}" if m.least else "anything",
            m.summary,
            m.used_by,
            " or ".join(m.norms) or "none",
            ", ".join(map(code, m.options)) or "none",
        )
        for m in zoo.MODELS.values()
    ]
    head = ("name", "parameters", "counted for", "takes", "layers", "used by", "norm", "options")
    return table(head, rows)


def datasets() -> str:
    """Every named set."""
    rows = [
        (
            code(n.name),
            n.description,
            "x".join(map(str, n.shape)) or "by option",
            n.classes,
            "comes with coterie" if n.embedded else "from disk",
        )
        for n in named.NAMED.values()
    ]
    return table(("name", "what", "one sample", "classes", "where from"), rows)


def commands() -> str:
    """The commands that get the named sets."""
    text = ""
    for n in named.NAMED.values():
        if not n.embedded:
            lines = "\n".join(c.replace("{folder}", "~/.cache/coterie") for c in n.commands)
            text += f"`{n.name}`" + " (either of these)" * (len(n.commands) > 1)
            text += f":\n\n```text\n{lines}\n```\n\n"
    return text


def exits() -> str:
    """The exit codes of the command line."""
    rows: list[tuple[object, ...]] = [(0, "", "the command did what it was asked for")]
    for family in dict.fromkeys(f.exit for f in FAMILIES.values()):
        same = {k: f for k, f in FAMILIES.items() if f.exit == family}
        letters = ", ".join(f"{k}..." for k in same)
        rows.append((family, letters, "; ".join(f.title for f in same.values())))
    rows.append((130, "", "interrupted (Ctrl-C or SIGTERM)"))
    return table(
        ("exit code", "codes", "what happened"), sorted(rows, key=lambda r: int(str(r[0])))
    )


def errors() -> str:
    """Every error code under its family."""
    text = ""
    for letter, family in FAMILIES.items():
        text += f"## {letter}: {family.title} (exit code {family.exit})\n\n"
        text += f"{family.explanation} {family.fix}\n\n"
        for name, found in CODES.items():
            if name[0] == letter:
                text += f'<a id="{name}"></a>\n\n### {name}: {found.title}\n\n'
                if found.explanation != family.explanation:
                    text += f"{found.explanation}\n\nWhat to do: {found.fix}\n\n"
    return text


def aliases() -> str:
    """The other names that keys of the experiment file have."""
    from coterie.config.aliases import ALIASES

    homes: dict[str, list[str]] = {}
    for alias, home in ALIASES.items():
        homes.setdefault(".".join(home), []).append(code(alias))
    return table(("key", "also accepted"), [(code(k), ", ".join(v)) for k, v in homes.items()])


def api() -> str:
    """Every public name, for autodoc, where it is at home."""
    import coterie

    text = ""
    for title, names in public(coterie).items():
        text += f"## {title}\n\n```{{eval-rst}}\n"
        text += "".join(autodoc(getattr(coterie, name), name) for name in names)
        text += "```\n\n"
    return text


ALIASED = {  # public names that are no classes of their own, so that they have no docstring
    "dataclass": "The decorator of hyper-parameters: what does not fit its type is refused.",
    "AnswerForm": "A mapping from ``value`` and ``extra.<name>`` to a ``Form``.",
    "Stepwise": "What ``SteppedTask.stepwise`` is: a generator of steps that returns this.",
}


def autodoc(value: object, name: str) -> str:
    """How Sphinx shows a public name; a module is shown with all that is in it."""
    match value:
        case type():
            return f".. autoclass:: coterie.{name}\n"
        case ModuleType():
            # A package shows what its modules define; a module, not what it imports to work with.
            inside = "   :imported-members:\n" if hasattr(value, "__path__") else ""
            return f".. automodule:: {value.__name__}\n   :members:\n{inside}"
        case FunctionType():
            return f".. autofunction:: coterie.{name}\n"
    about = ALIASED[name] if name in ALIASED else describe(value)
    return f".. py:data:: coterie.{name}\n\n   {about}\n\n"


ROOMS = {  # where a public name is at home, and under which heading it stands
    "coterie.tasks": "Tasks, and what they are made of",
    "coterie.words": "Words",
    "coterie.core.bounds": "Types of hyper-parameters",
    "coterie.core.errors": "Errors",
    "coterie.data.kinds": "Partitions",
    "coterie.methods": "Methods",
}


def public(package: Any) -> dict[str, list[str]]:
    """The public names under what they are."""
    found: dict[str, list[str]] = {"What you call": [], "What you hold": []}
    found |= {title: [] for title in ROOMS.values()}
    for name, home in package._HOME.items():
        verb = isinstance(getattr(package, name), FunctionType)
        kind = "What you call" if verb else "What you hold"
        titles = [title for room, title in ROOMS.items() if home.startswith(room)]
        found[titles[0] if titles else kind].append(name)
    return found


def rooms() -> str:
    """Every package in the order of the layers: what lives there, and what it may touch."""
    said = {}
    for file in (ROOT / "src" / "coterie").glob("*/__init__.py"):
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        (may,) = re.findall(r"^May touch: ([^.]*)\.$", text, re.MULTILINE)
        said[file.parent.name] = (text.splitlines()[0], " ".join(may.split()))
    named = {room: set(re.findall(r"\w+", may)) & said.keys() for room, (_, may) in said.items()}
    named["cli"] = said.keys() - {"cli"}  # everything
    order = TopologicalSorter({room: sorted(below) for room, below in sorted(named.items())})
    rows = [(code(f"{room}/"), *said[room]) for room in order.static_order()]
    return table(("package", "what lives there", "may touch"), rows)


def reproduction(name: str) -> str:
    """What was measured of a paper's table, or `overview`: all of them in one."""
    from coterie.studies.reproduction import markdown  # torch comes with it

    folder = DOCS / "results"
    if name == "overview":
        return markdown.overview(folder)
    return markdown.side_by_side(folder, name)


def atlas(part: str) -> str:
    """The grid of the atlas, `kinds` or `methods`; or `results`: what was measured of it."""
    from coterie.studies.atlas import grid

    found = grid.Atlas.load()
    if part == "kinds":
        rows = []
        for name, kind in found.kinds.items():
            held = {found.role(p) for p in found.everywhere if p.kind == name}
            core = dict.fromkeys(f"{p.data} {p.size}" for p in found.places() if p.kind == name)
            rows.append(
                (name, kind.what, code(kind.partition), " or ".join(sorted(held)), ", ".join(core))
            )
        return table(("kind", "what differs", "partition", "for", "core places"), rows)
    if part == "methods":
        tried = [(code(m), code(one.tune), one.revision) for m, one in found.methods.items()]
        return table(("method", "tried", "revision"), tried)
    from coterie.studies.atlas import page, results

    all_of_it = results.Results(found)
    all_of_it.read([file for file in [DOCS / "results" / "atlas.csv"] if file.exists()])
    return page.markdown(all_of_it)


MAKERS: dict[str, Any] = {
    f.__name__: f
    for f in (
        methods,
        noise,
        families,
        method,
        experiment,
        partitions,
        networks,
        datasets,
        commands,
        exits,
        errors,
        aliases,
        api,
        rooms,
        reproduction,
        atlas,
    )
}


def current(text: str) -> str:
    """A page with every block as the code has it now."""

    def made(block: re.Match[str]) -> str:
        name, *arguments = block["call"].split()
        return f"{block[1]}\n{MAKERS[name](*arguments).rstrip()}\n\n{block[3]}"

    return BLOCK.sub(made, text)


def pages() -> list[Path]:
    """Every page that may hold a block."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def main() -> int:
    """Rewrite the pages, or say which are not current."""
    stale = {p: text for p in pages() if (text := current(p.read_text())) != p.read_text()}
    for path, text in stale.items():
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is not current: python docs/make.py")
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return int(bool(stale) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
