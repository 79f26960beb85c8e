"""Pages that are made, not written: policies and environments from their docstrings, the API, and
the project's own files. They go into docs/reference and docs/project, which git does not keep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import balaclava as bl
from api_page import api_page
from balaclava.privacy.guarantee import NOTIONS
from balaclava.testing.examples import USUAL
from docstrings import Docstring, definitions, markdown, parse

ROOT = Path(__file__).parents[2]
PROJECT = {"contributing": "CONTRIBUTING.md", "security": "SECURITY.md", "changes": "CHANGELOG.md"}
REWARDS = {
    "bounded": "in [0, 1], or in a known range that is rescaled to it",
    "real": "any finite number",
    "loss": "losses in [0, 1]",
    "any": "of any kind: it learns from none",
}


def write_pages(app: Sphinx) -> None:
    """All of them, each only if it changed; those of policies that are gone are removed."""
    source = Path(app.srcdir)
    pages = dict(pages_of(source, selection(app)))
    for folder in ("reference", "project"):
        for path in (source / folder).rglob("*.md"):
            if path.relative_to(source).as_posix() not in pages:
                path.unlink()
    for name, text in pages.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def selection(app: Sphinx) -> list[str]:
    """The policies that get a page: all, or for a quick look those of `-D selection=a,b`."""
    names = sorted(entry.name for entry in bl.list_policies())
    chosen = [name for name in app.config.selection.split(",") if name]
    return [name for name in names if name in chosen or not chosen]


def pages_of(source: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Path and text of each."""
    audits = audit_rows((source / "audit.md").read_text(encoding="utf-8"))
    for entry in bl.list_policies():
        if entry.name in names:
            yield f"reference/policies/{entry.name}.md", policy_page(entry.policy, audits)
    for each in bl.list_environments():
        text = declared_page(each.environment, parse(each.environment), [])
        yield f"reference/environments/{each.name}.md", text
    yield "reference/policies.md", policy_table(names)
    yield "reference/environments.md", environment_table()
    yield "reference/api.md", api_page()
    for name, file in PROJECT.items():
        text = (ROOT / file).read_text(encoding="utf-8").replace("](docs/", "](../")
        yield f"project/{name}.md", project_links(text, "")


