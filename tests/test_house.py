"""The rules of the code base: sizes, names, words, layers, and lists that must agree."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import balaclava as bl
from balaclava._core.docstrings import bibtex
from tests.conftest import LAYERS

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FAMILIES = [path.parent for path in (ROOT / "src/balaclava/policies").glob("*/__init__.py")]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Phrases that hide a plain idea, and words that the field does not use.
PHRASES = (
    *("yardstick", "save with", "on end", "mend", "mended", "mends", "of which", "somebody"),
    *("whoever", "nobody", "anybody", "whatever", "manieth", "put back", "in the midst", "anew"),
    *("the more the more", "is no function", "is no address", "holds something else than"),
    *("goes on", "to go on", "asks for no", "told of", "what cannot be", "counts nowhere"),
    *("cannot count any more", "handed over", "under way", "gives away", "of their own"),
    *("in the place of", "stands for it", "is taken for", "go by", "untouched", "in vain"),
    *("flight of stairs", "its kin", "beside itself", "the short way", "what came of"),
    *("from which on", "drawn blindly", "tells all", "what the kernels need", "is dear"),
    *("goes around the mechanisms", "the caller has looked", "teaches nothing", "what leaves"),
    *("the log leaves open", "a margin that matters", "a row a person", "found out", "at will"),
    *("stay away", "cannot be told from", "all that it", "what is promised", "as they are"),
    *("worked out from", "hold for plausible", "holds for plausible", "holding for plausible"),
    *("their kin", "has its turn", "have their turn", "offer no longer", "come to be", "for ever"),
    *("an arm no longer", "as long as you like", "what decides there", "at one stretch"),
    *("holding it up", "is the case", "that they would be about", "sell no more", "looked for"),
    *("count for none", "misleads no longer", "in between", "tried again", "stands in"),
    *("wanted any more", "learned any more", "is any more"),
)
UNCLEAR = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)
COINED = {  # names that needed a dictionary of our own
    *("Desk", "Findings", "Story", "Dossier", "Telling", "Life", "Tour", "Work", "Needs", "Door"),
    *("Visitor", "Books", "pyramid", "happenings", "duel", "fight", "heat", "strays", "deaf"),
    *("goes_on", "go_on", "go_by", "came", "heard", "silent_arm", "stand_alone", "require_part"),
}
CHECKS = re.compile(  # how a test can fail; the rules of a state machine assert
    r"assert|\.raises\(|\.warns\(|\bcheck\w*\(|\bagree\(|_and_resumed\(|\brun\("
    r"|\brun_state_machine_as_test\("
)
INSIDE_A_FILE = {"Params", "State", "World"}  # of a policy or an environment
MOST_LINES = 79_700  # .py and .pyi in the package: lower it when you can
MOST_MODULES = 12  # in a folder, but for folders of one-algorithm files and of migrations
ONE_ALGORITHM_FILES = {"environments", *(f"policies/{p.name}" for p in FAMILIES)}
ONE_ALGORITHM_FILES |= {"service/store/migrations/versions"}
PARTICIPLES = {"found", "given", "told", "said"}
LONGEST = 60  # lines of a function, without its documentation and the functions inside it


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file."""
    return list(ast.walk(tree_of(path)))


def lines_of(function: FUNCTIONS) -> int:
    documented = ast.get_docstring(function) is not None
    first = function.body[0]
    apart = [node for node in function.body if isinstance(node, FUNCTIONS)]
    return span(function) - sum(map(span, [*apart, *([first] if documented else [])]))


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_function_is_long(path: Path) -> None:
    functions = [node for node in nodes_of(path) if isinstance(node, FUNCTIONS)]
    lengths = {function.name: lines_of(function) for function in functions}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.parametrize("folder", ["src", "benchmarks", "docs", "examples"])
def test_variables_are_nouns(folder: str) -> None:
    """What a participle holds has to be guessed."""
    names = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.arg):
                names.append((node.arg, path.name, node.lineno))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append((node.id, path.name, node.lineno))
    assert [place for name, *place in names if name.strip("_") in PARTICIPLES] == []


def test_words_are_the_trades_own() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.md")]
    pages = [*texts, *SOURCES]
    words = {path: " ".join(path.read_text(encoding="utf-8").split()) for path in pages}
    places = {
        path.relative_to(ROOT).as_posix(): found[0]
        for path, text in words.items()
        if (found := UNCLEAR.search(text))
    }
    assert places == {}


def trees() -> dict[str, ast.Module]:
    """The modules of the package by path."""
    return {
        path.relative_to(ROOT / "src" / "balaclava").as_posix(): tree_of(path) for path in SOURCES
    }


def test_no_name_needs_a_dictionary_of_ours() -> None:
    places = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            defined = isinstance(node, FUNCTIONS | ast.ClassDef) and node.name
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id
            name = defined or stored or ""
            if name.strip("_") in COINED:
                places.append((path, name))
    assert places == []


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path)
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in INSIDE_A_FILE} == {}


