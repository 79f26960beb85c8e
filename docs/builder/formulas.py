"""The formulas of docstrings, which are plain text, as TeX.

A docstring writes `m_a + sqrt(alpha log t / (2 n_a))`, so that a terminal shows it. A slash with
spaces about it is a fraction: above it all of the term before it, below it the one factor after it.
A slash without spaces stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "lambda", "mu", "nu", "pi"),
    *("sigma", "tau", "ell"),
}
NAMES = {name: rf"\{name}" for name in GREEK}
NAMES |= {"epsilon": r"\varepsilon", "eps": r"\varepsilon", "lam": r"\lambda"}
OPERATORS = {name: rf"\{name}" for name in ("log", "exp", "max", "min", "det", "sum")}
OPERATORS |= {name: rf"\operatorname{{{name}}}" for name in ("kl", "clip", "ceil", "Lap", "Beta")}
SIGNS = {"<=": r"\le ", ">=": r"\ge ", "~": r"\sim ", "{": r"\{", "}": r"\}"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
SPLITS = {"+", "-", ",", "=", "<=", ">=", ">", ":", "~", ";", "."}
TOKEN = re.compile(
    r"\s*(<=|>=|[A-Za-z]+(?:_[a-z]{4,})?'?~?|\d+(?:\.\d+)?|[-+/÷^_(){}\[\],;:=<>|~.])"
)


class FormulaError(ValueError):
    """It has signs that are not known here, or brackets that do not match."""


def display_lines(block: str) -> Iterator[str]:
    """The formulas of an indented block; a line that goes on is joined to the one before."""
    whole, indent = "", 0
    for line in block.split("\n"):
        deeper = len(line) - len(line.lstrip()) > indent
        unfinished = sum(map(whole.count, "({[")) > sum(map(whole.count, ")}]"))
        if whole and (unfinished or (deeper and not whole.endswith(","))):
            whole += " " + line.strip()
            continue
        if whole:
            yield whole
        else:
            indent = len(line) - len(line.lstrip())
        whole = line.strip()
    yield whole


def tex(formula: str) -> str:
    """A formula as TeX."""
    pieces = []
    for part in re.split(r"\s{2,}(?![\s=])", formula.strip()):  # a wide gap is a gap
        reader = Reader(tokens(part))
        pieces.append(reader.expression(""))
        if reader.rest:
            raise FormulaError(formula)
    return r" \quad ".join(pieces)


def tokens(text: str) -> list[str]:
    places, end, text = [], 0, text.replace(" / ", " ÷ ").rstrip()
    while end < len(text):
        match = TOKEN.match(text, end)
        if match is None:
            raise FormulaError(text)
        places.append(match[1])
        end = match.end()
    return places


class Reader:
    """What is still to be read of a formula."""

    def __init__(self, rest: list[str]) -> None:
        self.rest = rest

    def peek(self) -> str:
        return self.rest[0] if self.rest else ""

    def expression(self, end: str) -> str:
        """Terms, up to the closing bracket."""
        whole = ""
        while self.peek() != end:
            if not self.rest:
                raise FormulaError(f"{end} is missing")
            if self.peek() in SPLITS:
                sign = self.rest.pop(0)
                whole += SIGNS.get(sign, sign)
            else:
                whole += self.term(end)
        return whole

    def term(self, end: str) -> str:
        """Factors side by side; a slash makes a fraction of those before it and the next."""
        factors: list[str] = []
        while self.rest and self.peek() not in SPLITS and self.peek() != end:
            if self.peek() == "/":
                self.rest.pop(0)
                factors[-1:] = [f"{factors[-1]}/{self.factor(end)}"] if factors else ["/"]
            elif self.peek() == "÷":
                self.rest.pop(0)
                below = unwrapped(self.factor(end))
                above = unwrapped(factors[0]) if len(factors) == 1 else r" \, ".join(factors)
                factors = [rf"\frac{{{above}}}{{{below}}}"]
            else:
                factors.append(self.factor(end))
        return r" \, ".join(factors)

    def factor(self, end: str) -> str:
        """An atom with what hangs on it."""
        whole = self.atom(end)
        while self.peek() in ("_", "^"):
            mark = self.rest.pop(0)
            sign = self.rest.pop(0) if self.peek() == "-" else ""
            whole += f"{mark}{{{sign}{self.hanging(mark, end, plain=not sign)}}}"
        if whole in OPERATORS.values() and self.peek() == "(":
            whole += self.factor(end)
        return whole

    def hanging(self, mark: str, end: str, *, plain: bool) -> str:
        """An index or an exponent, which may have an index of its own."""
        if len(self.peek()) == 1 and self.peek().isalpha():
            return self.rest.pop(0)
        whole = self.atom(end).removeprefix(r"\left\{").removesuffix(r"\right\}")
        if mark == "^" and self.peek() == "_":
            self.rest.pop(0)
            whole += f"_{{{self.hanging('_', end, plain=True)}}}"
        return unwrapped(whole) if plain else whole

    def atom(self, end: str) -> str:
        token = self.rest.pop(0)
        if token == "sqrt":
            return rf"\sqrt{{{unwrapped(self.atom(end))}}}"
        if token in CLOSING:
            inside = self.expression(CLOSING[token])
            closing = self.rest.pop(0)
            return rf"\left{SIGNS.get(token, token)}{inside}\right{SIGNS.get(closing, closing)}"
        if token == "|":
            inside = self.expression("|")
            self.rest.pop(0)
            return rf"\left|{inside}\right|"
        if token == "<":
            inside = self.expression(">")
            self.rest.pop(0)
            return rf"\langle {inside} \rangle"
        if token == "1" and self.peek() == "{":
            return r"\mathbf{1}" + self.atom(end)
        if token[0].isalpha():
            return self.word(token)
        if token[0].isdigit():
            return token
        raise FormulaError(token)

    def word(self, token: str) -> str:
        """A symbol, an operator, or plain words."""
        name, prime = token.rstrip("'~"), "'" * token.count("'")
        if token.endswith("~"):
            return rf"\widetilde{{{NAMES.get(name, name)}}}"
        if name in NAMES or name in OPERATORS:
            return (NAMES.get(name) or OPERATORS[name]) + prime
        if len(name) == 1 and not (name == "a" and self.peek().isalpha()):
            return name + prime
        words = [name]
        while len(self.peek()) > 1 and self.peek().isalpha() and not self.special():
            words.append(self.rest.pop(0))
        return rf"\text{{ {' '.join(words)} }}"

    def special(self) -> bool:
        return self.peek() in NAMES or self.peek() in OPERATORS or self.peek() == "sqrt"


def unwrapped(text: str) -> str:
    """Without the round brackets about all of it, which a fraction or a root makes needless."""
    opening, closing = r"\left(", r"\right)"
    if not (text.startswith(opening) and text.endswith(closing)):
        return text
    inside = text.removeprefix(opening).removesuffix(closing)
    depth = 0
    for bracket in re.findall(r"\\left\(|\\right\)", inside):
        depth += 1 if bracket == opening else -1
        if depth < 0:
            return text
    return inside
