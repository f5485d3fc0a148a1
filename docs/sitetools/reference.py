"""The reference pages, from names, signatures, declared inputs and docstrings. They are made when the site is built.

A page is a list of modules or of resolvers. A module's page shows its public names; a resolver's shows what it
declares: inputs with range and default, outputs with unit, equations, fallacies. Nothing is written twice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import mlsysim
from mlsysim.search import OPTIMIZERS
from mlsysim.walls.base import Resolver
from mlsysim.walls.catalog import DOMAINS, RESOLVERS, resolver, walls
from mlsysim.walls.result import Result
from mlsysim.zoo.registry import Registry

__all__ = ["PAGES", "Page", "render", "resolver_section", "sentence", "wall_pages"]


@dataclass(frozen=True)
class Page:
    """A page of the reference: its name, title, what it is for, and the modules whose public names it shows."""

    name: str
    title: str
    about: str
    modules: tuple[str, ...] = ()
    domain: str = ""


_MODULES = (
    Page(
        "plans",
        "Plans and answers",
        "A plan in, an answer out: what the command line, files, reports, servers and the explorer ask.",
        (
            "mlsysim.plans.plan",
            "mlsysim.plans.files",
            "mlsysim.plans.evaluate",
            "mlsysim.plans.answer",
            "mlsysim.plans.audit",
            "mlsysim.plans.compare",
            "mlsysim.plans.changes",
            "mlsysim.plans.sensitivities",
            "mlsysim.plans.least_fleet",
            "mlsysim.systems.fleet_text",
            "mlsysim.plans.resolve",
        ),
    ),
    Page(
        "simulate",
        "Simulation",
        "What happens over time: requests that are drawn or were recorded.",
        ("mlsysim.simulate.requests", "mlsysim.simulate.traffic", "mlsysim.simulate.traces"),
    ),
    Page(
        "engine",
        "Scenarios and pipelines",
        "Several walls together: scenarios in three levels, chains of resolvers, explanations.",
        (
            "mlsysim.engine.scenario",
            "mlsysim.engine.evaluation",
            "mlsysim.engine.engine",
            "mlsysim.engine.pipeline",
            "mlsysim.engine.explain",
            "mlsysim.walls.catalog",
            "mlsysim.walls.base",
            "mlsysim.walls.inputs",
            "mlsysim.walls.result",
        ),
    ),
    Page(
        "search",
        "Search",
        "Spaces, sweeps, the best point, fronts and the three optimizers.",
        ("mlsysim.search.space", "mlsysim.search.sweep", "mlsysim.search.optimize"),
    ),
    Page(
        "zoo",
        "Models, hardware, places, systems",
        "The types of the four layers and the registries that hold their entries.",
        (
            "mlsysim.zoo.registry",
            "mlsysim.models.types",
            "mlsysim.hardware.types",
            "mlsysim.infra.types",
            "mlsysim.systems.types",
            "mlsysim.zoo.provenance",
        ),
    ),
    Page(
        "units",
        "Units, uncertainty, errors",
        "Quantities that carry dimensions, ranges and distributions, kernels, and everything that is raised.",
        (
            "mlsysim.units.registry",
            "mlsysim.units.fields",
            "mlsysim.units.kernel",
            "mlsysim.units.uncertain",
            "mlsysim.units.uncertain",
            "mlsysim.walls.uncertain_result",
            "mlsysim.errors",
        ),
    ),
    Page(
        "importers",
        "Importers",
        "Models from configuration files, folders and graphs, and your own zoo.",
        ("mlsysim.importers.model", "mlsysim.importers.hf", "mlsysim.importers.report", "mlsysim.importers.user_zoo"),
    ),
    Page(
        "calibrate",
        "Calibration and validation",
        "Scores against tables of measurements, fits of your own chip, predictions beside measurements.",
        (
            "mlsysim.calibrate.validate",
            "mlsysim.calibrate.questions",
            "mlsysim.calibrate.user",
            "mlsysim.calibrate.measure",
            "mlsysim.calibrate.verify",
        ),
    ),
    Page(
        "faces",
        "Figures, reports, launch files, servers, labs",
        "What is made from an answer.",
        (
            "mlsysim.plot",
            "mlsysim.report.build",
            "mlsysim.report.write",
            "mlsysim.launch.targets",
            "mlsysim.launch.review",
            "mlsysim.api.service",
            "mlsysim.api.requests",
            "mlsysim.labs.lab",
            "mlsysim.labs.grading",
            "mlsysim.labs.codes",
            "mlsysim.labs.build",
            "mlsysim.show",
        ),
    ),
)

PAGES: tuple[Page, ...] = (
    Page("index", "Reference", "Every public name."),
    *(
        Page(
            f"resolvers-{domain.name.lower()}",
            f"{domain.name} resolvers",
            f"Walls of {domain.title}.",
            domain=domain.name,
        )
        for domain in DOMAINS
    ),
    *_MODULES,
)


def render(page: Page) -> str:
    """A page as Markdown."""
    if page.name == "index":
        return _index()
    lines = [f"# {page.title}", "", page.about, ""]
    if page.domain:
        for name in _resolvers_of(page.domain):
            lines += resolver_section(resolver(name))
    else:
        for module in page.modules:
            lines += _module(module)
    if page.name == "search":
        for name, home in OPTIMIZERS.items():
            lines += resolver_section(getattr(import_module(home), name))
    return "\n".join(lines).rstrip() + "\n"


def _resolvers_of(domain: str) -> list[str]:
    numbers = {card.number for card in walls() if card.domain.name == domain}
    return [name for name in RESOLVERS if numbers.intersection(resolver(name).walls)]


def _homes() -> Iterator[tuple[str, Page]]:
    """Every public name of the package with the page that has it."""
    for page in PAGES:
        if page.domain:
            for name in _resolvers_of(page.domain):
                yield name, page
        for module in page.modules:
            for name, _ in _members(module):
                yield name, page
        if page.name == "search":
            for name in OPTIMIZERS:
                yield name, page


def _index() -> str:
    where: dict[str, Page] = {}
    for name, page in _homes():
        where.setdefault(name, page)
    lines = [
        "# Reference",
        "",
        "Made from the package when the site is built. `from mlsysim import NAME` works for every name of the second table;",
        "it is loaded when it is first used.",
        "",
        "| page | what is there |",
        "|---|---|",
        *(f"| [{page.title}]({page.name}.md) | {page.about} |" for page in PAGES[1:]),
        "",
        "## Public names",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for name in mlsysim.__all__:
        if name.startswith("__"):
            continue
        value = getattr(mlsysim, name)
        home = where.get(name)
        shown = f"[`{name}`]({home.name}.md#{name.lower()})" if home else f"`{name}`"
        lines.append(f"| {shown} | {_cell(_about(value))} |")
    return "\n".join(lines) + "\n"


def _about(value: Any) -> str:
    """One line about a public name."""
    if isinstance(value, Registry):
        return f"a registry of {len(value)} entries"
    if hasattr(value, "keys") and not inspect.isclass(value):
        return "by name: " + ", ".join(f"`{key}`" for key in list(value.keys())[:8])
    doc = inspect.getdoc(value) if inspect.isclass(value) or callable(value) else inspect.getdoc(type(value))
    return sentence(doc or "")


def sentence(doc: str) -> str:
    """The first sentence of a docstring, on one line."""
    first = " ".join(doc.split("\n\n")[0].split())
    match = re.match(r"(.+?[.?!])(?:\s|$)", first)
    return _markup(match[1] if match else first)


def _markup(text: str) -> str:
    """Docstrings' roles and double backticks as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _doc(value: Any) -> list[str]:
    doc = inspect.getdoc(value)
    return [_paragraphs(doc), ""] if doc else []


