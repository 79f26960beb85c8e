"""Questions about rewards, trust and size: asked on a terminal, or answered by options."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import click

from balaclava.cli.options import ARMS

if TYPE_CHECKING:
    from balaclava._core.declared import Range
    from balaclava.advice.choose.questions import Moments

_QUESTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "rewards": (
        "What is a reward?",
        {
            "bounded": "a number in a range known beforehand (a click, a rating, yes or no)",
            "heavy-tailed": "any number, now and then very large; you know about how often",
            "unknown-tails": "any number, now and then very large; nothing is known of it",
            "outliers": "any number, and some of them are wrong (bots, broken sensors)",
            "adversarial": "a loss from 0 to 1 that follows no law, or that someone chooses",
            "experts": "such a loss, and experts advise on each decision",
        },
    ),
    "trust": (
        "Who may see the rewards?",
        {
            "central": "the operator, who is trusted with them",
            "local": "nobody: each person's device adds noise before anything leaves it",
        },
    ),
    "scope": (
        "What does an observer see?",
        {
            "trajectory": "all decisions of the run",
            "decision": "one decision, such as the one about themselves, and no other",
        },
    ),
}
_NUMBERS: dict[str, tuple[str, type, Any]] = {
    "arms": ("How many arms (options) are there?", int, 5),
    "horizon": ("How many decisions will be made?", int, 10_000),
    "epsilon": ("Which privacy loss, epsilon? (0.1 strict, 1 usual, 5 lax)", float, 1.0),
}
_TAILED = ("heavy-tailed", "outliers")
# From which a moment follows: nobody knows one by heart.
_TAIL: dict[str, tuple[str, float]] = {
    "typical": ("How large is a typical reward, signs aside? (half are larger)", 1.0),
    "largest": ("And a very large one, such as the largest of a month?", 100.0),
    "one_in": ("One reward in how many is as large as that?", 10_000.0),
}
# What is asked only where the rewards call for it.
MORE: dict[str, tuple[tuple[str, ...], str, type, Any]] = {
    "moment_order": (_TAILED, "The known moment E|reward|^k: which k, above 1?", float, 2.0),
    "moment_bound": (_TAILED, "And what is it at most?", float, 1.0),
    "contamination": (("outliers",), "At most which share of rewards is wrong?", float, 0.05),
    "experts": (("experts",), "How many experts?", int, 10),
}

_OPTIONS = (
    click.option("--rewards", type=click.Choice(list(_QUESTIONS["rewards"][1]))),
    click.option("--trust", type=click.Choice(list(_QUESTIONS["trust"][1]))),
    click.option("--scope", type=click.Choice(list(_QUESTIONS["scope"][1]))),
    click.option("--arms", type=ARMS, help="Number of arms, or their names: plain,friendly,map."),
    click.option("--horizon", type=int, help="Number of decisions."),
    click.option("--epsilon", type=float, help="Privacy loss."),
    click.option("--delta", type=float, help="Probability outside it."),
    click.option(
        "--range", "reward_range", type=(float, float), help="Smallest and largest reward."
    ),
    click.option("--moment-order", type=float, help="Order of the known moment, for heavy tails."),
    click.option("--moment-bound", type=float, help="Bound on that moment."),
    click.option("--typical", type=float, help="Or a typical size of a reward,"),
    click.option("--largest", type=float, help="a very large one,"),
    click.option("--one-in", type=float, help="and one reward in how many is as large."),
    click.option("--contamination", type=float, help="Bound on the share of outliers."),
    click.option("--experts", type=int, help="Number of experts."),
    click.option(
        "--ask/--no-ask",
        default=None,
        help="Ask what no option says, or take the usual; by default asks on a terminal.",
    ),
)


def answer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each question, and whether to ask."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def usual_answers(
    options: dict[str, Any], answers: dict[str, Any], moments: Moments | None
) -> list[str]:
    """What was assumed where no option said it, in a sentence."""
    usual = [f"{name}={value}" for name, value in answers.items() if options[name] is None]
    if moments is not None:  # whose derivation says more
        usual = [each for each in usual if not each.startswith("moment_")]
    return [f"{', '.join(usual)}; give options where that is wrong, or --ask"] if usual else []


def read_kind(from_options: dict[str, Any], ask: bool) -> dict[str, Any]:
    """What options say, and which rewards, whose trust and which scope they leave open."""
    answers = {name: value for name, value in from_options.items() if value is not None}
    for name, (question, options) in _QUESTIONS.items():
        if name == "scope" and answers["trust"] == "local":
            continue  # a report covers both
        if name not in answers:
            answers[name] = _pick(question, options) if ask else next(iter(options))
    return answers


def read_answers(from_options: dict[str, Any], ask: bool) -> tuple[dict[str, Any], Moments | None]:
    """What options say, then answers, then what is usual; and the moments that follow, if any."""
    answers = read_kind(from_options, ask)
    questions = dict(_NUMBERS)
    for name, (kinds, question, kind, usual) in MORE.items():
        if answers["rewards"] in kinds:
            questions[name] = (question, kind, usual)
    if ask and answers["rewards"] == "bounded" and "reward_range" not in answers:
        from balaclava._core.declared import Range

        low = ask_number("The smallest reward?", float, 0.0, Range())
        above = Range(low, open_low=True)
        answers["reward_range"] = (
            low,
            ask_number("The largest?", float, max(1.0, low + 1.0), above),
        )
    moments = _moments(answers, ask)
    for name, (question, kind, usual) in questions.items():
        if name not in answers:
            answers[name] = ask_number(question, kind, usual, _allowed(name)) if ask else usual
    return answers, moments


def _moments(answers: dict[str, Any], ask: bool) -> Moments | None:
    """A moment from a typical reward and a rare one, where the rewards call for it."""
    from balaclava._core.declared import Range
    from balaclava.advice.choose.questions import moments_from

    tail = {name: answers.pop(name) for name in _TAIL if name in answers}
    direct = "moment_order" in answers or "moment_bound" in answers
    if tail and (direct or answers["rewards"] not in _TAILED):
        raise click.UsageError(
            "--typical, --largest and --one-in are for heavy-tailed rewards, instead of "
            "--moment-order and --moment-bound"
        )
    if answers["rewards"] not in _TAILED or direct or not (ask or tail):
        return None
    if not ask and len(tail) < len(_TAIL):
        raise click.UsageError("give --typical, --largest and --one-in together")
    low = 0.0
    for name, (question, usual) in _TAIL.items():
        if name not in tail:
            above = Range(2 if name == "one_in" else low, open_low=True)
            tail[name] = ask_number(question, float, usual if usual > low else 10 * low, above)
        low = tail[name]
    moments = moments_from(**tail)
    answers |= {"moment_order": moments.order, "moment_bound": moments.bound}
    return moments


def _allowed(name: str) -> Range:
    """The numbers that the advice is given on."""
    from balaclava._core.declared import Range

    return {
        "arms": Range(1),
        "horizon": Range(2, 10**12),
        "epsilon": Range(0, open_low=True),
        "moment_order": Range(1, open_low=True),
        "moment_bound": Range(0, open_low=True),
        "contamination": Range(0, 0.5, open_high=True),
        "experts": Range(1),
    }[name]


def ask_number(question: str, kind: type, usual: Any, allowed: Range) -> Any:
    """A number that is allowed: after any other answer the question is asked again."""
    from balaclava._core.declared import check
    from balaclava.errors import ParameterError

    def read(answer: Any) -> Any:
        try:
            return check("the answer", kind(answer), Annotated[kind, allowed])
        except ParameterError as error:
            raise click.UsageError(str(error)) from None
        except ValueError:
            whole = "whole " if kind is int else ""
            raise click.UsageError(f"{answer!r} is not a {whole}number") from None

    return click.prompt(question, default=usual, value_proc=read)


def _pick(question: str, options: dict[str, str]) -> str:
    from balaclava._core.declared import Range

    click.echo(question)
    for i, (_, meaning) in enumerate(options.items(), start=1):
        click.echo(f"  {i}  {meaning}")
    number: int = ask_number("Number", int, 1, Range(1, len(options)))
    return list(options)[number - 1]


def say(what: str, text: str) -> None:
    """A line, or several, beginning with what it is about."""
    click.echo(
        textwrap.fill(text, 96, initial_indent=f"{what + ':':<10}", subsequent_indent=" " * 10)
    )
