"""Mutants: one small change at a time in the code that privacy rests on, and the tests that see it.

A mutant changes a sign, a scale, a bound, a comparison, a connective, a constant or drops a call.
It is killed if a test that guards its module fails. A survivor is either equivalent (the change
makes no difference that may matter; `equivalent_mutants.toml` has the reason) or shows a missing
test. Each mutant runs in a forked process, on a copy of the sources with one file changed, with an
empty cache of compiled code.

    python benchmarks/mutants.py --sample 250 --seed 1
    python benchmarks/mutants.py --modules frames/pools.py privacy/mechanisms --sample 20

Results are added to `out/mutants.jsonl`; what is there is not run again, unless the module
changed, or, for survivors, a test that guards it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "balaclava"
ROOMS = ("privacy", "frames", "auditing", "agents")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
PRELOADED = ("numpy", "scipy.stats", "hypothesis.stateful", "opendp")  # what most tests import
MARKS = "not slow and not browser"
WALL_RATIO = 10  # wall time over processor time at which a mutant counts as hung
SLOWEST = 4  # a mutant may take this many times the processor time of the tests without it
KILLED, TIMEOUT, SURVIVED = "killed", "timeout", "survived"

SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED_SIGNS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
SWAPPED_NAMES = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"},
    **{"any": "all", "all": "any", "floor": "ceil", "ceil": "floor"},
}
SCALED_CALLS = {"sqrt", "log", "exp", "log1p", "expm1"}
# Defaults, like constants of a module, are settings: another one is a choice, not a mistake.
NOT_RUN = (
    "annotation",
    "returns",
    "decorator_list",
    "bases",
    "type_params",
    "defaults",
    "kw_defaults",
)
TEXTS = ast.JoinedStr | ast.List | ast.Tuple

# Tests beside those that bear the module's name: the shortest that see the whole room at work.
ALSO: dict[str, tuple[str, ...]] = {
    "privacy/mechanisms/perturbed_index": ("tests/policies/bounded/test_dp_ftpl_gauss.py",),
    "privacy/mechanisms/truncation": ("tests/policies/contaminated/test_prae.py",),
    "privacy/mechanisms": ("tests/privacy/test_mechanisms.py", "tests/privacy/test_exact_noise.py"),
    "frames/blocks": ("tests/policies/classic/test_successive_elimination.py",),
    "frames/episodes": (
        "tests/policies/classic/test_htinf.py",
        "tests/policies/classic/test_exp3.py",
    ),
    "frames/patience": ("tests/agents/test_delivery.py",),
    "frames/pools": ("tests/agents/test_finish.py",),
    "frames/epochs": ("tests/agents/test_finish.py",),
    "frames/": ("tests/frames/test_epochs.py", "tests/agents/test_any_order.py"),
    "agents/estimates": ("tests/agents/test_estimates.py",),
    "agents/": tuple(
        f"tests/agents/test_{name}.py"
        for name in ("delivery", "agent", "finish", "saving", "any_order", "restoring", "attack")
    ),
    "auditing/audit_report": ("tests/auditing/test_audit.py",),
    "auditing/enumeration/small_worlds": ("tests/auditing/enumeration/test_exhaustive_audit.py",),
    "auditing/games": ("tests/auditing/games/test_statistical_audit.py",),
    "auditing/laws": ("tests/auditing/laws/test_exact_audit.py",),
    "auditing/replay": ("tests/auditing/replay/test_replay_audit.py",),
}


class Mutant(NamedTuple):
    """One change in one file."""

    module: str  # relative to the package
    function: str  # "" at the level of the module
    line: int
    kind: str
    change: str  # "before -> after"
    ordinal: int  # among equal changes in the function, from 1
    source: str  # the whole file, changed

    @property
    def name(self) -> str:
        """What identifies it when lines move."""
        number = f" #{self.ordinal}" if self.ordinal > 1 else ""
        return f"{self.module}:{self.function}: {self.change}{number}"


def replacements(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Kind and new text of each change of one node."""
    match node:
        case ast.Compare(left=left, ops=[op, *ops], comparators=comparators):
            swapped = SWAPPED_COMPARISONS[type(op)]()
            yield "comparison", ast.unparse(ast.Compare(left, [swapped, *ops], comparators))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "connective", f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "sign", f"({ast.unparse(operand)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "connective", f"bool({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            if not (is_text(left) or is_text(right)):
                changed = ast.BinOp(left, SWAPPED_SIGNS[type(op)](), right)
                yield "sign", f"({ast.unparse(changed)})"
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            yield "scale", f"({ast.unparse(node)}) * 2"
            yield "scale", f"({ast.unparse(node)}) / 2"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as called):
            if name in SWAPPED_NAMES:
                swap = ast.parse(ast.unparse(node), mode="eval").body
                assert isinstance(swap, ast.Call)
                if isinstance(swap.func, ast.Name):
                    swap.func.id = SWAPPED_NAMES[name]
                elif isinstance(swap.func, ast.Attribute):
                    swap.func.attr = SWAPPED_NAMES[name]
                yield "bound", ast.unparse(swap)
            elif name in SCALED_CALLS and isinstance(called, ast.Attribute):
                yield "scale", f"({ast.unparse(node)} * 2)"
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
            if not is_text(value):
                yield "sign", ast.unparse(ast.AugAssign(target, SWAPPED_SIGNS[type(op)](), value))
        case ast.Expr(value=ast.Call() as call):
            if not ast.unparse(call).startswith("super().__init__"):
                yield "dropped call", "pass"
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", str(value + 1)
        case ast.Constant(value=float() as value):
            yield "constant", str(2.0 * value if value else 1.0)


def is_text(node: ast.AST) -> bool:
    """Whether it is not a number, as far as the expression tells."""
    texts = isinstance(node, TEXTS) or (isinstance(node, ast.Constant) and type(node.value) is str)
    return texts or (isinstance(node, ast.BinOp) and (is_text(node.left) or is_text(node.right)))


def changeable(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Nodes below `node` that run and are not words, each with the function that it stands in."""
    for field, value in ast.iter_fields(node):
        if field in NOT_RUN:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            named = isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            inner = f"{function}.{child.name}".lstrip(".") if named else function
            if inner or not isinstance(child, ast.Constant):
                yield child, inner
            yield from changeable(child, inner)


def mutants(module: str, source: str | None = None) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    text = (PACKAGE / module).read_text(encoding="utf-8") if source is None else source
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counts: Counter[tuple[str, str]] = Counter()
    made = []
    for node, function in changeable(ast.parse(text)):
        for kind, after in replacements(node):
            if not isinstance(node, ast.expr | ast.stmt):
                continue
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            data = text.encode()
            before = " ".join(data[first:last].decode().split())
            change = f"{before} -> {' '.join(after.split())}"
            if kind == "constant":  # alone it says too little
                change += f" in {' '.join(text.splitlines()[node.lineno - 1].split())}"
            counts[function, change] += 1
            whole = (data[:first] + after.encode() + data[last:]).decode()
            ordinal = counts[function, change]
            made.append(Mutant(module, function, node.lineno, kind, change, ordinal, whole))
    return sorted(made, key=lambda each: each.line)


def modules(prefixes: list[str]) -> list[str]:
    """Modules of the rooms that begin with one of the prefixes."""
    every = [
        path.relative_to(PACKAGE).as_posix()
        for room in ROOMS
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    return [name for name in every if any(name.startswith(prefix) for prefix in prefixes)]


def guards(module: str) -> list[str]:
    """Files of tests that guard a module, the nearest first, relative to the root."""
    path = Path(module)
    dotted = ".".join(path.with_suffix("").parts)
    folder, stem = re.escape(".".join(path.parts[:-1])), re.escape(path.stem)
    imports = re.compile(
        rf"balaclava\.{re.escape(dotted)}\b|from balaclava\.{folder} import [\w, ]*\b{stem}\b"
    )
    room = Path("tests") / path.parts[0]
    nearest = [
        file.as_posix()
        for parent in (Path("tests") / path.parent, room)
        for file in [parent / f"test_{path.stem}.py"]
        if (ROOT / file).exists()
    ]
    importing = [
        file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / room).rglob("test_*.py"))
        if imports.search(file.read_text(encoding="utf-8"))
    ]
    also = [name for prefix, names in ALSO.items() if module.startswith(prefix) for name in names]
    return list(dict.fromkeys([*nearest, *importing, *also]))


class Recorder:
    """A plug-in that keeps the names of the tests that fail."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_sessionstart(self) -> None:
        """After conftest, before the tests: a failure need not be made small to kill."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(phases=phases))
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Outcome(NamedTuple):
    """How a run of tests ended."""

    status: str
    failed: list[str]
    seconds: float  # of processor time


class Overlay:
    """A copy of the sources in which one file can be changed; hard links but for that one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "src" / "balaclava"
        shutil.copytree(PACKAGE, self.package, copy_function=os.link)
        self.cache = folder / "cache"

    def put(self, module: str, source: str) -> None:
        """Change one file."""
        place = self.package / module
        place.unlink()
        place.write_text(source, encoding="utf-8")
        self._forget_compiled(place)

    def restore(self, module: str) -> None:
        """Undo the change."""
        place = self.package / module
        place.unlink()
        os.link(PACKAGE / module, place)
        self._forget_compiled(place)

    def _forget_compiled(self, place: Path) -> None:
        for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
            compiled.unlink()

    def run(self, tests: list[str], limit: float, *options: str) -> Outcome:
        """Run tests in a forked process on these sources.

        Args:
            tests: files or names of tests.
            limit: seconds of processor time.
            options: further options of pytest.

        Returns:
            How they ended, and the tests that failed.
        """
        answer = self.folder / "answer.json"
        answer.unlink(missing_ok=True)
        shutil.rmtree(self.cache, ignore_errors=True)  # else the tests run older code
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            self._play(tests, limit, answer, options)
        deadline = time.monotonic() + WALL_RATIO * limit
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.05)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        if not answer.exists():
            return Outcome(TIMEOUT, [], seconds)
        failed = json.loads(answer.read_text())
        return Outcome(KILLED if failed else SURVIVED, failed, seconds)

    def _play(self, tests: list[str], limit: float, answer: Path, options: tuple[str, ...]) -> None:
        """In the child: run the tests, leave the names of those that failed, and end."""
        os.setsid()
        most = int(limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        log = os.open(self.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["PYTHONPATH"] = str(self.folder / "src")
        os.environ["BALACLAVA_CACHE_DIR"] = str(self.cache)
        sys.path.insert(0, str(self.folder / "src"))
        os.chdir(ROOT)
        recorder = Recorder()
        arguments = [*tests, "-q", "-p", "no:cacheprovider", "-m", MARKS, *options]
        code = pytest.main(arguments, plugins=[recorder])
        package = Path(str(importlib.import_module("balaclava").__file__))
        if not package.is_relative_to(self.folder):
            recorder.failed = []
            code = 0
            answer.write_text(json.dumps(["the tests did not import the copy"]))
        elif code in (0, 1, 2, 5):  # passed, failed, interrupted by an error of import, none
            answer.write_text(json.dumps(recorder.failed))
        else:
            answer.write_text(json.dumps([f"pytest ended with {code}"]))
        sys.stdout.flush()
        os._exit(0)


class Bench:
    """Runs mutants, and keeps what came out in a file."""

    def __init__(self, overlay: Overlay, results: Path) -> None:
        self.overlay, self.results = overlay, results
        self.lines = [json.loads(line) for line in lines_of(results)]
        self.files: dict[str, Outcome] = {}  # tests without a mutant
        for line in self.lines:
            if "file" in line and line["digest"] == digest(line["file"]):
                self.files[line["file"]] = Outcome(SURVIVED, line["failed"], line["seconds"])

    def keep(self, **line: Any) -> None:
        """Add a line to the results."""
        self.lines.append(line)
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def without(self, file: str) -> Outcome:
        """How a file of tests ends without a mutant: what fails then says nothing."""
        if file not in self.files:
            outcome = self.overlay.run([file], 300.0)
            self.files[file] = outcome
            self.keep(
                file=file, digest=digest(file), failed=outcome.failed, seconds=outcome.seconds
            )
        return self.files[file]

    def judge(self, mutant: Mutant, tests: list[str]) -> dict[str, Any]:
        """Run files of tests on a mutant, or recall how that ended."""
        sources = digest_of(mutant.source)
        guarded = digest(*tests)
        for line in reversed(self.lines):
            same = line.get("mutant") == mutant.name and line["source"] == sources
            if same and (line["status"] != SURVIVED or line["guards"] == guarded):
                return line
        baseline = [self.without(file) for file in tests]
        failing = [
            option for each in baseline for name in each.failed for option in ("--deselect", name)
        ]
        limit = 10.0 + SLOWEST * sum(each.seconds for each in baseline)
        self.overlay.put(mutant.module, mutant.source)
        try:
            outcome = self.overlay.run(tests, limit, "-x", *failing)
        finally:
            self.overlay.restore(mutant.module)
        self.keep(
            mutant=mutant.name,
            line=mutant.line,
            kind=mutant.kind,
            status=outcome.status,
            by=outcome.failed[:1],
            seconds=round(outcome.seconds, 2),
            source=sources,
            guards=guarded,
        )
        return self.lines[-1]


def lines_of(path: Path) -> list[str]:
    """The lines of a file, none if it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def digest(*files: str) -> str:
    """Of the contents of files."""
    return digest_of("\0".join((ROOT / file).read_text(encoding="utf-8") for file in files))


def digest_of(text: str) -> str:
    """The first characters of a SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def equivalent() -> dict[str, str]:
    """Reasons by the names of mutants that need not be killed."""
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    return {entry["name"]: entry["reason"] for entry in entries}


def sample(prefixes: list[str], size: int, seed: int) -> list[Mutant]:
    """Mutants drawn uniformly without replacement; a longer sample begins with the shorter."""
    every = [mutant for module in modules(prefixes) for mutant in mutants(module)]
    random.Random(seed).shuffle(every)
    return every[:size]


def report(lines: list[dict[str, Any]], say: Callable[[str], None] = print) -> int:
    """Print what survived, and the share of killed mutants.

    Returns:
        The number of survivors without a reason.
    """
    reasons = equivalent()
    survivors = [line for line in lines if line["status"] == SURVIVED]
    unexplained = [line for line in survivors if line["mutant"] not in reasons]
    for line in survivors:
        reason = reasons.get(line["mutant"], "NO TEST KILLS IT")
        say(f"{line['mutant']} (line {line['line']}, {line['kind']}): {reason}")
    killed = len(lines) - len(survivors)
    behaving = killed + len(unexplained)
    late = sum(line["status"] == TIMEOUT for line in lines)
    share = 100.0 * killed / behaving if behaving else 100.0
    say(
        f"{len(lines)} mutants: {killed} killed ({late} by the limit of time), "
        f"{len(survivors) - len(unexplained)} equivalent, {len(unexplained)} that no test kills; "
        f"killed of those that change behaviour: {share:.1f} %"
    )
    return len(unexplained)


def main() -> None:
    """Draw mutants, run them, and print the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--modules", nargs="*", default=list(ROOMS), help="beginnings of paths")
    parser.add_argument("--sample", type=int, default=250, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of mutants, instead of a sample"
    )
    parser.add_argument("--tests", nargs="*", help="files, instead of those that guard a module")
    parser.add_argument("--results", type=Path, default=ROOT / "out" / "mutants.jsonl")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    options = parser.parse_args()
    size = sys.maxsize if options.only else options.sample
    chosen = sample(options.modules, size, options.seed)
    if options.only:
        chosen = [mutant for mutant in chosen if mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name} (line {mutant.line}, {mutant.kind})")
        return
    for name in PRELOADED:
        importlib.import_module(name)
    (ROOT / "out").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "out", prefix="mutants-") as folder:
        bench = Bench(Overlay(Path(folder)), options.results)
        lines = []
        for mutant in chosen:
            lines.append(line := bench.judge(mutant, options.tests or guards(mutant.module)))
            print(f"{line['status']:9}{line['seconds']:6.1f} s  {mutant.name}", flush=True)
    raise SystemExit(min(1, report(lines)))


if __name__ == "__main__":
    main()
