"""The documentation: its code runs, its site builds, its links lead somewhere."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import BalaclavaError
from balaclava.papers.harness.figure_registry import figures

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]


WITH_A_SERVICE = ("service.md", "operate.md")  # run in tests/service/test_service_docs.py
IN_A_SHELL = (
    "tutorial.md",
    "shop.md",
    "trials.md",
)  # pages whose shell blocks are run too, in their place


def blocks(path: Path) -> str:
    """The code of a page as one script, each line where it stands on the page.

    A block of text right after a block of code is what the code prints, and is compared with it.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    code = [""] * len(lines)
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    pairs = list(zip(fences[::2], fences[1::2], strict=True))
    shown = {start: "\n".join(lines[start + 1 : end]) for start, end in pairs}
    for start, end in pairs:
        inside = lines[start + 1 : end]
        follows = next((i for i in range(end + 1, len(lines)) if lines[i]), end)
        output = shown[follows] if follows in shown and lines[follows] == "```text" else None
        if lines[start] == "```python":
            code[start + 1 : end] = inside
            if output is not None:
                code[start] = "import io, sys; sys.stdout = io.StringIO()"
                code[end] = (
                    "printed = sys.stdout.getvalue(); sys.stdout = sys.__stdout__; "
                    f"assert printed.split() == {output!r}.split(), printed"
                )
        elif lines[start] == "```sh" and path.name in IN_A_SHELL:
            command = ["bash", "-euc", "\n".join(inside)]
            code[start] = (
                f"import subprocess; printed = subprocess.run({command!r}, check=True, text=True, "
                "stdout=subprocess.PIPE).stdout"
            )
            if output is not None:
                code[end] = f"assert printed.split() == {output!r}.split(), printed"
    return "\n".join(code)


def test_what_code_prints_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for shown, right in (("3", True), ("4", False)):
        page.write_text(
            f"```python\nprint(1 + 2)\n```\n\n```text\n{shown}\n```\n", encoding="utf-8"
        )
        done = subprocess.run([sys.executable, "-c", blocks(page)], capture_output=True)
        assert (done.returncode == 0) is right


# `make test-all` runs them.
LONG = (
    *("authoring.md", "privacy.md", "quickstart.md", "recommender.md", "scaling.md", "shop.md"),
    *("trials.md", "tutorial.md"),
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=[pytest.mark.xdist_group(page.name), *[pytest.mark.slow] * (page.name in LONG)],
        )
        for page in PAGES
    ],
)
def test_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    code = "" if page.name in WITH_A_SERVICE else blocks(page)
    if not code.strip():
        pytest.skip("no code on this page")
    script = tmp_path / f"{page.stem}.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg", "PATH": PATH, "COLUMNS": "96"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


