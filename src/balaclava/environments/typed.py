"""`bl.environment` as type checkers see it: `typed.pyi` has one signature for each name."""

from balaclava.environments.base import environment as environment
