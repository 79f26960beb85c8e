"""Audit every private policy at the full setting; write docs/audit.md.

python benchmarks/full_audit.py [NAME ...] [--trials 2000000] [--device cuda] [--out docs/audit.md]
python benchmarks/full_audit.py [NAME ...] --small

audit.json, beside this file, stores the measurements of the CPU, of a GPU and of small worlds. The
page has all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import balaclava as bl
from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.audit_report import AuditReport
from balaclava.auditing.enumeration.exhaustive_audit import audit_exhaustively
from balaclava.simulation.engine import Device, available_cores
from balaclava.testing.examples import USUAL_PARAMETERS, completed

ROOT = Path(__file__).parent.parent
LOSSES = 10  # divides the number of games on losses
STEPS = 400_000_000_000  # rounds of all games of a policy, at most
OWN_PARAMETERS = {"dp-imed": {"delta": 0.0}}  # another needs Gaussian noise
RECORD = Path(__file__).with_name("audit.json")
HEAD = """# The audit

`make audit` tries to refute the claim of every private policy, with two arms: 2,000,000 games (a
tenth of that for losses), 1,000 replayed pairs, confidence 0.95. A claim is *tight* if the lower
bound on epsilon reaches 0.8 of it. Otherwise the games cannot see everything that is protected, and
the claim rests on the replay and the proof. *Largest loss* is the loss of the mechanisms whose
input moved; *declared* is the most that they declare, without Gaussian noise.

The last column is the same bound from the games of `make audit DEVICE=cuda`: 10^9, fewer if games
are long, and a tenth for losses, whose steps take many times as long; four of these policies had
10^7. Local reports and contexts are drawn on the CPU only. The commits are those of the code that
was audited, on the CPU and on a GPU.
"""
REASONS = """## Why more games do not always help

A game displays only how often each arm was pulled. No lower bound can exceed what these counts
reveal.

- **One release decides** (adap-klucb, adap-ucb, dp-imed, dp-klucb, lazy-dp-ts, lazy-dp-ucb): a
  batch, small by then, is released once with all of epsilon, and the next decision depends on it.
  10^9 games find 0.99 or more of 1. dp-imed's were of an earlier rule, so that its row has none.
- **Several releases are compared at once** (dp-se, prae-raw, gdp-elim-new, dpr-batch-ucb, dpr-se):
  an arm is dropped or kept by the difference of two noisy means. Rarer events reveal more of one of
  them, so the bound rises slowly with the number of games.
- **Histograms** (dpr-adaptive-ucb): each of the two counts that a reward moves has half of what its
  batch spends on the histogram. 10^9 games find nearly half of epsilon.
- **Counters** (dp-ucb 0.499, dp-ucb-bound 0.495): each part of the hybrid counter has half of
  epsilon, and a decision depends on one of them. In a tree (private-ucb, dpr-ucb) each level has
  its share, a twelfth at 3,000 rounds, and a decision sees their sum. Each refresh of a mean by
  dp-ucb-int also has a small share of epsilon.
- **Drawn arms on losses** (dp-exp3, dp-ftpl, dp-htinf and those with experts): a release moves the
  probabilities of the arms by about the learning rate, which is small, and a decision is one draw
  from them. privatised and dp-tsallis-inf begin with large rates and reveal more. Rarer events
  reveal more but take more games to count. From 10^7 to 10^8 games the bound of dp-ftpl rises from
  0.067 to 0.185, of dp-htinf from 0.140 to 0.185, of dp-htinf-experts from 0.030 to 0.076. 10^9
  were not played: judging by the time of 10^8, they take some 20 minutes of an H200 for each
  policy.
- **The arms take turns** (dp-even, dp-sequential-halving): with two arms only the answer at the end
  depends on rewards. Games do not count answers; the replay compares them.
- **dp-exp4**: its claim is for all batches together, by advanced composition. The replay, which
  sees all releases, finds a loss of 0.03 for one reward.
