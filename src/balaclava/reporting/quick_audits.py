"""Quick audits for a page, cached on disk: the same code is audited once."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from balaclava._core.atomic_files import atomically
from balaclava._core.cache import cache_directory
from balaclava.auditing.audit import audit
from balaclava.auditing.audit_report import AuditReport
from balaclava.errors import ResultsFileError
from balaclava.policies.base import Policy

# Games, replayed pairs and seed of an audit for a page: a few seconds for each policy. The seed is
# fixed, so that equal code gives equal pages.
QUICK_TRIALS = 20_000
_QUICK_PAIRS = 1_000
_QUICK_SEED = 1


class AuditSummary(NamedTuple):
    """The outcome of an audit in words."""

    claimed: str
    verdict: str
    replay: str
    laws: str
    exact: str
    statistical: str
    exhaustive: str


def run_audits(
    policies: Mapping[str, Policy],
    *,
    trials: int = QUICK_TRIALS,
    progress: Callable[[str], None] | None = None,
) -> dict[str, AuditSummary]:
    """Audit every private policy; equal policies are audited once."""
    summaries: dict[Policy, AuditSummary] = {}
    for label, policy in policies.items():
        if policy.guarantee.private and policy not in summaries:
            if progress is not None:
                progress(label)
            summaries[policy] = _cached_audit(policy, trials)
    return {label: summaries[policy] for label, policy in policies.items() if policy in summaries}


def summarise_audit(report: AuditReport) -> AuditSummary:
    parts = (report.replay, report.laws, report.exact, report.statistical, report.exhaustive)
    return AuditSummary(
        str(report.claimed), report.verdict, *(str(part or "does not apply") for part in parts)
    )


def _cached_audit(policy: Policy, trials: int) -> AuditSummary:
    path = _cache_path(policy, trials)
    if path is not None and path.is_file():
        with contextlib.suppress(ValueError, TypeError, OSError):
            return AuditSummary(**json.loads(path.read_text(encoding="utf-8")))
    summary = summarise_audit(audit(policy, trials=trials, pairs=_QUICK_PAIRS, seed=_QUICK_SEED))
    if path is not None:
        with contextlib.suppress(ResultsFileError, OSError):  # not writable: audit each time
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomically(path) as temporary:
                temporary.write_text(json.dumps(summary._asdict()), encoding="utf-8")
    return summary


def _cache_path(policy: Policy, trials: int) -> Path | None:
    """Beside the policy's machine code, so that an edited policy is audited again."""
    folder = cache_directory(*policy.kernels, policy.prepare())
    if folder is None:
        return None
    key = json.dumps(
        [policy.name, policy.parameters, trials, _QUICK_PAIRS, _QUICK_SEED], sort_keys=True
    )
    return folder / f"audit-{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"
