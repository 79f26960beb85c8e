"""The conformance suite: what every policy and every environment must do.

Run it on your own classes, by one call or from pytest::

    from balaclava.testing import check_policy

    check_policy(bl.policy("my-policy", arms=3))

    @pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check):
        check(bl.policy("my-policy", arms=3))
"""

from balaclava.testing.conformance import ConformanceError
from balaclava.testing.environment_checks import ENVIRONMENT_CHECKS, check_environment
from balaclava.testing.examples import examples, matching_environment
from balaclava.testing.policy_checks import POLICY_CHECKS, check_policy

__all__ = [
    "ENVIRONMENT_CHECKS",
    "POLICY_CHECKS",
    "ConformanceError",
    "check_environment",
    "check_policy",
    "examples",
    "matching_environment",
]