def test_a_module_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in trees():
        homes.setdefault(Path(path).stem, []).append(path)
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert set(twice) <= {"__init__", "base"}, twice


def constants(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Names and values that a statement of a module gives to constants."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    several = isinstance(target, ast.Tuple)
    for place, each in enumerate(target.elts if several else [target]):
        if isinstance(each, ast.Name) and each.id.strip("_").isupper():
            value = ast.unparse(node.value)
            yield each.id.strip("_"), f"{place} of {value}" if several else value


def test_a_constant_name_has_one_value() -> None:
    """A leading underscore does not make it another name."""
    values: dict[str, dict[str, str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            for name, value in constants(node):
                values.setdefault(name, {})[path] = value
    several = {name: homes for name, homes in values.items() if len(set(homes.values())) > 1}
    assert several == {}


def test_no_folder_holds_more_than_one_can_take_in() -> None:
    counts: dict[str, int] = {}
    for path in trees():
        folder = Path(path).parent.as_posix()
        counts[folder] = counts.get(folder, 0) + (Path(path).name != "__init__.py")
    full = {folder: n for folder, n in counts.items() if n > MOST_MODULES}
    assert {folder: n for folder, n in full.items() if folder not in ONE_ALGORITHM_FILES} == {}


def test_the_package_does_not_grow() -> None:
    files = [*SOURCES, ROOT / "src" / "balaclava" / "__init__.pyi"]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= MOST_LINES


def test_what_is_asked_of_a_policy_is_declared() -> None:
    """`getattr(policy, "name", default)` asks for what no base class promises."""
    asks = re.compile(r"""getattr\((policy|self\.policy|environment|cls), f?["']""")
    assert [p for p in SOURCES if asks.search(p.read_text(encoding="utf-8"))] == []


def test_every_test_has_one_layer(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        layers = [layer for layer in LAYERS if item.get_closest_marker(layer)]
        assert len(layers) == 1, (item.nodeid, layers)
        folder = item.path.parent.name
        assert folder != "oracles" or layers == ["oracle"], item.nodeid
        assert folder != "testing" or layers != ["unit"], item.nodeid
    declared = tomllib.loads(read("pyproject.toml"))["tool"]["pytest"]["ini_options"]["markers"]
    assert {line.partition(":")[0] for line in declared} >= set(LAYERS)


def test_every_test_can_fail() -> None:
    """It asserts, expects an error, or hands over to a check that does."""
    idle = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
                continue
            if CHECKS.search(ast.unparse(node)) is None:
                idle.append(f"{path.name}: {node.name}")
    assert idle == []


def test_every_policy_of_the_package_has_a_test_of_its_own() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.parent.name != "oracles"
    )
    names = {e.name for e in bl.list_policies() if e.policy.__module__.startswith("balaclava.")}
    assert [name for name in sorted(names) if f'"{name}' not in tests] == []


def test_lint_and_pre_commit_run_the_same() -> None:
    (recipe,) = re.findall(r"^LINT := (.*)$", read("Makefile"), re.MULTILINE)
    by_make = recipe.replace("$(BIN)", ".venv/bin").split(" && ")
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert local["repo"] == "local"  # needs no network
    assert [hook["entry"] for hook in local["hooks"]] == by_make
    for hook in local["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False), hook


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    assert [author["name"] for author in citation["authors"]] == ["The balaclava developers"]
    assert citation["license"] == project["license"]
    day = citation["date-released"]
    entry = bibtex("balaclava")
    assert f"version {project['version']} of {day}}}" in entry
    assert f"year = {{{day.year}}}" in entry
    titles = " ".join(reference["title"] for reference in citation["references"])
    for words in ("heavy-tailed", "private and robust", "adversarial", "Optimal learning"):
        assert words in titles
    assert project["version"].rpartition(".")[0] in read("SECURITY.md")


def test_the_map_shows_every_room() -> None:
    """And no room that is not there."""
    package = ROOT / "src" / "balaclava"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    on_the_map = re.findall(r"^\| `(\w+)/` \| \w.*\. \|$", read("docs/design.md"), re.MULTILINE)
    assert set(on_the_map) == rooms
    one_way, *_ = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    floors = {
        room: floor
        for floor, layer in enumerate(reversed(one_way["layers"]))
        for room in re.findall(r"balaclava\.(\w+)", layer)
    }
    numbers = [floors[room] for room in on_the_map]
    assert numbers == sorted(numbers)  # those above are used by those below


def test_a_group_of_tests_is_kept_in_one_process(request: pytest.FixtureRequest) -> None:
    """xdist goes by the ends of names, and says nothing where it cannot write them."""
    grouped = getattr(request.config.option, "loadgroup", False)
    assert ("@" in request.node.nodeid) == grouped
