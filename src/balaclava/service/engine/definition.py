"""What an experiment is, as it was asked for: checked once, and never changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from balaclava._core.declared import LARGEST_EPSILON
from balaclava.agents.settling import guarantee_when_settled
from balaclava.errors import BalaclavaError, ParameterError
from balaclava.policies.base import POLICIES, Policy
from balaclava.privacy.guarantee import Guarantee, not_private
from balaclava.service.problems import Problem

LONGEST_WINDOW = 10 * 366 * 86_400.0


@dataclass(frozen=True)
class ExperimentDefinition:
    """An experiment before anything has happened."""

    name: str
    policy: str
    parameters: dict[str, Any]
    arms: list[str]
    reward_window: float
    default_reward: float | None = None
    settle: str = "arrival"
    rewards_per_person: int = 1
    population: str | None = None
    owner: str = ""
    purpose: str = ""

    @classmethod
    def checked(cls, **fields: Any) -> ExperimentDefinition:
        """The definition, or a problem that says what is wrong with it."""
        if fields.get("settle") is None:
            default = fields.get("default_reward")
            fields["settle"] = "arrival" if default is None else "window"
        definition = cls(**fields)
        if definition.settle == "window" and definition.default_reward is None:
            raise Problem(
                422,
                "settle = 'window' needs default_reward: what counts where no reward came in time",
            )
        if not 0 < definition.reward_window <= LONGEST_WINDOW:
            raise Problem(422, "reward_window is the number of seconds that a reward may take")
        try:
            policy = definition.make_policy()
            if definition.default_reward is not None:
                policy.checked_reward(definition.default_reward)
        except BalaclavaError as error:
            raise Problem(422, str(error)) from None
        definition._require_fit(policy)
        return definition

    def _require_fit(self, policy: Policy) -> None:
        try:
            policy.checked_context(None)
        except BalaclavaError:
            raise Problem(
                422, f"{policy.name} decides by contexts, which the service does not take"
            ) from None
        if policy.model == "local" and self.default_reward is not None:
            raise Problem(
                422,
                f"{policy.name} learns from reports, and nobody can report in the place of an "
                "owner; leave default_reward out",
            )
        if self.population is not None and policy.scope not in ("trajectory", "report"):
            raise Problem(
                422,
                f"{policy.name} cannot be charged to a population: its guarantee "
                + (
                    "is for single decisions; choose one for whole trajectories"
                    if policy.scope == "decision"
                    else "is none"
                ),
            )

    def make_policy(self) -> Policy:
        """The policy with its parameters and named arms."""
        if "arms" in self.parameters:
            raise ParameterError("name the arms in `arms`, not among the parameters")
        return POLICIES.create(self.policy, {**self.parameters, "arms": list(self.arms)})

    def with_defaults(self) -> ExperimentDefinition:
        """With every parameter of the policy by name: a later version may have other defaults."""
        parameters = self.make_policy().parameters
        del parameters["arms"]
        return dataclasses.replace(self, parameters=parameters)

    def matches(self, known: ExperimentDefinition) -> bool:
        """Whether it is `known`, as far as it names parameters."""
        mine, stored = self.with_defaults(), known.with_defaults()
        if dataclasses.replace(mine, parameters=stored.parameters) != stored:
            return False
        return all(mine.parameters[name] == stored.parameters[name] for name in self.parameters)

    def guarantee(self, policy: Policy, restored: int = 0) -> Guarantee:
        """What is promised to one reward; `restored` times the database was put back.

        Each time, batches that were unfinished may have been released before and are released
        again: epsilon and delta add up.
        """
        one = guarantee_when_settled(policy.guarantee, window=self.settle == "window", copied=False)
        if not restored or not one.private:
            return one
        times = 1 + restored
        epsilon, delta = times * one.epsilon, times * one.delta
        if epsilon > LARGEST_EPSILON or delta >= 1:
            return not_private(f"the database was put back {restored} times", one.reference)
        return dataclasses.replace(one, epsilon=epsilon, delta=delta)

    def person_guarantee(self, policy: Policy, restored: int = 0) -> Guarantee:
        """What is promised to one person: what an experiment is charged with."""
        return self.guarantee(policy, restored).for_rewards(self.rewards_per_person)

    @property
    def text(self) -> str:
        """Canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @cached_property
    def uid(self) -> str:
        """Its name in the ledger: the same definition under the same name is the same."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> ExperimentDefinition:
        """As it was stored."""
        return cls(**json.loads(text))
