"""Errors and warnings: one class per cause.

A message names the faulty thing, its value, the allowed values and what to do. It never repeats a
reward, which is confidential.
"""

import difflib
from collections.abc import Iterable


class BalaclavaError(Exception):
    """The base class of all errors that balaclava raises."""


class ParameterError(BalaclavaError, ValueError):
    """A parameter is missing, unknown, or outside its range."""


class UnknownNameError(BalaclavaError, LookupError):
    """No policy, environment or figure has this name."""


class RewardError(BalaclavaError, ValueError):
    """A reward that is not a finite number, or that the policy does not accept."""


class DecisionError(BalaclavaError, LookupError):
    """A decision that the agent did not make, or whose reward it already has."""


class IncompatibleError(BalaclavaError, ValueError):
    """A policy and an environment that do not fit together."""


class ContextError(BalaclavaError, ValueError):
    """A context that the policy cannot use: missing, or advice of the wrong shape."""


class PolicyError(BalaclavaError, RuntimeError):
    """A policy breaks its contract: it chooses an arm that does not exist, or its kernels fail."""


class SavedStateError(BalaclavaError, ValueError):
    """A saved agent that cannot be restored."""


class ResultsFileError(BalaclavaError, ValueError):
    """A results file that is missing, broken, truncated or of another kind."""


class ExperimentFileError(BalaclavaError, ValueError):
    """An experiment file (TOML) that is malformed, or that cannot be played."""


class ClusterError(BalaclavaError, RuntimeError):
    """A cluster that cannot be reached, or whose workers cannot play the sweep."""


class DeviceError(BalaclavaError, RuntimeError):
    """A GPU that is missing or fails, or that cannot play this simulation."""


class PrivacyError(BalaclavaError, ValueError):
    """A privacy statement that cannot be made."""


class EstimateError(BalaclavaError, ValueError):
    """An estimate that cannot be computed, because too little was released."""


class ServiceError(BalaclavaError, RuntimeError):
    """The decision service refused or failed; `status` is the HTTP status, 0 without a response."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceKeyError(ServiceError):
    """A key that is invalid, or whose role lacks the permission (401, 403)."""


class ServiceLookupError(ServiceError, LookupError):
    """An experiment or a decision that does not exist (404)."""


class ServiceConflictError(ServiceError):
    """A conflict with an existing name, request_id or state (409)."""


class WindowOverError(ServiceError):
    """A reward that arrived after its decision's window (410)."""


class ServiceRequestError(ServiceError, ValueError):
    """A request that the service refuses; the message says why (4xx)."""


class ServiceUnavailableError(ServiceError):
    """The service could not be reached, or was not ready, within the client's `patience`."""


class MissingPartError(BalaclavaError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""


class BalaclavaDeprecationWarning(DeprecationWarning):
    """A public name that will be removed; the message says when, and what to use instead."""


class PlugInWarning(UserWarning):
    """An installed plug-in that cannot be used and is skipped."""


class ProcessError(BalaclavaError, RuntimeError):
    """An agent used in another process than the one that created it."""


class SilenceWarning(UserWarning):
    """An agent has made many decisions and received no reward for any."""


class DamageWarning(UserWarning):
    """A damaged file, whose content is computed again."""


class MomentWarning(UserWarning):
    """An environment exceeds a policy's bound on moments, means or outliers."""


class AdaptiveLogWarning(UserWarning):
    """A log looks as if the arms had been chosen by rewards."""


def no_such_arm(policy: str, t: int, arms: int) -> PolicyError:
    return PolicyError(
        f"{policy} chose an arm that does not exist in round {t}; its `choose` must return an arm "
        f"from 0 to {arms - 1}"
    )


def failed_choice(policy: str, error: TypeError) -> Exception:
    """The error if `choose` returned a bare arm; otherwise `error`, which its own code raised."""
    import traceback  # a millisecond, which the command line need not pay

    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    here = frame.f_globals.get("__name__", "").startswith("balaclava.")
    if not (here and "cannot unpack" in str(error)):
        return error
    return PolicyError(
        f"{policy}: its `choose` must return an arm and the phase of the decision, but returned "
        "one value; without batches or epochs write `return arm, 0`"
    )


def failed_kernel(policy: str, t: int, error: Exception) -> PolicyError:
    """The error for failing kernels, without their message, which may contain rewards."""
    return PolicyError(
        f"{policy} cannot continue: its kernels failed in round {t} with a {type(error).__name__}; "
        "restore an intact save, or correct the policy if it is your own"
    )


def require_arm(policy: str, t: int, arm: int, arms: int) -> None:
    if not 0 <= arm < arms:
        raise no_such_arm(policy, t, arms)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest known name, or all names."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"