def _paragraphs(doc: str) -> str:
    """A docstring as Markdown: indented paragraphs and doctests are code."""
    out = []
    for paragraph in re.split(r"\n\s*\n", doc):
        if paragraph.startswith((" ", "\t", ">>>")):
            code = inspect.cleandoc("x\n" + paragraph)[2:] if not paragraph.startswith(">>>") else paragraph
            out.append(f"```pycon\n{code}\n```" if code.startswith(">>>") else f"```text\n{code}\n```")
        else:
            # A list below a sentence needs a blank line before it; aligned columns inside a paragraph are code.
            lines = paragraph.split("\n")
            prose = [line for line in lines if not line.startswith("    ")]
            aligned = [line for line in lines if line.startswith("    ")]
            text = _markup("\n".join(prose)).replace("$", r"\$").replace("<", "&lt;")
            out.append(text if not aligned else f"{text}\n\n```text\n" + inspect.cleandoc("\n".join(aligned)) + "\n```")
    return "\n\n".join(out)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", r"\|").replace("$", r"\$").replace("<", "&lt;")


def _members(module_name: str) -> list[tuple[str, Any]]:
    """Classes and functions that a module offers: those that ``__all__`` lists, else its own without an underscore."""
    module = import_module(module_name)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
    names = getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]
    found = [(name, getattr(module, name)) for name in names]
    return [(name, value) for name, value in found if inspect.isclass(value) or inspect.isroutine(value)]


