"""The public names, listed here once: type checkers read this file, and so does `__init__.py`."""

from balaclava import authoring as authoring
from balaclava import errors as errors
from balaclava import testing as testing
from balaclava._core.kernels import kernel as kernel
from balaclava.advice.choose.calibrate import calibrate as calibrate
from balaclava.advice.choose.calibration import Calibration as Calibration
from balaclava.advice.choose.epsilon_table import EpsilonTable as EpsilonTable
from balaclava.advice.choose.epsilon_table import epsilon_table as epsilon_table
from balaclava.advice.choose.expert_bounds import ExpertsRecommendation as ExpertsRecommendation
from balaclava.advice.choose.expert_bounds import recommend_experts as recommend_experts
from balaclava.advice.choose.recommend import Recommendation as Recommendation
from balaclava.advice.choose.recommend import recommend as recommend
from balaclava.advice.log.release import ReleasedLog as ReleasedLog
from balaclava.advice.log.release import release_log as release_log
from balaclava.advice.plan.trial_plan import TrialPlan as TrialPlan
from balaclava.advice.plan.trial_plan import plan as plan
from balaclava.agents.agent import Agent as Agent
from balaclava.agents.decisions import Decision as Decision
from balaclava.agents.decisions import Status as Status
from balaclava.agents.estimates import Estimates as Estimates
from balaclava.agents.restoring import restore as restore
from balaclava.auditing.audit import audit as audit
from balaclava.auditing.audit_report import AuditReport as AuditReport
from balaclava.environments.base import Environment as Environment
from balaclava.environments.base import EnvironmentName as EnvironmentName
from balaclava.environments.base import list_environments as list_environments
from balaclava.experiments.sweep import open_sweep as open_sweep
from balaclava.factories import environment as environment
from balaclava.factories import policy as policy
from balaclava.papers.harness.reproduction import Reproduction as Reproduction
from balaclava.papers.harness.reproduction import reproduce as reproduce
from balaclava.policies.base import Kernels as Kernels
from balaclava.policies.base import Policy as Policy
from balaclava.policies.base import PolicyName as PolicyName
from balaclava.policies.base import list_policies as list_policies
from balaclava.policies.base import register as register
from balaclava.policies.privatising import privatise as privatise
from balaclava.privacy.guarantee import Guarantee as Guarantee
from balaclava.simulation.deciders import simulate_deciders as simulate_deciders
from balaclava.simulation.engine import Interrupted as Interrupted
from balaclava.simulation.engine import simulate as simulate
from balaclava.simulation.results import Results as Results
from balaclava.simulation.results_file import load as load
from balaclava.simulation.reward_delays import Delay as Delay
from balaclava.theory import bounds as bounds

__version__: str
__all__: list[str]
