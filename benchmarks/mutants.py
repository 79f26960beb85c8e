"""Mutants: one small change at a time in the code that privacy rests on, and the tests that see it.

A mutant changes a sign, a scale, a bound, a comparison, a connective, a constant or drops a call.
It is killed if a test fails, or takes too long, that calls its function. A survivor is either
equivalent (the change makes no difference that may matter; `equivalent_mutants.toml` has the
reason) or shows a missing test.

One process collects the tests. It records once which functions each test calls, interpreted or
compiled. For each mutant it forks, changes the code of the function, and runs the tests that call
it, the shortest first, those that compile last, until one fails. A mutant that only an import
shows runs on a copy of the sources. Code that the mutant is not in is compiled once. With `--jobs`
so many processes share the tests to record, and then the mutants.

    python benchmarks/mutants.py --sample 250 --seed 1
    python benchmarks/mutants.py --modules frames/pools.py privacy/mechanisms --sample 20 --jobs 16

Results are added to `out/mutants.jsonl`; what is there is not run again, unless the module
changed, or, for survivors, a file of tests.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import functools
import gc
import hashlib
import importlib
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "balaclava"
ROOMS = ("privacy", "frames", "auditing", "agents")
LEFT_OUT = ("auditing/games/device_games.py",)  # its tests need a GPU
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MARKS = "not slow and not browser"
WALL_RATIO = 10  # wall time over processor time at which a mutant counts as hung
# A test may take so many seconds of processor time, and so many times those without a mutant.
LEAST_LIMIT, SLOWEST = 3.0, 4
LONGEST = 300.0  # seconds of a test without a mutant
RECORDED = 20  # tests of a file that one process records
# In a module with none of these nothing is compiled.
COMPILED = re.compile(r"@kernel|@mechanism|compiled\(|compiled_release")
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

# By room: folders of tests. Of these, tests that call a mutant's function run on it.
WIDE = {
    "privacy": ("tests/privacy",),
    "frames": ("tests/frames", "tests/agents"),
    "agents": ("tests/agents",),
    "auditing": ("tests/auditing",),
}
# The shortest tests elsewhere that see a module at work.
ALSO: dict[str, tuple[str, ...]] = {
    "privacy/mechanisms/perturbed_index": ("tests/policies/bounded/test_dp_ftpl_gauss.py",),
    "privacy/mechanisms/truncation": ("tests/policies/contaminated/test_prae.py",),
    "frames/blocks": ("tests/policies/classic/test_successive_elimination.py",),
    "frames/episodes": (
        "tests/policies/classic/test_htinf.py",
        "tests/policies/classic/test_exp3.py",
    ),
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
            if isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign):
                continue  # a default of a field
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
    return [name for name in every if name.startswith(tuple(prefixes)) and name not in LEFT_OUT]


def guards(module: str) -> list[str]:
    """Files of tests that may guard a module, relative to the root, its own examples first."""
    folders = WIDE[module.partition("/")[0]]
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
    also = [name for prefix, names in ALSO.items() if module.startswith(prefix) for name in names]
    return [f"src/balaclava/{module}", *(str(path.relative_to(ROOT)) for path in files), *also]


class Calls:
    """The package's functions that run while it traces, interpreted or compiled."""

    def __init__(self) -> None:
        self.codes: dict[int, types.CodeType] = {}
        self.compiles = False

    def trace(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Note a call; lines are not traced."""
        code = frame.f_code
        if code.co_name == "compiled" and "factory" in frame.f_locals:
            self.compiles = True
            for function in (frame.f_locals["factory"], *frame.f_locals["kernels"]):
                self.reach(function)
        self.codes[id(code)] = code

    def reach(self, function: Any) -> None:
        """Note a compiled function and those that it names or closes over."""
        function = getattr(function, "__wrapped__", function)
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self.codes or "balaclava" not in code.co_filename:
            return
        self.codes[id(code)] = code
        names = names_in(code)
        named = [function.__globals__.get(name) for name in names]
        modules = [value for value in named if isinstance(value, types.ModuleType)]
        named += [getattr(module, name, None) for module in modules for name in names]
        for value in (*named, *(cell.cell_contents for cell in function.__closure__ or ())):
            self.reach(value)

    def names(self) -> list[str]:
        """The functions, as `module:function`, by the names that mutants have."""
        names = set()
        for code in list(self.codes.values()):
            _, inside, module = code.co_filename.rpartition("/src/balaclava/")
            if inside and module.startswith(ROOMS):
                parts = code.co_qualname.replace(".<locals>", "").split(".")
                plain = itertools.takewhile(lambda part: not part.startswith("<"), parts)
                names.add(f"{module}:{'.'.join(plain)}")
        return sorted(names)


def names_in(code: types.CodeType) -> set[str]:
    """Names that a function or a function inside it reads."""
    inner = [names_in(each) for each in inner_codes(code)]
    return set(code.co_names).union(*inner)


def inner_codes(code: types.CodeType) -> list[types.CodeType]:
    """Code of the functions inside one."""
    return [each for each in code.co_consts if isinstance(each, types.CodeType)]


def pairs(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[Any, types.CodeType]]:
    """Where to find the code of each function of a module, and what it becomes."""
    for before, after in zip(inner_codes(old), inner_codes(new), strict=True):
        yield place_of(before), after
        yield from pairs(before, after)


def place_of(code: types.CodeType) -> tuple[str, str, int]:
    """What tells the functions of the package apart."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


class Functions:
    """The functions of the imported package, each of which can be changed."""

    def __init__(self) -> None:
        gc.unfreeze()  # what is frozen is not listed
        self.live: dict[tuple[str, str, int], list[types.FunctionType]] = {}
        self.cached = []
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType):
                self.live.setdefault(place_of(each.__code__), []).append(each)
            elif isinstance(each, functools._lru_cache_wrapper):
                self.cached.append(each)
        gc.freeze()

    def change(self, mutant: Mutant) -> bool:
        """Give the functions of a module the mutant's code; False if none differs."""
        path = str(PACKAGE / mutant.module)
        source = (PACKAGE / mutant.module).read_text(encoding="utf-8")
        flags = __future__.annotations.compiler_flag
        flags = flags if "from __future__ import annotations" in source else 0
        old = compile(source, path, "exec", flags, dont_inherit=True)
        new = compile(mutant.source, path, "exec", flags, dont_inherit=True)
        before = dict(pairs(old, old))
        differs = False
        try:
            changed = list(pairs(old, new))
        except ValueError:  # the mutant lacks a function inside
            return False
        for place, code in changed:
            if before[place] != code:
                for function in self.live.get(place, []):
                    function.__code__ = code
                    differs = True
        for each in self.cached:
            each.cache_clear()
        return differs


