"""The documentation: its code runs, its site builds, its links lead somewhere."""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
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
from balaclava.papers.harness.registry import figures

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]


WITH_A_SERVICE = ("service.md", "operate.md")  # run in tests/service/test_service_docs.py
IN_A_SHELL = ("tutorial.md",)  # pages whose shell blocks are run too, in their place


def blocks(path: Path) -> str:
    """The code of a page as one script, each line where it stands on the page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = [""] * len(lines)
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        inside = lines[start + 1 : end]
        if lines[start] == "```python":
            code[start + 1 : end] = inside
        elif lines[start] == "```sh" and path.name in IN_A_SHELL:
            command = ["bash", "-euc", "\n".join(inside)]
            code[start] = f"import subprocess; subprocess.run({command!r}, check=True)"
    return "\n".join(code)


LONG = ("tutorial.md", "quickstart.md", "scaling.md")  # minutes: `make test-all` runs them


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
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
        env={**os.environ, "MPLBACKEND": "Agg", "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


class Page(HTMLParser):
    """What a page links to, what can be linked to on it, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.pictures: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        if tag == "a":
            self.links.append(str(given["href"]))
        if tag == "img":
            self.pictures.append(str(given["src"]))
            assert given.get("alt"), given
        if tag in ("link", "script", "iframe"):
            self.loads.append(str(given))

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", folder],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> dict[str, Page]:
    return {
        path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
    }


def test_every_policy_and_environment_has_a_page(site: dict[str, Page]) -> None:
    listed = subprocess.run(  # in a process of its own: other tests register policies too
        [
            sys.executable,
            "-c",
            "import balaclava as bl\n"
            "for e in bl.list_policies(): print(f'policies/{e.name}.html')\n"
            "for e in bl.list_environments(): print(f'environments/{e.name}.html')",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert len(listed) > 10
    assert set(listed) <= set(site)
    pages = ("index", "tutorial", "scaling", "gallery", "api", "errata", "contributing", "security")
    assert {f"{page}.html" for page in pages} <= set(site)


def test_a_policy_page_says_what_matters(site: dict[str, Page]) -> None:
    page = site["policies/dp-se.html"]
    assert {"privacy", "parameters", "example", "references", "see-also"} <= page.anchors
    for words in ("central, trajectory", "a number above 0", "required", "Sajed"):
        assert words in page.words


def test_public_names_are_on_the_api_page(site: dict[str, Page]) -> None:
    for name in bl.__all__:
        assert f"bl{name}".lower() in site["api.html"].anchors, name


def test_links_resolve(site: dict[str, Page], folder: Path) -> None:
    checked = 0
    for path, page in site.items():
        for link in page.links:
            assert not re.match(r"\w+:", link), f"{path} links to {link}"
            target, _, anchor = unquote(link).partition("#")
            home = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if home.endswith(".png"):
                assert (folder / home).is_file(), f"{path} links to {link}"
                continue
            assert home in site, f"{path} links to {link}"
            assert not anchor or anchor in site[home].anchors, f"{path} links to {link}"
            checked += 1
    assert checked > len(site)


def test_pages_fetch_nothing(site: dict[str, Page]) -> None:
    assert not [(path, page.loads) for path, page in site.items() if page.loads]
    assert [path for path, page in site.items() if page.pictures] == ["gallery.html"]


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
    site: dict[str, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how to repeat it: the command has all that the policy requires."""
    audited: list[str] = []

    def note(policy: bl.Policy, **_: object) -> None:
        audited.append(policy.name)
        raise BalaclavaError("enough")

    monkeypatch.setattr("balaclava.auditing.audit.audit", note)
    for entry in bl.list_policies():
        page = site.get(f"policies/{entry.name}.html")
        if page is None or entry.policy.model == "none":
            continue
        assert {"privacy", "audit"} <= page.anchors, entry.name
        command = re.search(rf"balaclava (audit {entry.name} .*)\.\n", page.words)
        if entry.name.startswith("privatised"):  # is made in Python
            assert "bl.audit(bl.privatise(base, epsilon=1.0" in page.words
        else:
            assert command is not None, entry.name
            done = CliRunner().invoke(main, shlex.split(command[1]))
            assert audited[-1:] == [entry.name], done.output
    assert "1,000, epsilon 1" in site["policies/dp-imed.html"].words


# Paths of a machine, issue numbers, and whatever else only makes sense outside the project.
OUTSIDE = re.compile(
    r"/tmp/|/home/|/root/|\bissue ?#?\d"
    r"|\b(TODO|FIXME|XXX)\b|localhost",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_keep_to_the_project(page: Path) -> None:
    found = OUTSIDE.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{page.name} mentions {found[0]!r}" if found else ""


def test_generated_pages_keep_to_the_project(site: dict[str, Page]) -> None:
    assert not [
        (path, OUTSIDE.findall(page.words))
        for path, page in site.items()
        if OUTSIDE.search(page.words)
    ]


@functools.cache
def errata_tests() -> dict[str, str]:
    """The tests of test_errata.py by name, and the entry that each one's docstring names."""
    tree = ast.parse((ROOT / "tests" / "papers" / "test_errata.py").read_text(encoding="utf-8"))
    return {
        node.name: (ast.get_docstring(node) or "").partition(":")[0]
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


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
