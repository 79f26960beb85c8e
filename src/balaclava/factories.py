"""`bl.policy` and `bl.environment`: make a policy or an environment by its registered name.

The build writes `factories.pyi` beside this file, with one signature for each name, so that a type
checker catches a wrong name or keyword.
"""

from balaclava.environments.base import environment as environment
from balaclava.policies.base import policy as policy
