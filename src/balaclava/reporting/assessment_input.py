"""The small file that a page for a review board is made from: `balaclava assessment --init`."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import balaclava
from balaclava._core.declared import Range, check
from balaclava.environments.base import REGISTRY as ENVIRONMENTS
from balaclava.environments.base import Environment
from balaclava.errors import BalaclavaError, ExperimentFileError, ParameterError, nearest
from balaclava.policies.base import REGISTRY as POLICIES
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.reporting.nist_levels import nist_levels
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.simulation.engine import Progress, simulate
from balaclava.simulation.results import Results

AT_RANDOM = "at random"
_TEXTS = ("title", "owner", "purpose", "population")
_KEYS = (*_TEXTS, "date", "rewards_per_person", "policy", "environment", "simulation", "answers")
_NUMBERS = {"horizon": 1, "repetitions": 20, "seed": 0}


@dataclass(frozen=True)
class AssessmentInput:
    """What a page for a review board is made from. Texts left empty are blanks on the page."""

    policy: Policy
    environment: Environment | None = None  # none: nothing is to be simulated
    horizon: int = 0
    title: str = ""
    owner: str = ""
    purpose: str = ""
    population: str = ""
    date: str = ""
    rewards_per_person: int | None = 1  # none: nobody counts them
    repetitions: int = 200
    seed: int = 1
    answers: dict[str, str] = field(default_factory=dict)
    digest: str = ""  # of the file and the version of this package
    guarantee: Guarantee | None = None  # where it runs, if not that of the policy by itself

    @property
    def promise(self) -> Guarantee:
        """To one reward."""
        return self.guarantee or self.policy.guarantee

    @property
    def person(self) -> Guarantee | None:
        """To one person; none where nobody counts what a person gives."""
        count = self.rewards_per_person
        return None if count is None else self.promise.for_rewards(count)

    def play(self, progress: Progress | None = None) -> Results:
        """The policy and playing at random, on the problem that is taken as plausible."""
        if self.environment is None:
            raise ParameterError("there is no environment to play on; give `environment`")
        return simulate(
            {
                self.policy.name: self.policy,
                AT_RANDOM: make_policy("random", arms=self.policy.arms),
            },
            self.environment,
            horizon=self.horizon,
            repetitions=self.repetitions,
            seed=self.seed,
            winners=True,
            progress=progress,
        )


def assessment_template(
    *,
    title: str | None = None,
    policy: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    rewards_per_person: int | None = None,
    horizon: int | None = None,
) -> str:
    """A file to fill in, with what is known already. Every key of [answers] is a question.

    >>> text = template(policy={"name": "dp-imed", "arms": ["a", "b"], "epsilon": 2.0}, horizon=90)
    >>> text[text.index("[policy]") :].splitlines()[1:4]
    ['name = "dp-imed"', 'arms = ["a", "b"]', 'epsilon = 2.0']
    >>> "horizon = 90 " in text
    True
    """
    text = (resources.files("balaclava.reporting") / "assessment.toml").read_text(encoding="utf-8")
    for key, table in (("policy", policy), ("environment", environment)):
        if table is not None:
            lines = [
                f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
                for name, value in table.items()
                if value is not None
            ]
            before, _, rest = text.partition(f"[{key}]")
            after = rest[rest.index("\n\n") :]  # tables end at an empty line
            text = f"{before}[{key}]\n{''.join(lines).rstrip()}{after}"
    numbers = {"rewards_per_person": rewards_per_person, "horizon": horizon}
    for key, value in {"title": title, **numbers}.items():
        if value is not None:
            line = f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\\", r"\\")
            text = re.sub(rf'(?m)^{key} = (".*"|\d+)', line, text)
    return text


def read_assessment(path: str | os.PathLike[str]) -> AssessmentInput:
    """What the file says; errors name the key."""
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
        return _dossier(content, hashlib.sha256(data + balaclava.__version__.encode()).hexdigest())
    except BalaclavaError as error:
        raise ExperimentFileError(f"{path}: {error}") from None


def _dossier(content: dict[str, Any], digest: str) -> AssessmentInput:
    _require_known("key", content, _KEYS)
    simulation = _table(content, "simulation")
    _require_known("key of [simulation]", simulation, tuple(_NUMBERS))
    policy = POLICIES.from_mapping("[policy]", _table(content, "policy"))
    count = check(
        "rewards_per_person", content.get("rewards_per_person", 1), Annotated[int, Range(1)]
    )
    answers = _table(content, "answers") if "answers" in content else {}
    asked = {key for level in nist_levels(policy, count, None) for key in level.questions}
    _require_known("key of [answers]", answers, sorted(asked))
    numbers = {
        name: check(name, simulation[name], Annotated[int, Range(low)])
        for name, low in _NUMBERS.items()
        if name in simulation
    }
    if "horizon" not in numbers:
        raise ExperimentFileError("[simulation] does not say how long it is; give `horizon`")
    date = content.get("date") or datetime.date.today()
    texts: dict[str, Any] = {name: _text(name, content.get(name, "")) for name in _TEXTS}
    return AssessmentInput(
        policy,
        ENVIRONMENTS.from_mapping("[environment]", _table(content, "environment")),
        **numbers,
        **texts,
        date=str(date),
        rewards_per_person=count,
        answers={name: _text(f"answers.{name}", value) for name, value in answers.items()},
        digest=digest,
    )


def _require_known(what: str, content: dict[str, Any], known: Any) -> None:
    for key in content:
        if key not in known:
            raise ExperimentFileError(f"unknown {what} {key!r}; {nearest(key, known)}")


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key)
    if not isinstance(table, dict):
        raise ExperimentFileError(f"[{key}] is missing; `balaclava assessment` shows a whole file")
    return table


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ExperimentFileError(f"{name} is not text; put it into quotes")
    return value.strip()


def audit_policy(dossier: AssessmentInput, trials: int | None = None) -> AuditSummary | None:
    """The quick audit of the policy; None for one that promises nothing."""
    from balaclava.reporting.quick_audits import TRIALS, run_audits

    verdicts = run_audits({"policy": dossier.policy}, trials=trials or TRIALS)
    return verdicts.get("policy")