class Outcome(NamedTuple):
    """How a run of tests ended."""

    status: str
    by: str  # the test that failed
    seconds: float  # of processor time


def forked(work: Callable[[], Any], limit: float) -> tuple[Any, float]:
    """What a function returns in a forked process, None after too long, and the seconds it took.

    Args:
        work: returns something that JSON can hold.
        limit: seconds of processor time.
    """
    with tempfile.TemporaryFile() as answer:
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                most = int(limit) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
                answer.write(json.dumps([work()]).encode())
            except BaseException:
                answer.write(json.dumps(traceback.format_exc()).encode())
            finally:
                answer.flush()
                os._exit(0)
        deadline = time.monotonic() + WALL_RATIO * limit
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.01)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        answer.seek(0)
        text = answer.read()
        reply = json.loads(text) if text else [None]
        if isinstance(reply, str):
            raise RuntimeError(reply)
        return reply[0], seconds


def in_parallel(options: argparse.Namespace, number: int, work: Callable[[int], None]) -> None:
    """Do `work(0)` to `work(number - 1)` in processes that take the next while there is time."""
    taken, children = multiprocessing.Value("q", 0), []
    for _ in range(min(options.jobs, number)):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            while True:
                with taken.get_lock():
                    mine = taken.value
                    taken.value += 1
                if mine >= number or time.monotonic() > options.end:
                    os._exit(0)
                work(mine)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if any([os.waitpid(child, 0)[1] for child in children]):
        raise RuntimeError("a process failed; its error is above")


class Stage(NamedTuple):
    """Tests to run together, and the processor time that each may take."""

    tests: list[str]
    limits: list[float]


class WholeFile(NamedTuple):
    """The tests of a file without a mutant."""

    seconds: float  # of all together
    tests: dict[str, dict[str, Any]]  # what each calls, and for how long


