"""Build the documentation as a static site: `python docs/build.py site`.

Pages come from docs/*.md, CONTRIBUTING.md, SECURITY.md and the docstrings. Nothing is fetched, and
the pages fetch nothing but the pictures of the gallery: one style sheet is part of each.
"""

from __future__ import annotations

import html
import inspect
import json
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ForwardRef

from docstrings import Docstring, definitions, markdown, parse
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

import balaclava as bl
from balaclava.privacy.guarantee import NOTIONS
from balaclava.testing.examples import USUAL

DOCS = Path(__file__).parent
GUIDES = (
    *("index", "tutorial", "quickstart", "authoring", "concepts", "contextual", "privacy"),
    *("scaling", "service", "operate", "capacity"),
    *("gallery", "audit", "papers", "errata", "design"),
)
REWARDS = {
    "bounded": "in [0, 1], or in a known range that is rescaled to it",
    "real": "any finite number",
    "loss": "losses in [0, 1]",
    "any": "of any kind: it learns from none",
}

CSS = """
:root { --ink: #1c2024; --paper: #fff; --soft: #f4f5f7; --line: #d9dde2; --link: #0b57a4; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
.page { display: flex; max-width: 72rem; margin: 0 auto; }
nav { flex: 0 0 15rem; padding: 1.5rem 1rem; border-right: 1px solid var(--line);
  position: sticky; top: 0; max-height: 100vh; overflow-y: auto; font-size: .92rem; }
nav ul { list-style: none; margin: 0 0 .8rem; padding: 0; }
nav a { display: block; padding: .1rem 0; text-decoration: none; }
nav a[aria-current] { font-weight: 650; color: var(--ink); }
nav summary { cursor: pointer; color: var(--ink); padding: .1rem 0; }
nav details ul { padding-left: .9rem; }
main { flex: 1; min-width: 0; padding: 1.5rem 2rem 4rem; max-width: 52rem; }
a { color: var(--link); }
h1, h2, h3, h4 { line-height: 1.25; margin: 2rem 0 .6rem; }
h1 { margin-top: 0; font-size: 1.9rem; } h2 { font-size: 1.35rem; } h3 { font-size: 1.1rem; }
code, pre { font: .88em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { background: var(--soft); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: 5px; overflow-x: auto; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem 0;
  border-bottom: 1px solid var(--line); }
td code { overflow-wrap: normal; white-space: nowrap; }
.wide img { display: block; width: 100%; min-width: 44rem; background: #fff; }
@media (max-width: 48rem) {
  .page { display: block; }
  nav { position: static; max-height: none; border-right: 0; border-bottom: 1px solid var(--line);
    padding: .8rem 1rem; }
  nav > ul { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: 0; }
  nav details ul { max-height: 7rem; overflow-y: auto; }
  main { padding: 1.2rem 1rem 3rem; }
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --paper: #15181b; --soft: #202428; --line: #363c42; --link: #7cb7f5; }
}
"""


def style_sheet() -> str:
    """The one style sheet, code colours included, for light and dark screens."""
    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    plain = ".code { background: var(--soft); }"
    return f"{CSS}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{plain}"


