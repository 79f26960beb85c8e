"""Simulated experts: good, bad and treacherous ones, and rules on the contexts of a log.

Each returns chances[T, K], a distribution over the arms for each round. `panel` stacks several of
them as the advice[T, N, K] that the environment `advice` takes.

>>> losses = np.array([[0.0, 1.0], [1.0, 0.5], [0.2, 0.9]])
>>> panel(good(losses), bad(losses), even(losses)).shape
(3, 3, 2)
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Arms, Range
from balaclava._core.docstrings import checked
from balaclava.errors import ParameterError
from balaclava.estimators.expert_weights import advice_fault, as_advice

ExpertRule = Callable[[Any], Any]  # from a context to an arm, or a distribution over the arms

Trust = Annotated[float, Range(0, 1, "probability of the expert's arm")]
LossTable = Annotated[np.ndarray, Range(0, 1, "losses[T, K]"), 2]
Switch = Annotated[int, Range(0, meaning="last round in which the expert is good")]


@checked
def naming(arms: Sequence[int] | np.ndarray, of: Arms, trust: Trust = 1.0) -> np.ndarray:
    """chances[T, K] of an expert that names an arm per round: it gets `trust`, the others the rest.

    >>> naming([0, 2], of=3, trust=0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]
    """
    names = np.asarray(arms)
    if names.ndim != 1 or not np.issubdtype(names.dtype, np.integer):
        raise ParameterError("arms is not a list of whole numbers; give one arm per round")
    if names.size == 0 or names.min() < 0 or names.max() >= of:
        raise ParameterError(f"arms must hold one or more numbers from 0 to {of - 1}")
    if of == 1:
        return np.ones((names.size, 1))
    chances = np.full((names.size, of), (1.0 - trust) / (of - 1))
    chances[np.arange(names.size), names] = trust
    return chances


@checked
def good(losses: LossTable, trust: Trust = 1.0) -> np.ndarray:
    """An expert that names the arm with the least loss of the round."""
    return naming(losses.argmin(axis=1), losses.shape[1], trust)


@checked
def bad(losses: LossTable, trust: Trust = 1.0) -> np.ndarray:
    """An expert that names the arm with the largest loss of the round."""
    return naming(losses.argmax(axis=1), losses.shape[1], trust)


@checked
def even(losses: LossTable) -> np.ndarray:
    """An expert without an opinion: the uniform distribution."""
    return np.full(losses.shape, 1.0 / losses.shape[1])


@checked
def treacherous(losses: LossTable, switch: Switch, trust: Trust = 1.0) -> np.ndarray:
    """An adversary among the experts: good up to round `switch`, then bad."""
    chances = bad(losses, trust)
    chances[:switch] = good(losses, trust)[:switch]
    return chances


def panel(*experts: np.ndarray) -> np.ndarray:
    """advice[T, N, K] of several experts."""
    shapes = {np.shape(expert) for expert in experts}
    if len(shapes) != 1:
        raise ParameterError(
            "experts have different shapes, or there are none; give chances[T, K] of one shape"
        )
    return np.stack(experts, axis=1)


@checked
def advice_from_log(contexts: Sequence[Any], rules: Sequence[ExpertRule], arms: Arms) -> np.ndarray:
    """advice[T, N, K] of rules on the contexts of a log, one context per round.

    A rule takes a context (the log's row, dict or number of a round). It returns an arm or a
    distribution over the arms.

    Example:
        >>> ages = [25, 70]
        >>> rules = [lambda age: 0, lambda age: int(age > 60), lambda age: [0.5, 0.5]]
        >>> advice_from_log(ages, rules, arms=2).tolist()
        [[[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]]
    """
    if len(contexts) == 0 or len(rules) == 0:
        raise ParameterError("contexts or rules are empty; give at least one of each")
    rows = [[_distribution(rule(context), arms) for rule in rules] for context in contexts]
    advice = as_advice(rows)
    if advice is None:
        raise ParameterError(f"a rule returns neither an arm nor a distribution over {arms} arms")
    if fault := advice_fault(advice, len(rules), arms):
        raise ParameterError(f"the advice {fault}")
    return advice


def _distribution(answer: Any, arms: int) -> Any:
    """A distribution, from an arm or as given."""
    if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
        if not 0 <= answer < arms:
            raise ParameterError(f"a rule names arm {answer}; give an arm from 0 to {arms - 1}")
        return np.eye(arms)[answer]
    return answer