- **prae-central**: in the streams that are searched, all rewards of an arm but one lie in one bin
  of its histogram. So the fullest bin stays the same, and no event showed a difference. The replay
  moves its mechanisms by the whole epsilon.
- **Single decisions** (the dp-ftpl policies on rewards): delta is subtracted before the bound, and
  is most of what they leak. The exact audit computes all of it: dp-ftpl-new is tight there; the
  true delta of dp-ftpl-gauss and dp-ftpl-beta is far below the claim.
"""
SIGHT = """## What the audit can see, and what it cannot

- **Neighbouring runs.** Short runs are interpreted, with late, lost and special rewards, rare
  answers, saves and restores. A policy's own numbers are tried as answers and as rewards. Some
  batches lose nearly all of their rewards, and the few that arrive are changed first.
- **The end of a trial, and displays.** Some short runs are finished: open decisions are given up,
  and unfinished batches released. After releases, and every 64 rounds, everything that an agent
  displays must agree: estimates, releases, propensities, coefficients, the recommended or named
  arm, and arms whose means changed.
- **Rewards outside the range.** Every reward that an agent accepts is tried: with `outside="clip"`
  also those far outside the range. If an agent refuses them, but `prepare` would not clip them, the
  verdict is *unproved*.
- **Failures.** An exception, an arm that does not exist, and NaN in a release are outputs, as an
  observer sees them. If one occurs on one of two neighbouring streams only, and no randomness
  reaches it, the claim is *violated*. Games that fail count as well. A policy that fails on every
  stream is not audited: its error is raised.
- **Long runs.** Compiled runs of 300,000 rounds, one of 900,000, or past the horizon, are recorded
  on a tape and replayed. With most rewards changed, every decision must agree. Many answers are
  equal, close to each other, or close to 0. With one reward changed, the losses of all releases
  that it entered must be within the claim.
- **Agents whose arms change.** If a policy lets arms come and go, whole agents are replayed: with
  arms added and retired, masks, shares, a prior, late and cancelled rewards, saves and restores, in
  some runs by a plan that follows what is displayed. Decisions, propensities, releases, estimates
  and restarts must agree, and one reward's releases must be within the claim.
- **Endless runs.** If a reward enters release after release, the sums that its loss follows from
  are extrapolated by doublings of the number of releases, to the horizon or to 2^60 rounds. A power
  of that number is continued exactly; advanced composition may converge where the plain sum does
  not. If releases spend ever more, what they spend is extrapolated by doublings of the run.
- **Low digits.** What rewards left in the state is enlarged a billion times: after releases, for
  the latest reward too, at twelve points of a long run, and when arms come or leave. No decision
  may then change.
- **Mechanisms.** Draws are tested for shape, scale, centre, tails, order and repeats, on up to a
  million draws and on those of two long runs. A body that scales a single Gaussian or Laplace draw
  has its scale read without error. Arrays are tested with moves spread over all parts in the
  declared norm. A declared loss, and exact answers, must agree with the law. The last binary digit
  of exact answers must be the same for every value, except for indices, which are discarded.

Where it cannot know, the verdict is *unproved*, with the reason: a mechanism without a law, a loss
that adds up beyond the claim, a decision that differs although all answers are alike. Games then
test the worst of these pairs. They try the recorded rewards and constant ones, and measure where
the streams differ most. Decisions often compare the noisy scores of two arms. The noise of the one
hides a part of what the other lost, so that a loss beyond the claim need not show. Correct policies
that draw their noise are often unproved. *Consistent* does not mean proved. These stay unseen:

- a fault that needs more rounds than were played, or a state that no played stream reaches;
- a fault in fewer than about 5 of a million draws of a mechanism, unless a single draw far in its
  tail causes it;
- draws that follow another law by less than the tests resolve: with a million draws, about 0.5 % of
  the scale;
- exact answers: 300 of them show a missing or halved noise, not a small error;
- what an agent displays between the rounds at which displays are compared;
- rewards that leave the process on another way than by decisions, displays and failures, such as
  running times. A kernel that never returns also stops the audit.
"""
SMALL = """## Small worlds, exactly

