"""`balaclava choose`: a policy from a few answers."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from balaclava._core.number_format import significant
from balaclava.cli import prompts
from balaclava.cli.options import delay_options, option, pop_delay
from balaclava.cli.terminal import print_code, print_json, print_labelled, progress_bar

if TYPE_CHECKING:
    from balaclava.advice.choose.recommend import Recommendation

# Parameters that some policies take.
_SPECIAL_PARAMETERS = ("delta", "reward_range", *prompts.SPECIAL_QUESTIONS)


@click.command(short_help="Recommend a policy.")
@prompts.answer_options
@option("--average", float, "What a usual arm earns on average, such as a conversion rate.")
@option("--difference", float, "How far ahead of it the best arm is at least.")
@option(
    "--simulate/--no-simulate",
    bool,
    "Play the policies that fit on plausible problems.",
    default=True,
)
@option("--json as_json", bool, "Print the answer as JSON.")
@delay_options
def choose(ask: bool | None, simulate: bool, as_json: bool, **options: Any) -> None:
    """Recommend a policy, with its guarantee and its expected regret.

    Asks a few questions about rewards, trust and size. Options answer them in advance.

    \b
    Example: balaclava choose
    Example: balaclava choose --rewards bounded --arms 5 --horizon 10000 --epsilon 1 \\
                 --average 0.03 --difference 0.005
    Example: balaclava choose --rewards heavy-tailed --typical 20 --largest 500 --one-in 10000
    """
    from balaclava.advice.choose.questions import what_would_change
    from balaclava.advice.choose.recommend import recommend

    ask = sys.stdin.isatty() and not as_json if ask is None else ask
    late = pop_delay(options)
    around = {name: options.pop(name) for name in prompts.PROBLEM_QUESTIONS}
    answers, moment = prompts.read_answers(options, ask)
    asked = ask and simulate and answers["rewards"] == "bounded"
    if asked or any(value is not None for value in around.values()):
        answers |= prompts.average_and_difference(around, answers, None, asked)
    options |= around
    with progress_bar() as progress:
        advice = recommend(**answers, simulate=simulate, progress=progress, **late)
    scope = answers.get("scope", "trajectory")
    changes = what_would_change(advice, trust=answers["trust"], scope=scope)
    if as_json:
        outlook = advice.expect(**late) if simulate else None
        print_json(_as_json(advice, answers, changes, outlook))
        return
    print_code("policy", f"{advice.policy.name}, {advice.guarantee}")
    print_labelled("why", advice.why)
    for note in advice.notes:
        print_labelled("note", note)
    if moment is not None:
        print_labelled("moment", moment.derivation)
    if not ask:
        for sentence in prompts.assumed_answers(options, answers, moment):
            print_labelled("assumed", sentence)
    unused = [name for name in _SPECIAL_PARAMETERS if options[name] is not None]
    unused = [name for name in unused if name not in advice.learner.annotations]
    if unused:
        print_labelled("unused", f"{', '.join(unused)}: {advice.learner.name} does not take it")
    print_labelled("promise", advice.guarantee.explain())
    print_code("use", advice.code)
    if simulate:
        _print_expectation(advice, **late)
    for change in changes:
        print_labelled("instead", change)
    print_labelled(
        "more",
        f"`balaclava policies {advice.policy.name}` shows its rule and parameters; `balaclava "
        "audit` tests its guarantee",
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


def _print_expectation(advice: Recommendation, **late: Any) -> None:
    outlook = advice.expect(**late)
    assumed = ""
    if advice.around is None:
        assumed = ", which are assumed"
        if advice.rewards == "bounded":
            assumed += ": give yours with --average and --difference"
    print_labelled(
        "regret",
        f"{significant(outlook.regret)} ± {significant(outlook.plus_minus)}, against "
        f"{significant(outlook.random_regret)} at random, after {outlook.rounds:,} rounds of "
        f"{outlook.instance}{assumed}",
    )
    tuned = " and was tuned" if advice.baseline_label != advice.baseline.name else ""
    baseline = f"{advice.baseline_label}, which is not private{tuned}"
    other = f"the {significant(outlook.baseline_regret)} of {baseline}"
    if tuned and "radius_scale" in advice.policy.annotations:
        print_labelled(
            "price",
            f"not stated: {advice.policy.name} has the constants of its proof here, but the "
            f"baseline is {baseline}; `balaclava calibrate` tunes the policy, `balaclava compare` "
            "tunes both on a log",
        )
    elif outlook.price >= 1:
        print_labelled("price", f"{outlook.price:.3g} times {other}")
    elif math.isnan(outlook.price):
        print_labelled("price", f"no difference from {other}")
    else:
        print_labelled("price", f"none here: {outlook.price:.3g} times {other}")
    if outlook.rounds < advice.horizon:
        print_labelled("short", f"simulated only {outlook.rounds:,} of {advice.horizon:,} rounds")
    if outlook.hardly_better and advice.policy is advice.learner:
        print_labelled("warning", "hardly better than playing at random: raise epsilon or horizon")