class Bench:
    """A plug-in of pytest that runs the collected tests on mutants, and keeps what came out."""

    def __init__(self, chosen: list[Mutant], files: list[str], options: argparse.Namespace) -> None:
        self.chosen, self.options = chosen, options
        self.digests = {file: digest_of((ROOT / file).read_text("utf-8")) for file in files}
        self.results: Path = options.results
        self.read_results()
        self.items: dict[str, pytest.Item] = {}
        self.found: list[dict[str, Any]] = []

    def read_results(self) -> None:
        """Recall what this process and others have found so far."""
        lines = [json.loads(line) for line in lines_of(self.results)]
        self.parts: set[tuple[str, int]] = set()  # of files, that were recorded
        self.files: dict[str, WholeFile] = {}
        for line in lines:
            if "part" in line and line["digest"] == self.digests.get(line["file"]):
                seconds, tests = self.without(line["file"])
                self.files[line["file"]] = WholeFile(
                    seconds + line["seconds"], tests | line["tests"]
                )
                self.parts.add((line["file"], line["part"]))
        self.judged: dict[str, dict[str, Any]] = {
            line["mutant"]: line for line in lines if "mutant" in line
        }

    def pytest_sessionstart(self) -> None:
        """After conftest, before the tests: a failure need not be made small to kill."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(phases=phases))
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run mutants where pytest would run tests."""
        package = Path(str(importlib.import_module("balaclava").__file__))
        if not package.is_relative_to(PACKAGE):
            raise SystemExit(f"the tests import {package}")
        self.items = {item.nodeid: item for item in session.items}
        self.functions = Functions()
        self.names: dict[str, list[str]] = {}
        for name in self.items:
            self.names.setdefault(name.partition("::")[0], []).append(name)
        parts = [
            (file, part)
            for file, names in self.names.items()
            for part in range(-(-len(names) // RECORDED))
            if (file, part) not in self.parts
        ]
        in_parallel(self.options, len(parts), lambda number: self.record_part(*parts[number]))
        self.read_results()
        if not self.options.map:
            most = len(self.chosen)
            in_parallel(self.options, most, lambda number: self.show(self.chosen[number]))
            self.read_results()
            ended = [(mutant, self.judged.get(mutant.name)) for mutant in self.chosen]
            self.found = [
                line
                for mutant, line in ended
                if line and line["source"] == digest_of(mutant.source)
            ]
        return True

    def show(self, mutant: Mutant) -> None:
        """Run a mutant, and print how it ended."""
        files = [file for file in guards(mutant.module) if file in self.digests]
        line = self.judge(mutant, files)
        print(f"{line['status']:9}{line['seconds']:6.1f} s  {mutant.name}", flush=True)

    def keep(self, **line: Any) -> dict[str, Any]:
        """Add a line to the results."""
        self.results.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(line) + "\n"
        with self.results.open("a", encoding="utf-8", buffering=len(text) + 1) as file:
            file.write(text)
        return line

    def record_part(self, file: str, part: int) -> None:
        """Keep what some tests of a file call without a mutant; one that fails says nothing."""
        names = self.names[file][RECORDED * part :][:RECORDED]
        tests, seconds = forked(lambda: self.record(names), LONGEST * RECORDED)
        digest, seconds = self.digests[file], round(seconds, 1)
        self.keep(file=file, part=part, digest=digest, seconds=seconds, tests=tests or {})
        print(f"{seconds:6.1f} s  {file} {part}", flush=True)

    def without(self, file: str) -> WholeFile:
        """What was recorded of a file."""
        return self.files.get(file, WholeFile(0.0, {}))

    def record(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Run tests, and note what those that pass call and how long they take."""
        self.use_cache(warm=True)
        records = {}
        for name in names:
            calls = Calls()
            began = time.process_time()
            sys.settrace(calls.trace)
            threading.settrace(calls.trace)
            passed = not self.failing([name], [LONGEST])
            sys.settrace(None)
            seconds = round(time.process_time() - began, 3)
            if passed:
                records[name] = {
                    "seconds": seconds,
                    "compiles": calls.compiles,
                    "calls": calls.names(),
                }
        return records

    def use_cache(self, *, warm: bool) -> None:
        """Choose the folder of compiled code: an empty one where a mutant could be in it."""
        folder = ROOT / "out" / "mutants-cache" if warm else Path(tempfile.mkdtemp())
        os.environ["BALACLAVA_CACHE_DIR"] = str(folder)

    def failing(self, names: list[str], limits: list[float]) -> str:
        """The first test that fails, "" if none does; the process ends if one takes too long."""
        items = [self.items[name] for name in names]
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        for item, following, limit in zip(items, [*items[1:], None], limits, strict=True):
            signal.setitimer(signal.ITIMER_PROF, limit)
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(each.failed for each in reports):
                return str(item.nodeid)
        return ""

    def stages(self, mutant: Mutant, files: list[str], past: dict[str, str]) -> list[Stage]:
        """Tests that call the mutant's function: first those that compile nothing.

        Args:
            mutant: the mutant.
            files: of tests.
            past: digests of the files that it has survived already.
        """
        quick: list[tuple[float, str]] = []
        compiling: list[tuple[float, str]] = []
        for file in files:
            if past.get(file) == self.digests[file]:
                continue
            for name, test in self.without(file).tests.items():
                if any(covers(call, mutant) for call in test["calls"]):
                    (compiling if test["compiles"] else quick).append((test["seconds"], name))
        quick = within(self.options.budget, quick)
        compiling = within(self.options.budget, compiling)
        made = []
        if quick:
            limits = [LEAST_LIMIT + SLOWEST * seconds for seconds, _ in quick]
            made.append(Stage([name for _, name in quick], limits))
        if compiling:  # the first of a file takes the time for all
            homes = [name.partition("::")[0] for _, name in compiling]
            limits = [LEAST_LIMIT + SLOWEST * self.without(home).seconds for home in homes]
            made.append(Stage([name for _, name in compiling], limits))
        return made

    def judge(self, mutant: Mutant, files: list[str]) -> dict[str, Any]:
        """Run files of tests on a mutant, or recall how that ended."""
        source = digest_of(mutant.source)
        past: dict[str, str] = {}
        line = self.judged.get(mutant.name)
        if line is not None and line["source"] == source:
            if line["status"] != SURVIVED:
                return line
            past = line["guards"]
        stages = self.stages(mutant, files, past)
        if line is not None and past and not stages:
            return line
        outcome = Outcome(SURVIVED, "", 0.0)
        for stage in stages:
            outcome = self.run(mutant, stage)
            if outcome.status != SURVIVED:
                break
        return self.keep(
            mutant=mutant.name,
            line=mutant.line,
            kind=mutant.kind,
            status=outcome.status,
            by=outcome.by,
            seconds=round(outcome.seconds, 2),
            source=source,
            guards={file: self.digests[file] for file in files},
            tests=sum(len(stage.tests) for stage in stages),
        )

    def run(self, mutant: Mutant, stage: Stage) -> Outcome:
        """Run tests on a mutant."""

        def work() -> str:
            self.use_cache(warm=not COMPILED.search(mutant.source))
            if not self.functions.change(mutant):
                return run_on_copy(mutant, stage.tests)
            return self.failing(stage.tests, stage.limits)

        failed, seconds = forked(work, sum(stage.limits))
        if failed is None:
            return Outcome(TIMEOUT, "", seconds)
        return Outcome(KILLED if failed else SURVIVED, failed, seconds)


def run_on_copy(mutant: Mutant, tests: list[str]) -> str:
    """Run tests on a copy of the sources, for a mutant that only an import shows."""
    with tempfile.TemporaryDirectory(dir=ROOT / "out", prefix="mutants-") as folder:
        copy = Path(folder) / "balaclava"
        shutil.copytree(PACKAGE, copy, copy_function=os.link)
        (copy / mutant.module).unlink()
        (copy / mutant.module).write_text(mutant.source, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": folder}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    return "" if run.returncode == 0 else "on a copy"


def within(budget: float, tests: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The shortest tests that take so many seconds together."""
    ends = itertools.accumulate(seconds for seconds, _ in sorted(tests))
    return [test for test, end in zip(sorted(tests), ends, strict=True) if end <= budget]


def covers(call: str, mutant: Mutant) -> bool:
    """Whether a call of a function may run a mutant: its own, one around it, one of its class."""
    place = f"{mutant.module}:{mutant.function}"
    if not mutant.function:
        return call.startswith(place)
    return call == place or place.startswith(f"{call}.") or call.startswith(f"{place}.")


def lines_of(path: Path) -> list[str]:
    """The lines of a file, none if it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


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
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests on a mutant")
    parser.add_argument("--map", action="store_true", help="only record what each test calls")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after these")
    options = parser.parse_args()
    options.end = time.monotonic() + options.seconds
    size = sys.maxsize if options.only else options.sample
    chosen = sample(options.modules, size, options.seed)
    if options.only:
        chosen = [mutant for mutant in chosen if mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name} (line {mutant.line}, {mutant.kind})")
        return
    (ROOT / "out").mkdir(exist_ok=True)
    files = sorted({file for each in chosen for file in guards(each.module)})
    files = [file for file in files if options.tests is None or file in options.tests]
    bench = Bench(chosen, files, options)
    pytest.main(
        [*files, "-q", "-s", "-p", "no:cacheprovider", "-m", MARKS, "-W", "ignore"], plugins=[bench]
    )
    raise SystemExit(min(1, report(bench.found)))


if __name__ == "__main__":
    main()
