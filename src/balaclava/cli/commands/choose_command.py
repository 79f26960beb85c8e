"""`balaclava choose`: a few questions, and a policy."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

from balaclava._core.number_format import significant
from balaclava.cli.options import delay_options, lateness
from balaclava.cli.prompts import MORE, answer_options, read_answers, say, usual_answers
from balaclava.cli.terminal import progress_bar

if TYPE_CHECKING:
    from balaclava.advice.choose.recommend import Recommendation

# Options that not every policy has a use for.
_ONLY_SOME = ("delta", "reward_range", *MORE)


@click.command()
@answer_options
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
    from balaclava.advice.choose.questions import what_would_change
    from balaclava.advice.choose.recommend import recommend

    ask = sys.stdin.isatty() and not as_json if ask is None else ask
    answers, moments = read_answers(options, ask)
    late = lateness(delay, law, lost, patience)
    with progress_bar() as progress:
        advice = recommend(**answers, simulate=simulate, progress=progress, **late)
    changes = what_would_change(
        advice, trust=answers["trust"], scope=answers.get("scope", "trajectory")
    )
    if as_json:
        outlook = advice.expect(**late) if simulate else None
        click.echo(json.dumps(_as_json(advice, answers, changes, outlook), indent=2))
        return
    click.echo(f"policy:   {advice.policy.name}, {advice.guarantee}")
    say("why", advice.why)
    for note in advice.notes:
        say("note", note)
    if moments is not None:
        say("moment", moments.derivation)
    if not ask:
        for sentence in usual_answers(options, answers, moments):
            say("assumed", sentence)
    unused = [name for name in _ONLY_SOME if options[name] is not None]
    unused = [name for name in unused if name not in advice.learner.annotations]
    if unused:
        say("unused", f"{', '.join(unused)}, as {advice.learner.name} does not take it")
    say("promise", advice.guarantee.explain())
    click.echo(f"use:      {advice.code}")
    if simulate:
        _expectation(advice, **late)
    for change in changes:
        say("instead", change)
    say(
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
    say(
        "regret",
        f"{significant(outlook.regret)} ± {significant(outlook.plus_minus)} after "
        f"{outlook.rounds:,} rounds, simulated on {outlook.instance}; choosing at random "
        f"{significant(outlook.random_regret)}",
    )
    tuned = " and was tuned" if advice.baseline_label != advice.baseline.name else ""
    baseline = f"{advice.baseline_label}, which is not private{tuned}"
    other = f"the {significant(outlook.baseline_regret)} of {baseline}"
    if tuned and "radius_scale" in advice.policy.annotations:
        say(
            "price",
            f"not stated: {advice.policy.name} is at the constants of its proof here, and "
            f"{baseline}; `balaclava calibrate` tunes it, `balaclava compare` both on a log",
        )
    elif outlook.price >= 1:
        say("price", f"{outlook.price:.3g} times {other}")
    elif math.isnan(outlook.price):
        say("price", f"no difference from {other}")
    else:
        say("price", f"none here: {outlook.price:.3g} times {other}")
    if outlook.rounds < advice.horizon:
        say(
            "short",
            f"only {outlook.rounds:,} of the {advice.horizon:,} rounds were simulated",
        )
    if outlook.in_vain and advice.policy is advice.learner:
        say("warning", "hardly better than at random: raise epsilon or the horizon")