`python benchmarks/full_audit.py --small` runs the exhaustive part alone, a second or two for each
policy. It computes the probability of every sequence of observations in small worlds, for every
assignment of the rewards that vary, and compares every pair that differs in one reward. *Exact* is
the largest epsilon, or for a claim with a delta the smallest delta that holds at its epsilon. A
reward that is released in one batch shows all of epsilon. In a counter it also enters later sums,
beyond these rounds, so that the share here is smaller. The table is of another run than the reports
below, whose line `exhaustive` is of the commit of their row above.

These do not fit:

- dp-exp4 and gdp-elim-new draw arms at random until the first release, which comes after more than
  60 rounds even in short variants. Every such draw doubles the number of sequences.
- dp-ftpl-beta draws no index within 90 rounds, as it first needs more rewards of each arm. The
  exact audit computes its index law at every size.
- dp-ftpl and dp-ftpl-experts estimate a probability by drawing perturbations until an arm recurs.
  One loss has too many outcomes.
- dpr-adaptive-ucb and prae-central release a histogram. Its bins have independent noise, and even
  three answers for each bin are too many together.

| policy | claims | rounds | sequences | pairs | exact | at |
|---|---|---|---|---|---|---|
"""
HEADER = (
    "| policy | claims | verdict | replayed pairs, largest loss | declared | true delta "
    "| epsilon at least | tight | on a GPU, of games | commits |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def lower_bound(value: float) -> str:
    """A lower bound with three digits after the point, rounded down."""
    return f"{math.floor(1000 * value) / 1000:.3f}"


def policy_of(name: str) -> bl.Policy:
    """Two arms, epsilon 1, and a horizon that lets phases end.

    Policies for unbounded rewards and for losses are taken as in their first example.
    """
    cls = type_of(name)
    if name == "with-values":  # on a private base
        return cls.create({**cls.examples[0], "arms": 2})
    if name == "privatised":
        return bl.privatise(bl.policy("exp3", arms=2), epsilon=1.0)
    if name == "privatised-experts":
        return bl.privatise(bl.policy("exp3", arms=2), epsilon=1.0, experts=3)
    usual = {"arms": 2, "epsilon": 1.0, "delta": 0.01, "horizon": 3_000, "memory": 1_000}
    if cls.rewards == "bounded":
        parameters = {**USUAL_PARAMETERS, **usual, **OWN_PARAMETERS.get(name, {})}
    else:
        parameters = completed(
            cls, {"horizon": 3_000, **cls.examples[0], "arms": 2, "epsilon": 1.0}
        )
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def stays_on_cpu(policy: bl.Policy) -> bool:
    """Whether its games need the CPU: reports and contexts are drawn there."""
    return policy.report_kernel is not None or policy.features is not None


def type_of(name: str) -> type[bl.Policy]:
    return next(entry.policy for entry in bl.list_policies() if entry.name == name)


def row(report: AuditReport) -> str:
    """One line of the table, without its end."""
    replay, exact = report.replay, report.exact
    assert replay is not None
    delta = f", delta {replay.delta:.2g}" if replay.delta else ""
    return (
        f"| {report.policy} | {report.claimed} | {report.verdict} | {replay.pairs:,}, epsilon "
        f"{replay.epsilon:.3g}{delta} | {replay.declared:.3g} | "
        f"{'-' if exact is None else f'{exact.delta:.2g}'} | "
        f"{lower_bound(report.epsilon_lower)} | {'yes' if report.tight else 'no'} |"
    )


def audit(name: str, trials: int, pairs: int, device: Device = "cpu") -> AuditReport:
    """The report on one policy."""
    policy = policy_of(name)
    # A step on losses is slow: it draws from a distribution over the arms. It reveals little.
    divisor = LOSSES if policy.rewards == "loss" else 1
    games = min(trials // divisor, STEPS // plan_games(policy).long_rounds)
    return bl.audit(policy, trials=games, pairs=pairs, seed=1, device=device)


def record_of(report: AuditReport, device: Device, commit: str) -> dict[str, Any]:
    """The recorded figures of a report, and the commit whose code was audited."""
    if device == "cpu":
        return {"row": row(report), "text": str(report), "commit": commit}
    return {
        "bound": report.epsilon_lower,
        "games": getattr(report.statistical, "games", 0),
        "text": str(report.statistical),
        "commit": commit,
    }


def current_commit() -> str:
    """The commit that is checked out."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def small_row(name: str) -> str:
    """One line of the table of small worlds."""
    policy = policy_of(name)
    law = audit_exhaustively(policy, games=False)
    values = ", ".join(f"{key}={value}" for key, value in (law.changed or {}).items()) or "-"
    if not law.fits:
        return f"| {name} | {policy.guarantee} | - | - | - | does not apply: {law.reason} | - |"
    exact = f"delta {law.delta:.3g}" if law.epsilon is None else f"epsilon {law.epsilon:.4g}"
    return (
        f"| {name} | {policy.guarantee} | {law.rounds} | {law.sequences:,} | {law.pairs} | "
        f"{exact} | {values} |"
    )


