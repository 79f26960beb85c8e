"""Questions about rewards, trust and size, answered by options or on a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import click

from balaclava.cli.options import ARMS_TYPE, EPSILONS_TYPE, combined, option

if TYPE_CHECKING:
    from balaclava._core.declared import Range
    from balaclava.advice.choose.questions import DerivedMoment

# Multiple-choice questions: {parameter: (question, {answer: meaning})}; the first is the default.
_CHOICES: dict[str, tuple[str, dict[str, str]]] = {
    "rewards": (
        "What is a reward?",
        {
            "bounded": "a number in a known range (a click, a rating, yes or no)",
            "heavy-tailed": "any number, sometimes very large; you know about how often",
            "unknown-tails": "any number, sometimes very large; you do not know how often",
            "outliers": "any number, and some are wrong (bots, broken sensors)",
            "adversarial": "a loss from 0 to 1 that follows no law, or that an adversary chooses",
            "experts": "such a loss, and experts advise on each decision",
        },
    ),
    "trust": (
        "Who may see the rewards?",
        {
            "central": "the operator, who is trusted with them",
            "local": "no one: each participant's device adds noise before it reports",
            "split": "neither of two servers: each gets a random share",
        },
    ),
    "scope": (
        "What does an observer see?",
        {
            "trajectory": "all decisions of the run",
            "decision": "one decision only, such as the one about the observer",
        },
    ),
}
_GOALS = {
    "regret": "that as few participants as possible get a worse arm",
    "best": "to know which arm is best, and when to stop",
}
_NUMBERS_ASKED: dict[str, tuple[str, type, Any]] = {  # question, type, default
    "arms": ("How many arms (options) are there?", int, 5),
    "horizon": ("How many decisions will be made?", int, 10_000),
    "epsilon": ("Which privacy loss, epsilon? (0.1 strict, 1 usual, 5 lax)", float, 1.0),
}
_TAILED = ("heavy-tailed", "outliers")
# Three numbers that users know and that give a moment; defaults are examples.
_TAIL_QUESTIONS: dict[str, tuple[str, float]] = {
    "typical": ("How large is a typical reward, ignoring its sign? (half are larger)", 1.0),
    "largest": ("How large is a very large one, such as the largest of a month?", 100.0),
    "one_in": ("One reward in how many is as large as that?", 10_000.0),
}
# Asked only for some rewards: {parameter: (kinds of rewards, question, type, default)}.
SPECIAL_QUESTIONS: dict[str, tuple[tuple[str, ...], str, type, Any]] = {
    "moment_order": (_TAILED, "The known moment E|reward|^k: which k, above 1?", float, 2.0),
    "moment_bound": (_TAILED, "And what is it at most?", float, 1.0),
    "contamination": (("outliers",), "At most which share of rewards is wrong?", float, 0.05),
    "experts": (("experts",), "How many experts?", int, 10),
}

PROBLEM_QUESTIONS = {
    "average": "What does a usual arm earn on average? (such as a conversion rate)",
    "difference": "By how much must the best arm be better to be worth finding?",
}

goal_options = combined(
    option("--goal", [*_GOALS], "regret: few get a worse arm. best: know which arm is best."),
    option("--confidence", float, "Chance that a named arm is the best.", default=0.95),
)
answer_options = combined(
    option("--rewards", [*_CHOICES["rewards"][1]], "Kind of rewards."),
    option(
        "--trust",
        [*_CHOICES["trust"][1]],
        "central: the operator may see rewards. local: devices add the noise.",
    ),
    option(
        "--scope",
        [*_CHOICES["scope"][1]],
        "What an observer sees: the whole trajectory, or one decision.",
    ),
    option("--arms", ARMS_TYPE, "Number of arms, or their names: plain,friendly,map."),
    option("--horizon", int, "Number of decisions."),
    option("--epsilon", EPSILONS_TYPE, "Privacy loss."),
    option("--delta", float, "Probability outside it."),
    option("--range reward_range", (float, float), "Smallest and largest reward."),
    option("--moment-order", float, "Order of the known moment, for heavy tails."),
    option("--moment-bound", float, "Bound on that moment."),
    option("--typical", float, "Instead of a moment: a typical size of a reward."),
    option("--largest", float, "With --typical: a very large reward."),
    option("--one-in", float, "With --largest: one reward in how many exceeds it."),
    option("--contamination", float, "Bound on the share of outliers."),
    option("--experts", int, "Number of experts."),
    option(
        "--ask/--no-ask",
        bool,
        "Ask for what no option gives, or assume defaults. By default asks on a terminal.",
        default=None,
    ),
)


def assumed_answers(
    options: dict[str, Any], answers: dict[str, Any], moment: DerivedMoment | None
) -> list[str]:
    """The defaults that were assumed, in a sentence; empty if there are none."""
    assumed = [f"{name}={value}" for name, value in answers.items() if options[name] is None]
    if moment is not None:  # its derivation is printed instead
        assumed = [each for each in assumed if not each.startswith("moment_")]
    return [f"{', '.join(assumed)}; give options to change that, or --ask"] if assumed else []


def read_goal(options: dict[str, Any], ask: bool) -> dict[str, Any]:
    """Goal and confidence, by option or answer; no goal if there is neither."""
    goal, confidence = options.pop("goal"), options.pop("confidence")
    if goal is None and ask:
        goal = _pick("What do you want?", _GOALS)
    return {"goal": goal, "confidence": confidence}


def read_choices(options: dict[str, Any], ask: bool) -> dict[str, Any]:
    """The options given, and rewards, trust and scope by answer or default."""
    answers = {name: value for name, value in options.items() if value is not None}
    for name, (question, choices) in _CHOICES.items():
        if name == "scope" and answers["trust"] != "central":
            continue  # a report covers both, and so does a server's view
        if name not in answers:
            answers[name] = _pick(question, choices) if ask else next(iter(choices))
    return answers


def read_answers(options: dict[str, Any], ask: bool) -> tuple[dict[str, Any], DerivedMoment | None]:
    """All parameters by option, answer or default, and the derived moment if there is one."""
    answers = read_choices(options, ask)
    questions = dict(_NUMBERS_ASKED)
    for name, (kinds, question, kind, default) in SPECIAL_QUESTIONS.items():
        if answers["rewards"] in kinds:
            questions[name] = (question, kind, default)
    if ask and answers["rewards"] == "bounded" and "reward_range" not in answers:
        answers["reward_range"] = _ask_range()
    moment = _derive_moment(answers, ask)
    for name, (question, kind, default) in questions.items():
        if name not in answers:
            answers[name] = ask_number(question, kind, default, _allowed(name)) if ask else default
    return answers, moment


def average_and_difference(
    options: dict[str, Any], answers: dict[str, Any], moment: DerivedMoment | None, ask: bool
) -> dict[str, Any]:
    """The average and the difference of the problems; empty for other rewards."""
    from balaclava._core.declared import Range, check

    direct = {name: value for name, value in options.items() if value is not None}
    if answers["rewards"] != "bounded" and moment is None:
        if direct:
            raise click.UsageError(
                "--average and --difference are for bounded rewards, or with --typical, --largest "
                "and --one-in"
            )
        return {}
    low, high = answers.get("reward_range", (0.0, 1.0))
    usual = (low + high) / 2
    limits = Range(low, math.inf if moment is not None else high, open_high=True)
    if moment is not None:
        if "average" in direct:
            raise click.UsageError("--average follows from --typical, --largest and --one-in")
        direct["average"] = float(f"{moment.average:.3g}")
    elif "average" not in direct and ask:
        direct["average"] = ask_number(PROBLEM_QUESTIONS["average"], float, usual, limits)
    average = check("average", direct.setdefault("average", usual), Annotated[float, limits])
    room = average if moment is not None else high - average
    gap = float(f"{min(0.2 * room, 0.5 * abs(average - low) or room):.2g}")
    if "difference" not in direct:
        limits = Range(0, room, open_low=True)
        question = PROBLEM_QUESTIONS["difference"]
        direct["difference"] = ask_number(question, float, gap, limits) if ask else gap
    return direct


def _ask_range() -> tuple[float, float]:
    from balaclava._core.declared import Range

    low = ask_number("The smallest reward?", float, 0.0, Range())
    above = Range(low, open_low=True)
    return low, ask_number("The largest?", float, max(1.0, low + 1.0), above)


def _derive_moment(answers: dict[str, Any], ask: bool) -> DerivedMoment | None:
    """A moment from a typical reward and a rare one, for heavy-tailed rewards."""
    from balaclava._core.declared import Range
    from balaclava.advice.choose.questions import derive_moment

    tail = {name: answers.pop(name) for name in _TAIL_QUESTIONS if name in answers}
    direct = "moment_order" in answers or "moment_bound" in answers
    if tail and (direct or answers["rewards"] not in _TAILED):
        raise click.UsageError(
            "--typical, --largest and --one-in replace --moment-order and --moment-bound, for "
            "heavy-tailed rewards only"
        )
    if answers["rewards"] not in _TAILED or direct or not (ask or tail):
        return None
    if not ask and len(tail) < len(_TAIL_QUESTIONS):
        raise click.UsageError("give --typical, --largest and --one-in together")
    low = 0.0
    for name, (question, default) in _TAIL_QUESTIONS.items():
        if name not in tail:
            above = Range(2 if name == "one_in" else low, open_low=True)
            tail[name] = ask_number(question, float, default if default > low else 10 * low, above)
        low = tail[name]
    moment = derive_moment(**tail)
    answers |= {"moment_order": moment.order, "moment_bound": moment.bound}
    return moment


def _allowed(name: str) -> Range:
    from balaclava._core.declared import Range

    return {
        "arms": Range(2),
        "horizon": Range(2, 10**12),
        "epsilon": Range(0, open_low=True),
        "moment_order": Range(1, open_low=True),
        "moment_bound": Range(0, open_low=True),
        "contamination": Range(0, 0.5, open_high=True),
        "experts": Range(1),
    }[name]


def ask_number(question: str, kind: type, default: Any, allowed: Range) -> Any:
    """Ask for a number until the answer is allowed."""
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

    return click.prompt(question, default=default, value_proc=read)


def _pick(question: str, choices: dict[str, str]) -> str:
    from balaclava._core.declared import Range

    click.echo(question)
    for i, meaning in enumerate(choices.values(), start=1):
        click.echo(f"  {i}  {meaning}")
    number: int = ask_number("Number", int, 1, Range(1, len(choices)))
    return list(choices)[number - 1]
