"""`balaclava audit`: put a policy's claim to the test from the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from balaclava.cli.commands.catalogue import complete_policy
from balaclava.cli.options import ARMS, device_option
from balaclava.cli.terminal import waiting


def parameter(text: str) -> tuple[str, Any]:
    """`name=value` as a name and a number, a list or a word."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not of the form name=value")
    try:
        return name.replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.replace("-", "_"), value


@click.command()
@click.argument("policy", shell_complete=complete_policy)
@click.option("--epsilon", type=float, help="Privacy loss to claim.")
@click.option("--delta", type=float, help="Probability outside it, for policies that take one.")
@click.option(
    "--arms", type=ARMS, default=2, show_default=True, help="Number of arms, or their names."
)
@click.option("--horizon", type=int, help="Rounds, for policies that need to know.")
@click.option(
    "--set",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other parameter of the policy; may be repeated.",
)
@click.option("--trials", type=int, help="Games to play; by default what takes a few seconds.")
@click.option("--pairs", type=int, help="Streams to replay; by default what takes a few seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Repeats the audit exactly.")
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--quick", is_flag=True, help="Bet against the claim instead of measuring epsilon.")
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def audit(policy: str, others: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Try to refute the privacy claim of POLICY, four ways.

    Exit status: 0 when nothing was found, 1 when the claim is violated, unproved or not examined.

    \b
    Example:
      balaclava audit dp-se --epsilon 1 --horizon 10000
    """

    from balaclava.auditing.audit import audit as run_audit
    from balaclava.policies.base import REGISTRY

    cls = REGISTRY.get(policy)
    shortcuts = {name: options[name] for name in ("arms", "epsilon", "delta", "horizon")}
    parameters = {name: value for name, value in shortcuts.items() if value is not None}
    if "horizon" in cls.annotations:
        parameters.setdefault("horizon", 1_000)
    parameters |= dict(parameter(text) for text in others)
    subject = cls.create(parameters)
    with waiting(f"trying to refute {policy} ..."):
        report = run_audit(
            subject,
            trials=options["trials"],
            pairs=options["pairs"],
            seed=options["seed"],
            confidence=options["confidence"],
            quick=options["quick"],
            device=options["device"] or "cpu",
        )
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
    if report.verdict not in ("consistent", "not private"):
        raise SystemExit(1)
