"""What can go wrong, one class a cause.

Every message names the thing, what is allowed and what to do. It also names the value that
was given, with one exception: a reward is somebody's secret and is never repeated.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BalaclavaError(Exception):
    """The root of every error that balaclava raises on purpose."""


class ParameterError(BalaclavaError, ValueError):
    """A parameter is missing, unknown, or outside its range."""


class UnknownNameError(BalaclavaError, LookupError):
    """No policy, environment or figure goes by that name."""


class RewardError(BalaclavaError, ValueError):
    """A reward that is not a finite number, or that the policy does not accept."""


class DecisionError(BalaclavaError, LookupError):
    """A decision that the agent did not make, or whose reward it already has."""


class IncompatibleError(BalaclavaError, ValueError):
    """A policy and an environment that cannot be played against each other."""


class ContextError(BalaclavaError, ValueError):
    """A context that the policy cannot decide by: advice of the wrong shape, or none."""


class PolicyError(BalaclavaError, RuntimeError):
    """A policy that breaks its contract: an arm that does not exist, kernels that fail."""


class SavedStateError(BalaclavaError, ValueError):
    """A saved agent that cannot be restored."""


class ResultsFileError(BalaclavaError, ValueError):
    """A results file that is missing, broken, truncated or of another kind."""


class ExperimentFileError(BalaclavaError, ValueError):
    """An experiment file (TOML) that does not say what to run."""


class ClusterError(BalaclavaError, RuntimeError):
    """A cluster that cannot be reached, or whose workers cannot do the work."""


class DeviceError(BalaclavaError, RuntimeError):
    """A GPU was asked for that is not there, or for what it does not play."""


class PrivacyError(BalaclavaError, ValueError):
    """A privacy statement that cannot be made."""


class EstimateError(BalaclavaError, ValueError):
    """An estimate that cannot be given: nothing was released that it could be made from."""


class ServiceError(BalaclavaError, RuntimeError):
    """The decision service did not do what was asked; `status` is that of HTTP, 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceKeyError(ServiceError):
    """A key that is not valid, or whose role may not do this (401, 403)."""


class ServiceLookupError(ServiceError, LookupError):
    """An experiment or a decision that is not there (404)."""


class ServiceConflictError(ServiceError):
    """Something else is there by that name, under that request_id, or in that state (409)."""


class WindowOverError(ServiceError):
    """A reward that came after its decision's window (410)."""


class ServiceRequestError(ServiceError, ValueError):
    """A request that the service does not take: what is wrong with it is in the message (4xx)."""


class ServiceUnavailableError(ServiceError):
    """The service was not reached, or was not ready, for as long as the client had patience."""


class MissingPartError(BalaclavaError, ImportError):
    """A part that is not installed; the message names the extra that brings it."""


class BalaclavaDeprecationWarning(DeprecationWarning):
    """A public name that goes away; the message says when, and what to use instead."""


class PlugInWarning(UserWarning):
    """An installed plug-in that cannot be used; everything else goes on without it."""


class ProcessError(BalaclavaError, RuntimeError):
    """An agent that is used in another process than the one it was made in."""


class SilenceWarning(UserWarning):
    """An agent has made many decisions and heard of none of them."""


class DamageWarning(UserWarning):
    """A file that was written before is damaged, and is made anew."""


class MomentWarning(UserWarning):
    """A policy counts on a bound on moments, means or outliers that the environment exceeds."""


def no_such_arm(policy: str, t: int, arms: int) -> PolicyError:
    """The error for a choice outside the arms."""
    return PolicyError(
        f"{policy} chose an arm that does not exist in round {t}; its `choose` must return an arm "
        f"from 0 to {arms - 1}"
    )


def failed_kernel(policy: str, t: int, error: Exception) -> PolicyError:
    """The error for kernels that fail; their own words may tell of rewards, and are left out."""
    return PolicyError(
        f"{policy} cannot go on: its kernels failed in round {t} with a {type(error).__name__}; "
        "restore an intact save, or correct the policy if it is your own"
    )


def require_arm(policy: str, t: int, arm: int, arms: int) -> None:
    """Refuse a choice outside the arms."""
    if not 0 <= arm < arms:
        raise no_such_arm(policy, t, arms)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest known one, or the list of all."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"
