"""`bl.policy` as type checkers see it: `typed.pyi` beside this has one signature for each name."""

from balaclava.policies.base import policy as policy