class Page(HTMLParser):
    """What a page links to, what can be linked to on it, what it loads, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.pictures: list[str] = []
        self.words = ""
        self.formulas = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.anchors.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "img":
            self.pictures.append(str(values["src"]))
            assert values.get("alt"), values
        if tag in ("link", "script", "iframe", "img", "source"):
            self.loads += [str(values[key]) for key in ("src", "href", "srcset") if key in values]
        self.formulas += tag == "math"

    def handle_data(self, data: str) -> None:
        self.words += data


def build(out: Path, *options: str) -> dict[str, Page]:
    """The site from a copy of the pages; a warning is an error."""
    pages = out.parent / "pages"
    made = shutil.ignore_patterns("extensions", "reference", "project")
    shutil.copytree(ROOT / "docs", pages, ignore=made, dirs_exist_ok=True)
    command = ("-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs", *options)
    done = subprocess.run(
        [sys.executable, *command, pages, out], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        path.relative_to(out).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in out.rglob("*.html")
    }


def check_links(site: dict[str, Page], folder: Path) -> None:
    checked = 0
    for path, page in site.items():
        for link in page.links:
            if link == "https://github.com/pradyunsg/furo":  # the theme names itself
                continue
            assert not re.match(r"\w+:", link), f"{path} links to {link}"
            target, _, anchor = unquote(link).partition("#")
            home = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if home not in site:
                assert (folder / home).is_file(), f"{path} links to {link}"
            elif anchor:
                assert anchor in site[home].anchors, f"{path} links to {link}"
            checked += 1
    assert checked > len(site)


def check_loads(site: dict[str, Page], folder: Path) -> None:
    """Everything that a page loads lies beside it."""
    for path, page in site.items():
        for load in page.loads:
            file = folder / os.path.dirname(path) / load.partition("?")[0].partition("#")[0]
            assert load.startswith("data:") or file.exists(), f"{path} loads {load}"
    for sheet in folder.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site") / "out"


@pytest.fixture(scope="session")
def site(folder: Path) -> dict[str, Page]:
    """The site with the pages of a few policies."""
    return build(folder, "-D", "selection=dp-se,dp-imed,ucb1")


@pytest.fixture(scope="session")
def generated() -> dict[str, str]:
    """The pages that are made, as Markdown; in a process of its own: other tests register too."""
    code = (
        "import json, pathlib, balaclava as bl, reference_pages as g\n"
        "names = [entry.name for entry in bl.list_policies()]\n"
        "print(json.dumps(dict(g.pages_of(pathlib.Path('docs'), names))))"
    )
    extensions = ROOT / "docs" / "extensions"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(extensions)])},
        check=True,
        capture_output=True,
        text=True,
    )
    pages: dict[str, str] = json.loads(done.stdout)
    return pages


def test_every_policy_and_environment_has_a_page(generated: dict[str, str]) -> None:
    names = {path.rpartition("/")[2].removesuffix(".md") for path in generated}
    for entry in bl.list_policies():
        if entry.policy.__module__.startswith("balaclava."):
            assert entry.name in names
    for each in bl.list_environments():
        if each.environment.__module__.startswith("balaclava."):
            assert each.name in names
    assert {"contributing", "security", "changes"} <= names


def test_every_guide_is_on_the_site(site: dict[str, Page]) -> None:
    assert {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")} <= set(site)


def test_a_policy_page_says_what_matters(site: dict[str, Page]) -> None:
    page = site["reference/policies/dp-se.html"]
    assert {"declared-parameters", "audit"} <= page.anchors
    for words in (
        *("central, trajectory", "a number above 0", "required", "Sajed", "0.1.0"),
        *("Privacy", "Parameters", "Example", "References", "See also"),
    ):
        assert words in page.words
    assert page.formulas == 3  # R, h and c, set as maths


def test_public_names_are_on_the_api_page(site: dict[str, Page]) -> None:
    anchors = site["api.html"].anchors
    modules = {"authoring": "balaclava.authoring", "bounds": "balaclava.theory.bounds"}
    for name in bl.__all__:
        home = modules.get(name, f"balaclava.{name}")
        assert {home, f"module-{home}"} & anchors, name


def test_links_resolve_and_nothing_is_fetched(site: dict[str, Page], folder: Path) -> None:
    check_links(site, folder)
    check_loads(site, folder)


def test_the_picture_shows_what_is_measured() -> None:
    from readme_picture import draw

    assert (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8") == draw()


@pytest.mark.slow
def test_the_whole_site_is_built(tmp_path: Path) -> None:
    site = build(tmp_path / "out")
    assert len([path for path in site if path.startswith("reference/policies/")]) > 40
    check_links(site, tmp_path / "out")
    check_loads(site, tmp_path / "out")
    assert not [path for path, page in site.items() if OUTSIDE.search(page.words)]


def test_the_gallery_shows_every_figure(site: dict[str, Page], folder: Path) -> None:
    page = site["gallery.html"]
    for entry in figures():
        assert entry.name in page.anchors, f"{entry.name} is missing: run `make gallery`"
        assert any(f"/{entry.name}" in picture for picture in page.pictures), entry.name
    _, *texts = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8").split("\n### ")
    assert len(texts) == len(figures())
    for text in texts:
        for title in ("What the paper", "What we see", "Where they differ, and why"):
            assert f"\n**{title}" in text, text[:40]
    for picture in page.pictures:
        assert (folder / picture).stat().st_size < 100_000, picture


def test_a_private_policy_page_shows_its_audit(
    generated: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how to repeat it: the command has all that the policy requires."""
    audited: list[str] = []

    def note(policy: bl.Policy, **_: object) -> None:
        audited.append(policy.name)
        raise BalaclavaError("enough")

    monkeypatch.setattr("balaclava.auditing.audit.audit", note)
    for entry in bl.list_policies():
        page = generated.get(f"reference/policies/{entry.name}.md")
        if page is None or entry.policy.model == "none":
            continue
        assert "\nPrivacy:\n" in (entry.policy.__doc__ or ""), entry.name
        assert "\n## Audit\n" in page, entry.name
        if entry.name.startswith("privatised"):  # is made in Python
            assert "bl.audit(bl.privatise(base, epsilon=1.0" in page
        else:
            command = re.search(rf"`balaclava (audit {entry.name} .*)`\.\n", page)
            assert command is not None, entry.name
            done = CliRunner().invoke(main, shlex.split(command[1]))
            assert audited[-1:] == [entry.name], done.output
    assert re.search(r"\| 1,\d{3}, epsilon 1 \|", generated["reference/policies/dp-imed.md"])


# Paths of a machine, issue numbers, and whatever else only makes sense outside the project.
OUTSIDE = re.compile(
    r"/tmp/|/home/|/root/|\bissue ?#?\d"
    r"|\b(TODO|FIXME|XXX)\b|localhost",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_keep_to_the_project(page: Path) -> None:
    found = OUTSIDE.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{page.name} mentions {found[0]!r}" if found else ""


def test_generated_pages_keep_to_the_project(generated: dict[str, str]) -> None:
    assert not [path for path, text in generated.items() if OUTSIDE.search(text)]


@functools.cache
def errata_tests() -> dict[str, str]:
    """The tests of test_errata.py by name, and the entry that each one's docstring names."""
    tree = ast.parse((ROOT / "tests" / "papers" / "test_errata.py").read_text(encoding="utf-8"))
    return {
        node.name: (ast.get_docstring(node) or "").partition(":")[0]
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_programs_make_only_policies_that_exist(folder: str) -> None:
    """They take long, so nothing runs them all: a policy that is gone would go unnoticed."""
    names = {
        node.args[0].value
        for path in sorted((ROOT / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("bl.policy", "policy", "make_policy")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert names - {policy.name for policy in bl.list_policies()} == set()
    assert names


def test_every_erratum_names_its_test() -> None:
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### (\w+ \d+)\. .*\n\n((?:- .*\n)+)", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^### ", text, re.MULTILINE)) > 30
    named = {}
    for entry, body in entries:
        assert re.findall(r"^- ([A-Z][a-z]+(?: by)?): ", body, re.MULTILINE)[1:] == [
            "Right",
            "Why",
            "Shown by",
        ], entry
        (test,) = re.findall(r"^- Shown by: `(\w+)`$", body, re.MULTILINE)
        named[test] = entry
    assert named == errata_tests()
