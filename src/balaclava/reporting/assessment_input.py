"""The file behind the page for a review board: `balaclava assessment --init` writes it."""

import contextlib
import datetime
import hashlib
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import balaclava
from balaclava._core.declared import Horizon, Range, brief, check
from balaclava._core.extras import require_extra
from balaclava.advice.plan.trial_plan import (
    EVEN_POLICY,
    USUAL_EPSILONS,
    PlanRow,
    TrialPlan,
    plan,
    planned_trial,
)
from balaclava.agents.settling import Settling, guarantee_when_settled, require_missing
from balaclava.environments.base import ENVIRONMENTS, Environment
from balaclava.errors import BalaclavaError, ExperimentFileError, ParameterError, nearest
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.base import policy as make_policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.reporting.nist_levels import nist_levels
from balaclava.reporting.quick_audits import QUICK_TRIALS, AuditSummary, run_audits
from balaclava.simulation.engine import Progress, simulate
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.results import Results

AT_RANDOM = "at random"
_TEXTS = ("title", "owner", "purpose", "population")
_TABLES = ("policy", "environment", "delay", "plan", "simulation", "answers", "registry")
_REGISTRY = ("region", "sector")
# Keys of [simulation] and their smallest values; 20 runs are the fewest with a 95 % quantile.
_SMALLEST = {"horizon": 1, "repetitions": 20, "seed": 0}
_SETTLING_ADVICE = '; if it does, set settle = "window"'


class PlanInput(NamedTuple):
    """What is known of a trial that shall name the best arm; see `bl.plan`."""

    base_rate: float
    smallest_difference: float
    confidence: float = 0.95


@dataclass(frozen=True)
class AssessmentInput:
    """The input of a page for a review board. Empty texts are blanks on the page."""

    policy: Policy
    environment: Environment | None = None  # None: nothing is simulated
    horizon: int = 0
    title: str = ""
    owner: str = ""
    purpose: str = ""
    population: str = ""
    date: str = ""
    rewards_per_person: int | None = 1  # at most; None: not counted
    rewards_apart: bool = False  # whether no two rewards of a person are in one release
    repetitions: int = 200
    seed: int = 1
    answers: dict[str, str] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)  # for a registry of deployments
    digest: str = ""  # of the file and of this package's version
    guarantee: Guarantee | None = None  # of the deployment, if it is already running
    feedback: Feedback = PROMPT  # how late rewards arrive, and when they count
    planned: PlanInput | None = None  # None: no arm shall be named

    @property
    def confidence(self) -> float:
        """The confidence at which an arm is named."""
        return PlanInput(0, 0).confidence if self.planned is None else self.planned.confidence

    def plan(self) -> TrialPlan | None:
        """Participants until the best arm is named; None if none shall be named."""
        if self.planned is None:
            return None
        return plan(
            self.policy.arms,
            self.policy.guarantee.epsilon,
            **self.planned._asdict(),
            policy=self.policy,
            delay=self.feedback.delay,
            **self.feedback.settling._asdict(),
            participants=self.horizon,
            seed=self.seed,
        )

    def epsilon_costs(self) -> list[PlanRow]:
        """Rows of dp-even at usual epsilons and this one, where a trial of it is not too long."""
        rows: list[PlanRow] = []
        if self.planned is None or self.policy.name != EVEN_POLICY:
            return rows
        trial = planned_trial(
            self.policy.arms, *self.planned, self.feedback, self.horizon, self.seed
        )
        trial = replace(trial, looks=self.policy.parameters["looks"])
        for epsilon in sorted({*USUAL_EPSILONS, self.policy.guarantee.epsilon}):
            with contextlib.suppress(ParameterError):
                rows.append(trial.fixed_row(EVEN_POLICY, epsilon))
        return rows

    @property
    def reward_guarantee(self) -> Guarantee:
        """The guarantee of one reward, with the assumptions of how rewards settle."""
        window = self.feedback.settling.settle == "window"
        return self.guarantee or guarantee_when_settled(
            self.policy.guarantee, window=window, copied=False, otherwise=_SETTLING_ADVICE
        )

    def with_feedback(self, **changes: Any) -> "AssessmentInput":
        """A copy with other delays or settling; `changes` are those of `Feedback.create`."""
        feedback = Feedback.create(**{**self.feedback.description, **changes})
        require_missing(self.policy, feedback.settling)
        if self.planned is not None:
            planned_trial(self.policy.arms, *self.planned, feedback)
        if feedback.delay is not None and feedback.delay.longest == feedback.delay.lost == 0:
            feedback = replace(feedback, delay=None)
        return replace(self, feedback=feedback)

    @property
    def person_guarantee(self) -> Guarantee | None:
        """The guarantee of one person; None if rewards per person are not counted."""
        count, apart = self.rewards_per_person, self.rewards_apart
        return None if count is None else self.reward_guarantee.for_rewards(count, apart=apart)

    def simulate(self, progress: Progress | None = None) -> Results:
        """Simulate the policy, and playing at random, on the plausible problem."""
        if self.environment is None:
            raise ParameterError("an assessment without an environment cannot be simulated")
        at_random = make_policy("random", arms=self.policy.arms)
        return simulate(
            {self.policy.name: self.policy, AT_RANDOM: at_random},
            self.environment,
            horizon=self.horizon,
            repetitions=self.repetitions,
            seed=self.seed,
            delay=self.feedback.delay,
            **self.feedback.settling._asdict(),
            winners=True,
            progress=progress,
        )


