"""`balaclava choose`: a few questions, and a policy."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import click

from balaclava.cli.arms import ARMS
from balaclava.cli.delays import delay_options, lateness
from balaclava.cli.play import _progress

if TYPE_CHECKING:
    from balaclava._core.declared import Range
    from balaclava.advice.recommend import Recommendation

_QUESTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "rewards": (
        "What is a reward?",
        {
            "bounded": "a number in a range known beforehand (a click, a rating, yes or no)",
            "heavy-tailed": "any number, now and then very large; a bound on a moment is known",
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
_MORE: dict[str, tuple[tuple[str, ...], str, type, Any]] = {
    "moment_order": (_TAILED, "The known moment E|reward|^k: which k, above 1?", float, 2.0),
    "moment_bound": (_TAILED, "And what is it at most?", float, 1.0),
    "contamination": (("outliers",), "At most which share of rewards is wrong?", float, 0.05),
    "experts": (("experts",), "How many experts?", int, 10),
}
# Options that not every policy has a use for.
_ONLY_SOME = ("delta", "reward_range", *_MORE)


@click.command()
@click.option("--rewards", type=click.Choice(list(_QUESTIONS["rewards"][1])))
@click.option("--trust", type=click.Choice(list(_QUESTIONS["trust"][1])))
@click.option("--scope", type=click.Choice(list(_QUESTIONS["scope"][1])))
@click.option("--arms", type=ARMS, help="Number of arms, or their names: plain,friendly,map.")
@click.option("--horizon", type=int, help="Number of decisions.")
@click.option("--epsilon", type=float, help="Privacy loss.")
@click.option("--delta", type=float, help="Probability outside it.")
@click.option("--range", "reward_range", type=(float, float), help="Smallest and largest reward.")
@click.option("--moment-order", type=float, help="Order of the known moment, for heavy tails.")
@click.option("--moment-bound", type=float, help="Bound on that moment.")
@click.option("--typical", type=float, help="Or a typical size of a reward,")
@click.option("--largest", type=float, help="a very large one,")
@click.option("--one-in", type=float, help="and one reward in how many is as large.")
@click.option("--contamination", type=float, help="Bound on the share of outliers.")
@click.option("--experts", type=int, help="Number of experts.")
@click.option(
    "--ask/--no-ask",
    default=None,
    help="Ask what no option says, or take the usual; by default asks on a terminal.",
)
@click.option(
    "--simulate/--no-simulate",
    default=True,
    help="Try the policies that fit on plausible problems.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@delay_options
def choose(
    ask: bool | None,
    simulate: bool,
    as_json: bool,
    delay: float | None,
    law: str | None,
    lost: float | None,
    patience: int | None,
    **options: Any,
) -> None:
    """Answer a few questions and get a policy, what it promises and what it costs.

    \b
    Example: balaclava choose
    Example: balaclava choose --rewards bounded --arms 5 --horizon 10000 --epsilon 1
    """
    from balaclava.advice.questions import what_would_change
    from balaclava.advice.recommend import recommend

    ask = sys.stdin.isatty() and not as_json if ask is None else ask
    answers, derivation = _answers(options, ask)
    late = lateness(delay, law, lost, patience)
    with _progress() as progress:
        advice = recommend(**answers, simulate=simulate, progress=progress, **late)
    changes = what_would_change(
        advice, trust=answers["trust"], scope=answers.get("scope", "trajectory")
    )
    if as_json:
        outlook = advice.expect(**late) if simulate else None
        click.echo(json.dumps(_as_json(advice, answers, changes, outlook), indent=2))
        return
    click.echo(f"policy:   {advice.policy.name}, {advice.guarantee}")
    _say("why", advice.why)
    for note in advice.notes:
        _say("note", note)
    if derivation:
        _say("moment", derivation)
    usual = [f"{name}={value}" for name, value in answers.items() if options[name] is None]
    if derivation:  # which says more
        usual = [each for each in usual if not each.startswith("moment_")]
    if usual and not ask:
        _say("assumed", f"{', '.join(usual)}; give options where that is wrong, or --ask")
    unused = [name for name in _ONLY_SOME if options[name] is not None]
    unused = [name for name in unused if name not in advice.learner.annotations]
    if unused:
        _say("unused", f"{', '.join(unused)}, as {advice.learner.name} does not take it")
    _say("promise", advice.guarantee.explain())
    click.echo(f"use:      {advice.code}")
    if simulate:
        _expectation(advice, **late)
    for change in changes:
        _say("instead", change)
    _say(
        "more",
        f"`balaclava policies {advice.policy.name}` shows its rule and its parameters; `balaclava "
        "audit` tests its claim",
    )


def _as_json(
    advice: Recommendation, answers: dict[str, Any], changes: list[str], outlook: Any
) -> dict[str, Any]:
    promise = advice.guarantee
    return {
        "policy": advice.policy.name,
        "parameters": advice.policy.parameters,
        "code": advice.code,
        "guarantee": {
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "model": promise.model,
            "scope": promise.scope,
            "in_words": promise.explain(),
        },
        "why": advice.why,
        "notes": list(advice.notes),
        "instead": changes,
        "answers": answers,
        "expected": None if outlook is None else outlook._asdict(),
    }


def _expectation(advice: Recommendation, **late: Any) -> None:
    outlook = advice.expect(**late)
    _say(
        "regret",
        f"{_number(outlook.regret)} ± {_number(outlook.plus_minus)} after {outlook.rounds:,} "
        f"rounds, simulated on {outlook.instance}; choosing at random "
        f"{_number(outlook.random_regret)}",
    )
    tuned = " and was tuned" if advice.baseline_label != advice.baseline.name else ""
    baseline = f"{advice.baseline_label}, which is not private{tuned}"
    other = f"the {_number(outlook.baseline_regret)} of {baseline}"
    if tuned and "radius_scale" in advice.policy.annotations:
        _say(
            "price",
            f"not stated: {advice.policy.name} is at the constants of its proof here, and "
            f"{baseline}; `balaclava calibrate` tunes it, `balaclava compare` both on a log",
        )
    elif outlook.price >= 1:
        _say("price", f"{outlook.price:.3g} times {other}")
    elif math.isnan(outlook.price):
        _say("price", f"no difference from {other}")
    else:
        _say("price", f"none here: {outlook.price:.3g} times {other}")
    if outlook.rounds < advice.horizon:
        _say(
            "short",
            f"only {outlook.rounds:,} of the {advice.horizon:,} rounds were simulated",
        )
    if outlook.in_vain and advice.policy is advice.learner:
        _say("warning", "hardly better than at random: raise epsilon or the horizon")


def _number(value: float) -> str:
    """Whole from 10 on; smaller ones, as of rewards on a small scale, with three digits."""
    return f"{value:,.0f}" if value == 0 or value >= 10 else f"{value:.3g}"


def _say(what: str, text: str) -> None:
    click.echo(
        textwrap.fill(text, 96, initial_indent=f"{what + ':':<10}", subsequent_indent=" " * 10)
    )


def _answers(from_options: dict[str, Any], ask: bool) -> tuple[dict[str, Any], str]:
    """What was said by options, then by answers, then what is usual; and how a moment follows."""
    answers = {name: value for name, value in from_options.items() if value is not None}
    for name, (question, options) in _QUESTIONS.items():
        if name == "scope" and answers["trust"] == "local":
            continue  # a report covers both
        if name not in answers:
            answers[name] = _pick(question, options) if ask else next(iter(options))
    questions = dict(_NUMBERS)
    for name, (kinds, question, kind, usual) in _MORE.items():
        if answers["rewards"] in kinds:
            questions[name] = (question, kind, usual)
    if ask and answers["rewards"] == "bounded" and "reward_range" not in answers:
        from balaclava._core.declared import Range

        low = _ask("The smallest reward?", float, 0.0, Range())
        above = Range(low, open_low=True)
        answers["reward_range"] = (low, _ask("The largest?", float, max(1.0, low + 1.0), above))
    derivation = _moments(answers, ask)
    for name, (question, kind, usual) in questions.items():
        if name not in answers:
            answers[name] = _ask(question, kind, usual, _allowed(name)) if ask else usual
    return answers, derivation


def _moments(answers: dict[str, Any], ask: bool) -> str:
    """A moment from a typical reward and a rare one, where the rewards call for it."""
    from balaclava._core.declared import Range
    from balaclava.advice.questions import moments_from

    tail = {name: answers.pop(name) for name in _TAIL if name in answers}
    direct = "moment_order" in answers or "moment_bound" in answers
    if tail and (direct or answers["rewards"] not in _TAILED):
        raise click.UsageError(
            "--typical, --largest and --one-in are for heavy-tailed rewards, instead of "
            "--moment-order and --moment-bound"
        )
    if answers["rewards"] not in _TAILED or direct or not (ask or tail):
        return ""
    if not ask and len(tail) < len(_TAIL):
        raise click.UsageError("give --typical, --largest and --one-in together")
    low = 0.0
    for name, (question, usual) in _TAIL.items():
        if name not in tail:
            above = Range(2 if name == "one_in" else low, open_low=True)
            tail[name] = _ask(question, float, usual if usual > low else 10 * low, above)
        low = tail[name]
    moments = moments_from(**tail)
    answers |= {"moment_order": moments.order, "moment_bound": moments.bound}
    return moments.derivation


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


def _ask(question: str, kind: type, usual: Any, allowed: Range) -> Any:
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
    number: int = _ask("Number", int, 1, Range(1, len(options)))
    return list(options)[number - 1]