def project_links(text: str, folder: str) -> str:
    """Links to files of the project lead to their pages."""
    for name, file in PROJECT.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(file)}", f"]({folder}{name}.md", text)
    return text


def read_source(app: Sphinx, name: str, content: list[str]) -> None:
    if "/" not in name:
        content[0] = project_links(content[0], "project/")


def toctree(*names: str) -> str:
    return "\n".join(("```{toctree}", ":hidden:", "", *names, "```"))


def policy_table(names: Sequence[str]) -> str:
    words = "\n".join(
        f"- **{scope}**: {NOTIONS[scope]}" for scope in ("decision", "trajectory", "report")
    )
    parts = [
        "# Policies",
        "The guarantee is a model and a scope. Numbers of policies with different scopes do not "
        "compare: see [concepts](../concepts.md).",
        words,
    ]
    families: dict[str, list[tuple[str, ...]]] = {}
    for entry in sorted(bl.list_policies()):
        family = entry.policy.__module__.split(".")[2].replace("_", " ")
        row = (f"`{entry.name}`", entry.title, entry.guarantee, entry.reference)
        families.setdefault(family, []).append(row)
    for family, rows in sorted(families.items()):
        parts += [f"## {family.capitalize()}"]
        parts += [table(("name", "what it does", "guarantee", "reference"), rows)]
    return "\n\n".join([*parts, toctree(*(f"policies/{name}" for name in names))])


def environment_table() -> str:
    entries = sorted(bl.list_environments())
    rows = [
        (f"[{e.name}](environments/{e.name}.md)", e.title, f"`{e.parameters}`") for e in entries
    ]
    names = toctree(*(f"environments/{entry.name}" for entry in entries))
    return f"# Environments\n\n{table(('name', 'what it is', 'parameters'), rows)}\n\n{names}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def parameter_table(cls: type[Any], words: dict[str, str]) -> str:
    """Name, range, default and meaning of each parameter."""
    rows = [
        (
            f"`{each.name}`",
            each.allowed,
            "required" if each.required else f"`{each.default!r}`",
            words.get(each.name) or each.meaning,
        )
        for each in cls.parameter_list()
    ]
    return table(("name", "allowed", "default", "meaning"), rows)


def audit_rows(text: str) -> dict[str, tuple[str, str]]:
    """From the page with the audits, the header and the row of each policy in its table."""
    header, *rows = [line for line in text.splitlines() if line.startswith("|")] or [""]
    return {row.strip("| ").split(" |")[0]: (header, row) for row in rows[1:]}


def declared_page(
    cls: Any, doc: Docstring, facts: list[tuple[str, str]], audit: Sequence[str] = ()
) -> str:
    """The page of a policy or an environment, section by section."""
    parts = [f"# {cls.name}", doc.title]
    if facts:
        parts.append("\n".join(f"- **{name}**: {words}" for name, words in facts))
    parts.append(markdown(doc.text))
    if "Privacy" in doc.sections:
        parts += ["## Privacy", markdown(doc.sections["Privacy"])]
    if audit:
        parts += ["## Audit", *audit]
    parts += ["## Parameters"]
    parts += [parameter_table(cls, definitions(doc.sections.get("Parameters", "")))]
    if "Example" in doc.sections:
        parts += ["## Example", markdown(doc.sections["Example"])]
    if "References" in doc.sections:
        parts += ["## References", doc.sections["References"]]
    if "See Also" in doc.sections:
        names = re.split(r",\s*", doc.sections["See Also"].strip())
        parts += ["## See also", ", ".join(f"`{name}`" for name in names)]
    module = cls.__module__.replace(".", "/")
    return "\n\n".join([*parts, f"Source: `src/{module}.py`"])


def policy_page(policy: type[bl.Policy], audits: dict[str, tuple[str, str]]) -> str:
    facts = [("guarantee", "none: for comparison, not for private data")]
    if policy.model != "none":
        facts = [("guarantee", f"{policy.model}, {policy.scope}. {NOTIONS[policy.scope]}")]
        facts += [("assumes", words) for words in policy.assumptions]
    facts.append(("rewards", REWARDS[policy.rewards]))
    if policy.lost_reward:
        facts.append(("what never comes", policy.lost_reward))
    if policy.reference:
        facts.append(("reference", policy.reference))
    audit: list[str] = []
    if policy.model != "none":
        command = f"`{audit_command(policy)}`"
        audit = [
            f"Not in the table of [audits](../../audit.md) yet. Put it to the test: {command}."
        ]
    if policy.name in audits:
        header, row = audits[policy.name]
        rule = "|" + "---|" * (header.count("|") - 1)
        audit = [
            "\n".join((header, rule, row)),
            f"At two arms; the [whole report](../../audit.md#{policy.name}) says which events were "
            "played, and [privacy](../../privacy.md#audits) what an audit can show. Put it to the "
            f"test yourself: {command}.",
        ]
    return declared_page(policy, parse(policy), facts, audit)


def audit_command(policy: type[bl.Policy]) -> str:
    """How to audit a policy, with a value for everything that it requires."""
    parameters = {
        each.name: USUAL.get(each.name) for each in policy.parameter_list() if each.required
    }
    parameters |= policy.examples[0]
    if "base" in parameters:
        experts = ", experts=3" if "experts" in parameters else ""
        return f"bl.audit(bl.privatise(base, epsilon=1.0{experts}))"
    loss = " --epsilon 1" if "epsilon" in policy.annotations else " --arms 2"
    command = f"balaclava audit {policy.name}{loss}"
    for name, value in parameters.items():
        if name in ("delta", "horizon"):
            command += f" --{name} {value}"
        elif name not in ("arms", "epsilon"):
            command += f" --set {name}={json.dumps(value)}"
    return command


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("selection", "", "env", str)
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