def private_names() -> list[str]:
    """The private policies of the package that read rewards."""
    return [
        entry.name
        for entry in bl.list_policies()
        if entry.policy.model != "none"
        and entry.name != "random"  # it reads no reward: there is nothing to examine
        and entry.policy.__module__.startswith("balaclava.")
    ]


def page(record: dict[str, dict[str, Any]]) -> str:
    """The table, and each report in full."""
    names = private_names()
    here = {name: row for name, row in record["cpu"].items() if name in names}
    there = record.get("cuda", {})
    lines, details = [HEADER], []
    for name, one in sorted(here.items()):
        other = there.get(name)
        end = f"{lower_bound(other['bound'])} of {other['games']:,}" if other else "-"
        commits = ", ".join(each["commit"] for each in (one, other) if each)
        lines.append(f"{one['row']} {end} | {commits} |")
        text = one["text"] + (f"\non a GPU:    {other['text']}" if other else "")
        details.append(f"## {name}\n\n```text\n{text}\n```\n")
    small = SMALL + "\n".join(row for _, row in sorted(record.get("small", {}).items())) + "\n"
    left = sorted(set(names) - set(here))
    lines += ["", f"Not yet audited at this size: {', '.join(left)}."] if left else []
    return "\n".join([HEAD, *lines, "", REASONS, SIGHT, small, *details])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "audit.md")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=available_cores())
    parser.add_argument("--small", action="store_true", help="small worlds only")
    parser.add_argument("--commit", help="of the code; by default that of the checkout")
    parser.add_argument("names", nargs="*", help="of policies; by default all private ones")
    options = parser.parse_args()
    names = private_names()
    if options.device != "cpu":
        names = [name for name in names if not stays_on_cpu(policy_of(name))]
    record = json.loads(options.record.read_text()) if options.record.is_file() else {"cpu": {}}
    if options.small:
        for name in options.names or names:
            record.setdefault("small", {})[name] = small_row(name)
            print(record["small"][name], flush=True)
        options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        options.out.write_text(page(record))
        return 0
    part, device = record.setdefault(options.device, {}), options.device
    commit = options.commit or current_commit()
    faults, start = 0, time.perf_counter()
    # One process for each policy: after a GPU fault a process cannot play any more games.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(options.processes, spawn, max_tasks_per_child=1) as pool:
        jobs = {
            pool.submit(audit, name, options.trials, options.pairs, device): name
            for name in options.names or names
        }
        for job in as_completed(jobs):
            if error := job.exception():  # one that fails does not stop the others
                faults += 1
                print(f"{jobs[job]}: {error!r}", file=sys.stderr, flush=True)
                continue
            report = job.result()
            part[jobs[job]] = record_of(report, device, commit)
            faults += report.verdict != "consistent"
            print(f"{row(report)}  {time.perf_counter() - start:.0f} s", flush=True)
            # After each policy, so that an interrupted run loses little.
            options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
            options.out.write_text(page(record))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
