"""Quick audits for a page, kept on disk: the same code is audited once."""

from __future__ import annotations

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

TRIALS = 20_000
_PAIRS = 1_000
_SEED = 1


class AuditSummary(NamedTuple):
    """What an audit said, in words."""

    claimed: str
    verdict: str
    replay: str
    laws: str
    exact: str
    statistical: str


def run_audits(
    policies: Mapping[str, Policy],
    *,
    trials: int = TRIALS,
    progress: Callable[[str], None] | None = None,
) -> dict[str, AuditSummary]:
    """Audit every policy that promises something; equal policies are audited once."""
    verdicts: dict[Policy, AuditSummary] = {}
    for label, policy in policies.items():
        if policy.guarantee.private and policy not in verdicts:
            if progress is not None:
                progress(label)
            verdicts[policy] = _verdict(policy, trials)
    return {label: verdicts[policy] for label, policy in policies.items() if policy in verdicts}


def summarise_audit(report: AuditReport) -> AuditSummary:
    """An audit's report in words."""
    parts = (report.replay, report.laws, report.exact, report.statistical)
    return AuditSummary(
        str(report.claimed), report.verdict, *(str(part or "does not apply") for part in parts)
    )


def _verdict(policy: Policy, trials: int) -> AuditSummary:
    place = _place(policy, trials)
    if place is not None and place.is_file():
        with contextlib.suppress(ValueError, TypeError, OSError):
            return AuditSummary(**json.loads(place.read_text(encoding="utf-8")))
    report = audit(policy, trials=trials, pairs=_PAIRS, seed=_SEED)
    verdict = summarise_audit(report)
    if place is not None:
        with contextlib.suppress(ResultsFileError, OSError):  # nowhere to write: audit each time
            place.parent.mkdir(parents=True, exist_ok=True)
            with atomically(place) as temporary:
                temporary.write_text(json.dumps(verdict._asdict()), encoding="utf-8")
    return verdict


def _place(policy: Policy, trials: int) -> Path | None:
    """Beside the policy's machine code, so that an edited policy is audited again."""
    folder = cache_directory(*policy.kernels, policy.prepare())
    if folder is None:
        return None
    what = json.dumps([policy.name, policy.parameters, trials, _PAIRS, _SEED], sort_keys=True)
    return folder / f"audit-{hashlib.sha256(what.encode()).hexdigest()[:20]}.json"