def assessment_template(
    *,
    title: str | None = None,
    policy: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    rewards_per_person: int | None = None,
    horizon: int | None = None,
    feedback: Feedback = PROMPT,
    planned: PlanInput | None = None,
) -> str:
    """A file to fill in, with these values. Every key of [answers] is a question.

    >>> text = assessment_template(policy={"name": "dp-imed", "arms": ["a", "b"], "epsilon": 2.0},
    ...                            horizon=90)
    >>> text[text.index("[policy]") :].splitlines()[1:4]
    ['name = "dp-imed"', 'arms = ["a", "b"]', 'epsilon = 2.0']
    >>> "horizon = 90 " in text
    True
    """
    require_extra("tomlkit", "an assessment file")
    import tomlkit

    source = resources.files("balaclava.reporting") / "assessment.toml"
    document: Any = tomlkit.parse(source.read_text(encoding="utf-8"))
    for key, values in (("policy", policy), ("environment", environment)):
        if values is not None:
            table = tomlkit.table()
            table.update({name: value for name, value in values.items() if value is not None})
            table.add(tomlkit.nl())
            document[key] = table
    if planned is not None:
        document["plan"].update(planned._asdict())
    elif policy is not None:
        del document["plan"]
    for key, value in (("title", title), ("rewards_per_person", rewards_per_person)):
        if value is not None:
            document[key] = value
    if horizon is not None:
        document["simulation"]["horizon"] = horizon
    if feedback.delay is not None:
        document["delay"].update(
            {name: each for name, each in feedback.delay.parameters.items() if each is not None}
        )
        if feedback.delay.values is not None:
            del document["delay"]["mean"]
    document["simulation"].update(
        {name: each for name, each in feedback.settling._asdict().items() if each is not None}
    )
    return tomlkit.dumps(document)


