"""`balaclava choose`: a policy from a few answers."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from balaclava._core.number_format import significant
from balaclava.cli import prompts
from balaclava.cli.options import delay_options, option, pop_delay
from balaclava.cli.terminal import (
    print_cells,
    print_code,
    print_json,
    print_labelled,
    print_sentences,
    progress_bar,
)

if TYPE_CHECKING:
    from balaclava.advice.choose.recommend import Expectation, Recommendation
    from balaclava.privacy.guarantee import Guarantee

# Parameters that some policies take.
_SPECIAL_PARAMETERS = ("delta", "reward_range", *prompts.SPECIAL_QUESTIONS)


@click.command(short_help="Recommend a policy.")
@prompts.goal_options
@prompts.answer_options
@option(
    "--average --rate average",
    float,
    "What a usual arm earns on average, such as a conversion rate.",
)
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

    Asks a few questions about your goal, rewards, trust and size. Options answer them in advance.
    With a goal and rewards in a known range it plans the trial, too: how many participants until
    the best arm is named. Several epsilons are compared side by side.

    \b
    Example: balaclava choose
    Example: balaclava choose --goal best --arms 4 --horizon 1200 --average 0.6 --difference 0.1
    Example: balaclava choose --arms 4 --horizon 20000 --epsilon 0.1,0.3,1,3
    Example: balaclava choose --arms 4 --horizon 20000 --delay 300 --settle window --patience 600 \\
                 --missing 0
    Example: balaclava choose --rewards bounded --arms 5 --horizon 10000 --epsilon 1 \\
                 --average 0.03 --difference 0.005
    Example: balaclava choose --rewards heavy-tailed --typical 20 --largest 500 --one-in 10000
    """
    from balaclava.advice.choose.questions import what_would_change
    from balaclava.advice.choose.recommend import recommend
    from balaclava.agents.settling import Settling, guarantee_when_settled

    ask = sys.stdin.isatty() and not as_json if ask is None else ask
    late = pop_delay(options)
    goal = prompts.read_goal(options, ask)
    around = {name: options.pop(name) for name in prompts.PROBLEM_QUESTIONS}
    answers, moment = prompts.read_answers(options, ask)
    asked = ask and simulate and answers["rewards"] == "bounded"
    if asked or any(value is not None for value in around.values()):
        answers |= prompts.average_and_difference(around, answers, None, asked)
    options |= around
    if isinstance(answers["epsilon"], list):
        _print_epsilons(answers, goal["confidence"], simulate, as_json, **late)
        return
    with progress_bar() as progress:
        advice = recommend(**answers, **goal, simulate=simulate, progress=progress, **late)
    scope = answers.get("scope", "trajectory")
    changes = what_would_change(advice, trust=answers["trust"], scope=scope)
    settling = {name: late[name] for name in Settling._fields if name in late}
    promise = advice.guarantee
    if late:
        window = settling.get("settle") == "window"
        promise = guarantee_when_settled(promise, window=window, copied=False)
    if as_json:
        outlook = advice.expect(**late) if simulate else None
        print_json(_as_json(advice, promise, answers, changes, outlook) | {"settling": settling})
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
    print_labelled("promise", promise.explain())
    print_code("use", advice.code)
    if settling:
        words = ", ".join(f"{name}={value!r}" for name, value in settling.items())
        print_code("agent", f"policy.agent({words})")
    if advice.plan is not None:
        print_labelled("plan", f"{advice.plan.sentence} Simulated: {advice.plan.conditions}.")
    if simulate:
        _print_expectation(advice, **late)
    for change in changes:
        print_labelled("instead", change)
    print_labelled(
        "more",
        f"`balaclava policies {advice.policy.name}` shows its rule and parameters; `balaclava "
        "audit` tests its guarantee",
    )


def _print_epsilons(
    answers: dict[str, Any], confidence: float, simulate: bool, as_json: bool, **late: Any
) -> None:
    """Compare several epsilons."""
    from balaclava.advice.choose.epsilon_table import epsilon_table

    if not simulate:
        raise click.UsageError("several epsilons are compared by simulation; omit --no-simulate")
    others = {name: value for name, value in answers.items() if name != "epsilon"}
    with progress_bar() as progress:
        table = epsilon_table(
            answers["epsilon"], **others, confidence=confidence, progress=progress, **late
        )
    if as_json:
        print_json({"title": table.title, "epsilons": [row._asdict() for row in table]})
        return
    print_cells(table.cells)
    print_sentences([f"{table.title}. Give one epsilon to get its policy, promise and plan."])


def _as_json(
    advice: Recommendation,
    promise: Guarantee,
    answers: dict[str, Any],
    changes: list[str],
    outlook: Any,
) -> dict[str, Any]:
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
        "goal": advice.goal,
        "plan": None if advice.plan is None else [row._asdict() for row in advice.plan],
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
    if advice.goal != "best":  # what an answer costs is in the plan
        _print_price(advice, outlook)
    if outlook.rounds < advice.horizon:
        print_labelled("short", f"simulated only {outlook.rounds:,} of {advice.horizon:,} rounds")
    if outlook.hardly_better and advice.policy is advice.learner and advice.goal != "best":
        print_labelled("warning", "hardly better than playing at random: raise epsilon or horizon")


def _print_price(advice: Recommendation, outlook: Expectation) -> None:
    """Compare the regret with that of the baseline."""
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
