"""Write the pages of policies, environments and project files before Sphinx reads them.

They are written to docs/reference and docs/project, which git ignores.
"""

from __future__ import annotations

import json
import re
import shlex
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import balaclava as bl
from balaclava.auditing.proof_notes import ProofNote, covered_policies, proof_notes, proof_of
from balaclava.privacy.guarantee import NOTIONS
from balaclava.testing.examples import USUAL_PARAMETERS

ROOT = Path(__file__).parents[2]
PROJECT = {"contributing": "CONTRIBUTING.md", "security": "SECURITY.md", "changes": "CHANGELOG.md"}
REWARDS = {
    "bounded": "in [0, 1], or in a known range that is rescaled to it",
    "real": "any finite number",
    "loss": "losses in [0, 1]",
    "any": "of any kind: it does not learn",
}


def write_pages(app: Sphinx) -> None:
    """Write each page that changed; remove those of policies that no longer exist."""
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
    """Policies that get a page: all, or those of `-D selection=a,b` for a quick build."""
    names = sorted(entry.name for entry in bl.list_policies())
    chosen = [name for name in app.config.selection.split(",") if name]
    return [name for name in names if name in chosen or not chosen]


def pages_of(source: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Path and text of each page."""
    audits = audit_rows((source / "audit.md").read_text(encoding="utf-8"))
    for entry in bl.list_policies():
        if entry.name in names:
            yield f"reference/policies/{entry.name}.md", policy_page(entry.policy, audits)
    for each in bl.list_environments():
        yield f"reference/environments/{each.name}.md", page(each.environment, [])
    for note in proof_notes().values():
        yield f"reference/proofs/{note.name}.md", proof_page(note, names)
    yield "reference/proofs.md", proof_list()
    yield "reference/policies.md", policy_list(names)
    yield "reference/environments.md", environment_list()
    yield "reference/authoring.md", authoring_list()
    for name, file in PROJECT.items():
        text = (ROOT / file).read_text(encoding="utf-8").replace("](docs/", "](../")
        yield f"project/{name}.md", project_links(text, "")


def project_links(text: str, folder: str) -> str:
    """Point links to files of the project at their pages."""
    for name, file in PROJECT.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(file)}", f"]({folder}{name}.md", text)
    return text


def read_source(app: Sphinx, name: str, content: list[str]) -> None:
    if "/" not in name:
        content[0] = project_links(content[0], "project/")


def page(cls: Any, facts: Sequence[str], audit: Sequence[str] = ()) -> str:
    """Facts, the docstring by autodoc, the declared parameters and the audit."""
    home = f"{cls.__module__}.{cls.__name__}"
    parts = [
        f"# {cls.name}",
        *facts,
        f"```{{eval-rst}}\n.. autoclass:: {home}\n   :no-index:\n```",
        "## Declared parameters",
        table(("name", "allowed", "default", "meaning"), map(parameter_row, cls.parameter_list())),
        *audit,
        f"Source: `src/{cls.__module__.replace('.', '/')}.py`",
    ]
    return "\n\n".join(parts)


def parameter_row(each: Any) -> tuple[str, ...]:
    default = "required" if each.required else f"`{each.default!r}`"
    return f"`{each.name}`", each.allowed, default, each.meaning


def policy_page(policy: type[bl.Policy], audits: dict[str, str]) -> str:
    facts = ["**guarantee**: none, for comparison only"]
    if policy.model != "none":
        facts = [f"**guarantee**: {policy.model}, {policy.scope}. {NOTIONS[policy.scope]}"]
        facts += [f"**assumes**: {words}" for words in policy.assumptions]
    if note := proof_of(policy):
        facts.append(f"**proof**: [{note.title}](../proofs/{note.name}.md)")
    facts.append(f"**rewards**: {REWARDS[policy.rewards]}")
    if policy.lost_reward:
        facts.append(f"**a lost reward** {policy.lost_reward}")
    parts = ["\n".join(f"- {fact}" for fact in facts)]
    if policy.model != "none":
        result = audits.get(policy.name, "Not in the table of [audits](../../audit.md) yet.")
        parts += ["## Audit", result, f"Repeat it: `{audit_command(policy)}`."]
    return page(policy, parts[:1], parts[1:])


def audit_rows(text: str) -> dict[str, str]:
    """The row of each policy in the table of audits, with its header and a link."""
    header, *rows = [line for line in text.splitlines() if line.startswith("|")] or [""]
    rule = "|" + "---|" * (header.count("|") - 1)
    return {
        name: f"{header}\n{rule}\n{row}\n\nPlayed with two arms: "
        f"[full report](../../audit.md#{name}), [what an audit can show](../../privacy.md#audits)."
        for row in rows[1:]
        if row.count("|") == header.count("|")  # not of the other tables
        for name in (row.strip("| ").split(" |")[0],)
    }


def audit_command(policy: type[bl.Policy]) -> str:
    """The command that audits a policy, with a value for every required parameter."""
    parameters = {
        each.name: USUAL_PARAMETERS.get(each.name)
        for each in policy.parameter_list()
        if each.required
    }
    parameters |= policy.examples[0]
    if policy.name.startswith("privatised"):  # made in Python
        experts = ", experts=3" if "experts" in parameters else ""
        return f"bl.audit(bl.privatise(base, epsilon=1.0{experts}))"
    command = f"balaclava audit {policy.name}"
    command += " --epsilon 1" if "epsilon" in policy.annotations else " --arms 2"
    for name, value in parameters.items():
        if name in ("delta", "horizon"):
            command += f" --{name} {value}"
        elif name not in ("arms", "epsilon"):
            command += f" --set {shlex.quote(f'{name}={json.dumps(value)}')}"
    return command


def policy_list(names: Sequence[str]) -> str:
    parts = [
        "# Policies",
        "The guarantee is a model and a scope. Do not compare numbers of policies with different "
        "scopes: see [concepts](../concepts.md).",
        "\n".join(f"- **{scope}**: {NOTIONS[scope]}" for scope in NOTIONS if scope != "none"),
    ]
    families: dict[str, list[tuple[str, ...]]] = {}
    for entry in sorted(bl.list_policies()):
        family = entry.policy.__module__.split(".")[2].replace("_", " ")
        row = (f"`{entry.name}`", entry.title, entry.guarantee, entry.reference)
        families.setdefault(family, []).append(row)
    for family, rows in sorted(families.items()):
        parts += [f"## {family.capitalize()}"]
        parts += [table(("name", "what it does", "guarantee", "reference"), rows)]
    return "\n\n".join([*parts, toctree("policies", names)])


def proof_page(note: ProofNote, names: Sequence[str]) -> str:
    """A proof note, with links to those that it uses and to the policies that it is for."""
    used = ", ".join(f"[{proof_notes()[name].title}]({name}.md)" for name in note.uses)
    text = re.sub(r"^- Uses: .+$", f"- Uses: {used or 'nothing'}", note.text, flags=re.MULTILINE)
    covered = [name for name in covered_policies().get(note.name, []) if name in names]
    links = ", ".join(f"[{name}](../policies/{name}.md)" for name in covered)
    policies = f"\n- Policies: {links}" if links else ""
    return re.sub(r"^(- Derived by: .+)$", rf"\1{policies}", text, flags=re.MULTILINE)


def proof_list() -> str:
    rows = [
        (f"[{note.title}](proofs/{note.name}.md)", str(len(note.steps)), note.derived_by)
        for note in proof_notes().values()
    ]
    text = "The form of a proof, and what counting them can show: [proofs](../privacy.md#proofs)."
    listed = table(("proof", "steps", "also derived by"), rows)
    return f"# Proofs of privacy\n\n{text}\n\n{listed}\n\n{toctree('proofs', list(proof_notes()))}"


def environment_list() -> str:
    entries = sorted(bl.list_environments())
    rows = [
        (f"[{e.name}](environments/{e.name}.md)", e.title, f"`{e.parameters}`") for e in entries
    ]
    names = toctree("environments", [entry.name for entry in entries])
    return f"# Environments\n\n{table(('name', 'rewards', 'parameters'), rows)}\n\n{names}"


def authoring_list() -> str:
    """Names of `balaclava.authoring`, each with the first line of its docstring."""
    rows = []
    for name in bl.authoring.__all__:
        thing = getattr(bl.authoring, name)
        declared = getattr(thing, "__metadata__", ())[:1]  # a kind of parameter
        documented = isinstance(thing, type | types.FunctionType | types.ModuleType)
        title = (thing.__doc__ or "").strip().partition("\n")[0] if documented else ""
        rows.append((f"`{name}`", declared[0].meaning if declared else title))
    return f"---\norphan: true\n---\n\n# Names for authors\n\n{table(('name', 'what it is'), rows)}"


def toctree(folder: str, names: Sequence[str]) -> str:
    return "\n".join(("```{toctree}", ":hidden:", "", *(f"{folder}/{n}" for n in names), "```"))


def table(header: tuple[str, ...], rows: Any) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("selection", "", "env", str)
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