def _module(module_name: str) -> list[str]:
    members = _members(module_name)
    module = import_module(module_name)
    lines = [f"## {module_name}", "", *_doc(module)]
    for name, value in members:
        lines += _class(name, value) if inspect.isclass(value) else _function(name, value)
    return lines


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = list(signature.parameters.values())
    parts = [_parameter(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = signature.return_annotation
    arrow = "" if returns in (inspect.Signature.empty, None, "None") else f" -> {_type_text(returns)}"
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){arrow}"
    return line


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    empty = inspect.Parameter.empty
    kind = "" if parameter.annotation is empty else f": {_type_text(parameter.annotation)}"
    # A default that has no literal is left to the docstring.
    shown = "" if parameter.default is empty else f" = {re.sub(r'<.*>', '...', repr(parameter.default))}"
    return f"{stars}{parameter.name}{kind}{shown}"


def _function(name: str, value: Any, level: int = 3) -> list[str]:
    return [f"{'#' * level} {name}", "", "```python", _signature(name, value), "```", "", *_doc(value)]


def _class(name: str, value: type) -> list[str]:
    bases = [base.__name__ for base in value.__bases__ if base not in (object, Exception)]
    lines = [f"### {name}", ""]
    fields = getattr(value, "model_fields", None)
    if fields is None and not issubclass(value, Exception) and "__init__" in value.__dict__:
        lines += ["```python", _signature(name, value), "```", ""]
    elif bases and bases[0] not in ("BaseModel", "Record"):
        lines += [f"A `{bases[0]}`.", ""]
    own = value.__dict__.get("__doc__")
    if own:
        lines += [_paragraphs(inspect.cleandoc(own)), ""]
    if fields:
        lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
        for field_name, field in fields.items():
            default = "required" if field.is_required() else _default(field)
            kind = _type_text(field.annotation, field.metadata)
            lines.append(f"| `{field_name}` | {_cell(kind)} | {_cell(default)} | {_cell(field.description or '')} |")
        lines.append("")
    methods = [
        (method, member)
        for method, member in value.__dict__.items()
        if not method.startswith("_") and method not in ("model_config", "model_post_init") and _documented(member)
    ]
    if methods:
        lines += ["| method or property | what it gives |", "|---|---|"]
        for method, member in methods:
            shown = _call(method, member)
            lines.append(f"| `{_cell(shown)}` | {_cell(sentence(inspect.getdoc(_function_of(member)) or ''))} |")
        lines.append("")
    return lines


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", getattr(member, "func", member))


def _documented(member: Any) -> bool:
    function = _function_of(member)
    return callable(function) and not inspect.isclass(function) and bool(inspect.getdoc(function))


def _call(name: str, member: Any) -> str:
    if isinstance(member, property) or type(member).__name__ == "cached_property":
        return name
    function = _function_of(member)
    try:
        names = [p.name for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    except (TypeError, ValueError):
        names = ["..."]
    return f"{name}({', '.join(names)})"


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return "empty"
    value = field.default
    if value is None or value in ((), {}, ""):
        return "–"
    return f"`{value!r}`" if not hasattr(value, "units") else f"`{value:~P}`"


def _type_text(annotation: Any, metadata: Any = ()) -> str:
    """An annotation in words; a quantity is named by its unit."""
    for mark in metadata:
        if hasattr(mark, "unit"):
            return f"quantity in {mark.unit}" if mark.unit else "number"
    origin = get_origin(annotation)
    if origin is Annotated:
        kind, *marks = get_args(annotation)
        return _type_text(kind, marks)
    if origin in (Union, UnionType):
        return " or ".join(_type_text(part) for part in get_args(annotation) if part is not type(None))
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if isinstance(annotation, str):
        return annotation
    if annotation is None:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if inspect.isclass(origin) and get_args(annotation):
        return f"{origin.__name__}[{', '.join(map(_type_text, get_args(annotation)))}]"
    if inspect.isclass(annotation):
        return annotation.__name__
    return re.sub(r"\b(?:typing|collections\.abc|mlsysim)(?:\.\w+)*\.(?=\w)", "", str(annotation))


def resolver_section(cls: type[Resolver[Any]]) -> list[str]:
    """What a resolver declares."""
    cards = {card.number: card for card in walls()}
    about = ", ".join(f"[wall {number}, {cards[number].name}](../walls/{_wall_page(number)})" for number in cls.walls)
    lines = [f"## {cls.__name__}", "", f"`{cls.__module__}`, a {cls.resolver_type()}: {about}.", "", *_doc(cls)]
    lines += ["**Inputs**", "", "| input | meaning | range | default |", "|---|---|---|---|"]
    for name, spec in cls.inputs.items():
        default = "required" if spec.required else "–" if spec.default is None else spec.default_text
        lines.append(f"| `{name}` | {_cell(spec.meaning)} | {_cell(_range(spec))} | {_cell(default)} |")
    lines += ["", "**Outputs**", "", "| output | type |", "|---|---|"]
    for name, field in cls.result.model_fields.items():
        if name not in Result.model_fields:
            lines.append(f"| `{name}` | {_cell(_type_text(field.annotation, field.metadata))} |")
    lines += ["", "Beside these every result has `feasible`, `binding` and `assumptions`.", ""]
    if cls.equations:
        lines += ["**Equations**", ""]
        for equation in cls.equations:
            lines += [f"`{equation.gives}`", "", f"$${equation.latex}$$", ""]
    return lines


def wall_pages() -> dict[str, str]:
    """Titles in the navigation and paths of the walls' pages, in order; every wall has one."""
    return {f"{card.number} {card.name}": f"walls/{_wall_page(card.number)}" for card in walls()}


def _wall_page(number: int) -> str:
    (page,) = (Path(__file__).parents[1] / "walls").glob(f"{number:02}-*.md")
    return page.name


def _range(spec: Any) -> str:
    if spec.kind == "choice" or (spec.choices and spec.kind != "efficiency"):
        return " or ".join(f"`{choice}`" for choice in spec.choices)
    if spec.kind in ("number", "quantity", "efficiency"):
        return spec.range_text + (f", or {spec.choices[0]!r}" if spec.choices else "")
    return {"flag": "yes or no"}.get(spec.kind, spec.kind)