def highlighted(code: str, language: str, _: str) -> str:
    """A code block in colour; "" leaves it to the renderer."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return f'<pre class="code">{highlight(code, lexer, HtmlFormatter(nowrap=True))}</pre>'


def slug(text: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


class Site:
    """The pages, by path, and what they share."""

    def __init__(self) -> None:
        self.policies = {entry.name: entry.policy for entry in sorted(bl.list_policies())}
        self.environments = {
            entry.name: entry.environment for entry in sorted(bl.list_environments())
        }
        self.homes = {name: f"policies/{name}.html" for name in self.policies}
        self.homes |= {name: f"environments/{name}.html" for name in self.environments}
        self.guides = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in GUIDES}
        for name in ("contributing", "security"):
            text = (DOCS.parent / f"{name.upper()}.md").read_text(encoding="utf-8")
            self.guides[name] = text
        self.audits = audit_rows(self.guides["audit"])
        self.style = style_sheet()
        self.parser = MarkdownIt("commonmark", {"html": False, "highlight": highlighted})
        self.parser.enable("table")

    def pages(self) -> Iterator[tuple[str, str]]:
        """Every page as path and HTML."""
        for name, text in self.guides.items():
            yield self.page(f"{name}.html", text)
        yield self.page("policies.html", self.policy_table())
        yield self.page("environments.html", self.environment_table())
        yield self.page("api.html", "\n\n".join(api()))
        for name, policy in self.policies.items():
            yield self.page(self.homes[name], policy_page(policy, self.audits))
        for name, environment in self.environments.items():
            yield self.page(self.homes[name], environment_page(environment))

    def policy_table(self) -> str:
        words = "\n".join(
            f"- **{scope}**: {NOTIONS[scope]}" for scope in ("decision", "trajectory", "report")
        )
        parts = [
            "# Policies",
            "The guarantee is a model and a scope. Numbers of policies with different scopes do "
            "not compare: see [concepts](concepts.md).",
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
        return "\n\n".join(parts)

    def environment_table(self) -> str:
        rows = [
            (f"`{entry.name}`", entry.title, f"`{entry.parameters}`")
            for entry in sorted(bl.list_environments())
        ]
        return "# Environments\n\n" + table(("name", "what it is", "parameters"), rows)

    def page(self, path: str, text: str) -> tuple[str, str]:
        """One page around some Markdown."""
        up = "../" * path.count("/")
        tokens = self.parser.parse(text)
        title = "balaclava"
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                words = "".join(part.content for part in tokens[i + 1].children or [])
                token.attrSet("id", slug(words))
                if token.tag == "h1":
                    title = words
            if token.type == "inline":
                token.children = list(self.linked(token.children or [], path, up))
        body = self.parser.renderer.render(tokens, self.parser.options, {})
        body = body.replace("<table>", '<div class="wide"><table>')
        body = body.replace("</table>", "</table></div>")
        body = re.sub(
            r'<p><img src="([^"]*)" alt="([^"]*)" /></p>',
            r'<div class="wide"><a href="\1"><img src="\1" alt="\2" loading="lazy"></a></div>',
            body,
        )
        heading = title if title == "balaclava" else f"{title} - balaclava"
        return path, (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(heading)}</title><style>{self.style}</style></head>\n"
            f'<body><div class="page">{self.navigation(path, up)}<main>\n{body}</main></div>'
            "</body></html>\n"
        )

    def linked(self, tokens: list[Token], path: str, up: str) -> Iterator[Token]:
        """Links to .md files lead to pages; the name of a policy leads to its page."""
        inside = False
        for token in tokens:
            if token.type == "link_open":
                inside = True
                target = str(token.attrGet("href"))
                token.attrSet("href", re.sub(r"^(?:\.\./|docs/)?(\w+)\.md", _page_of(up), target))
            elif token.type == "link_close":
                inside = False
            for part in [token] if inside else self.named(token):
                home = self.homes.get(part.content)
                if inside or home in (None, path):
                    yield part
                else:
                    yield Token("link_open", "a", 1, attrs={"href": f"{up}{home}"})
                    yield part
                    yield Token("link_close", "a", -1)

    def named(self, token: Token) -> Iterator[Token]:
        """The token, cut up where its text has a policy's name with a hyphen in it."""
        if token.type != "text":
            yield token
            return
        known = "|".join(re.escape(name) for name in self.policies if "-" in name)
        for words in re.split(rf"(?<![\w-])({known})(?![\w-])", token.content):
            yield Token("text", "", 0, content=words)

    def navigation(self, here: str, up: str) -> str:
        """Every page within reach; the long lists fold away."""

        def link(path: str, words: str) -> str:
            current = ' aria-current="page"' if path == here else ""
            return f'<li><a href="{up}{path}"{current}>{html.escape(words)}</a></li>'

        def group(path: str, words: str, names: dict[str, Any]) -> str:
            folder = path.removesuffix(".html")
            unfolded = " open" if here == path or here.startswith(f"{folder}/") else ""
            links = "".join(link(self.homes[name], name) for name in names)
            return (
                f"<li><details{unfolded}><summary>{words}</summary><ul>"
                f"{link(path, 'all')}{links}</ul></details></li>"
            )

        titles = {"index": "balaclava", "audit": "audit table", "api": "API"}
        guides = "".join(link(f"{name}.html", titles.get(name, name)) for name in self.guides)
        return (
            f"<nav><ul>{guides}{link('api.html', 'API')}"
            f"{group('policies.html', 'policies', self.policies)}"
            f"{group('environments.html', 'environments', self.environments)}</ul></nav>"
        )