def read_assessment(path: str | os.PathLike[str]) -> AssessmentInput:
    """Read and check an assessment file; errors name the key."""
    path = Path(path)
    try:
        data = path.read_bytes()
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ExperimentFileError(
            f"{path} cannot be read: {why}; `balaclava assessment --init {path}` writes one"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentFileError(f"{path} is not well-formed TOML: {error}") from None
    try:
        return _parse(content, hashlib.sha256(data + balaclava.__version__.encode()).hexdigest())
    except BalaclavaError as error:
        raise ExperimentFileError(f"{path}: {error}") from None


def _parse(content: dict[str, Any], digest: str) -> AssessmentInput:
    _require_known("key", content, (*_TEXTS, "date", "rewards_per_person", *_TABLES))
    simulation = dict(_table(content, "simulation"))
    _require_known("key of [simulation]", simulation, (*_SMALLEST, *Settling._fields))
    described = dict(_table(content, "policy"))
    _require_one_horizon(described, simulation)
    policy = POLICIES.from_mapping("[policy]", described)
    count = check(
        "rewards_per_person", content.get("rewards_per_person", 1), Annotated[int, Range(1)]
    )
    answers = _table(content, "answers") if "answers" in content else {}
    questions = {key for level in nist_levels(policy, count, None) for key in level.questions}
    _require_known("key of [answers]", answers, sorted(questions))
    registry = _table(content, "registry") if "registry" in content else {}
    _require_known("key of [registry]", registry, _REGISTRY)
    numbers = {
        name: check(name, simulation[name], Annotated[int, Range(low)])
        for name, low in _SMALLEST.items()
        if name in simulation
    }
    if "horizon" not in numbers:
        raise ExperimentFileError("[simulation] has no horizon; give `horizon`, in decisions")
    texts: dict[str, Any] = {name: _text(name, content.get(name, "")) for name in _TEXTS}
    settling = {name: simulation[name] for name in Settling._fields if name in simulation}
    planned = _read_plan(policy, _table(content, "plan")) if "plan" in content else None
    assessment = AssessmentInput(
        policy,
        ENVIRONMENTS.from_mapping("[environment]", _table(content, "environment")),
        **numbers,
        **texts,
        date=str(content.get("date") or datetime.date.today()),
        rewards_per_person=count,
        answers={name: _text(f"answers.{name}", value) for name, value in answers.items()},
        registry={name: _text(f"registry.{name}", value) for name, value in registry.items()},
        digest=digest,
        planned=planned,
    )
    return assessment.with_feedback(
        delay=_table(content, "delay") if "delay" in content else None, **settling
    )


def _require_one_horizon(policy: dict[str, Any], simulation: dict[str, Any]) -> None:
    """Fill in the horizon of [policy], if it needs one, or of [simulation] from the other."""
    ours, other = policy.get("horizon"), simulation.get("horizon")
    if other is None and ours is not None:
        simulation["horizon"] = ours
    if None not in (ours, other) and ours != other:
        raise ExperimentFileError(
            f"[policy] has horizon = {brief(ours)}, but [simulation] horizon = {brief(other)}: a "
            "trial has one size; correct one of them, or remove that of [simulation]"
        )
    name = policy.get("name")
    cls = POLICIES.classes().get(name) if isinstance(name, str) else None
    if other is not None and cls is not None and cls.annotations.get("horizon") == Horizon:
        policy["horizon"] = other


def _read_plan(policy: Policy, table: dict[str, Any]) -> PlanInput:
    """Check [plan], and that the policy can name an arm."""
    _require_known("key of [plan]", table, PlanInput._fields)
    for name in ("base_rate", "smallest_difference"):
        if name not in table:
            raise ExperimentFileError(f"[plan] has no {name}; give it, or remove [plan]")
    planned = PlanInput(**table)
    if policy.rewards != "bounded" or not policy.guarantee.private:
        raise ExperimentFileError(
            f"[plan] is for private policies with rewards in a known range, not {policy.name}; "
            "remove [plan]"
        )
    policy.require_estimates((1.0 - planned.confidence) / policy.arms)
    planned_trial(policy.arms, *planned)
    return planned


def _require_known(what: str, content: Mapping[str, Any], known: Collection[str]) -> None:
    for key in content:
        if key not in known:
            raise ExperimentFileError(f"unknown {what} {key!r}; {nearest(key, known)}")


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key)
    if not isinstance(table, dict):
        raise ExperimentFileError(
            f"[{key}] is missing; `balaclava assessment` prints a complete file"
        )
    return table


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ExperimentFileError(f"{name} must be a string; put it into quotes")
    return value.strip()


def audit_policy(assessment: AssessmentInput, trials: int | None = None) -> AuditSummary | None:
    """The quick audit of the policy; None if it is not private."""
    return run_audits({"policy": assessment.policy}, trials=trials or QUICK_TRIALS).get("policy")