def _page_of(up: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{up}{match[1].lower()}.html"


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
        parts.append(table(("", ""), [(f"**{name}**", words) for name, words in facts]))
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
        audit = [f"Not in the table of [audits](audit.md) yet. Put it to the test: {command}."]
    if policy.name in audits:
        header, row = audits[policy.name]
        rule = "|" + "---|" * (header.count("|") - 1)
        audit = [
            "\n".join((header, rule, row)),
            f"At two arms; the [whole report](audit.md#{slug(policy.name)}) says which events were "
            "played, and [privacy](privacy.md#audits) what an audit can show. Put it to the test "
            f"yourself: {command}.",
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


def environment_page(environment: type[bl.Environment]) -> str:
    return declared_page(environment, parse(environment), [])


def api() -> Iterator[str]:
    """The public names, each with its signature and docstring."""
    yield "# API"
    yield "Everything in `import balaclava as bl`, in alphabetical order."
    for name in bl.__all__:
        thing = getattr(bl, name)
        if isinstance(thing, types.ModuleType):
            yield f"## bl.{name}"
            yield parse(thing).title
            yield "\n".join(contents(thing))
        else:
            yield from api_entry(f"bl.{name}", thing, "##")


def contents(module: types.ModuleType) -> Iterator[str]:
    """What a module offers, each with a line about it where there is one."""
    own = [
        label
        for label, thing in vars(module).items()
        if isinstance(thing, type) and thing.__module__ == module.__name__
    ]
    for label in getattr(module, "__all__", own):
        thing = getattr(module, label)
        words = parse(thing).title if isinstance(thing, type | types.FunctionType) else ""
        for declared in getattr(thing, "__metadata__", ())[:1]:  # a kind of parameter
            words = declared.meaning
        yield f"- `{label}`: {words}" if words else f"- `{label}`"


def api_entry(label: str, thing: Any, level: str) -> Iterator[str]:
    yield f"{level} {label}"
    yield f"```python\n{signature(label, thing)}\n```"
    doc = parse(thing)
    yield f"{doc.title}\n\n{markdown(doc.text)}"
    for name, text in doc.sections.items():
        yield f"**{name}**"
        if name in ("Args", "Parameters", "Raises"):
            yield "\n".join(f"- `{key}`: {words}" for key, words in definitions(text).items())
        else:
            yield markdown(text)
    if isinstance(thing, type):
        for name, member in vars(thing).items():
            public = not name.startswith("_") and inspect.getdoc(member)
            if public and isinstance(member, types.FunctionType):
                yield from api_entry(f"{label}.{name}", member, "###")
            elif public and isinstance(member, property):
                yield f"### {label}.{name}"
                yield str(inspect.getdoc(member))


def signature(label: str, thing: Any) -> str:
    """How a thing is called, on one line if it fits."""
    try:
        shape = inspect.signature(thing)
    except (TypeError, ValueError):
        return label
    arguments, starred = [], False
    for parameter in shape.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            arguments.append("*")
            starred = True
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        words = stars + parameter.name
        if parameter.annotation is not parameter.empty:
            words += f": {annotation_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            default = repr(parameter.default)
            words += f" = {'...' if default.startswith('<') else default}"
        arguments.append(words)
    result = ""
    if not isinstance(thing, type) and shape.return_annotation is not shape.empty:
        result = f" -> {annotation_text(shape.return_annotation)}"
    line = f"{label}({', '.join(arguments)}){result}"
    if len(line) <= 88:
        return line
    return f"{label}(\n" + "".join(f"    {words},\n" for words in arguments) + f"){result}"


def annotation_text(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def main(out: str) -> None:
    site = Path(out)
    count = 0
    for path, text in Site().pages():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        count += 1
    lists = shutil.ignore_patterns("*.json")
    shutil.copytree(DOCS / "gallery", site / "gallery", ignore=lists, dirs_exist_ok=True)
    print(f"{count} pages in {site}; open {site / 'index.html'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/build.py FOLDER")
    main(sys.argv[1])
