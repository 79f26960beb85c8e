"""`balaclava audit`: test a policy's guarantee."""

import json
from typing import Any

import click

from balaclava.cli.commands.catalogue import complete_policy
from balaclava.cli.options import ARMS_TYPE, device_option, option
from balaclava.cli.terminal import print_json, waiting


def parse_parameter(text: str) -> tuple[str, Any]:
    """Parse `name=value`; the value is JSON, or else a string."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not like name=value, such as radius_scale=0.5")
    try:
        return name.replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.replace("-", "_"), value


@click.command()
@click.argument("policy", shell_complete=complete_policy)
@option("--epsilon", float, "Privacy loss that the policy claims.")
@option("--delta", float, "Probability outside it, for policies that take one.")
@option("--arms", ARMS_TYPE, "Number of arms, or their names.", default=2)
@option("--horizon", int, "Rounds, for policies that need them; by default 1,000.")
@option(
    "--set others", "NAME=VALUE", "Another parameter of the policy; may be repeated.", multiple=True
)
@option("--trials", int, "Games to play; by default a few seconds' worth.")
@option("--pairs", int, "Pairs of neighbouring streams to replay; by default a few seconds' worth.")
@option("--seed", int, "Repeats the audit exactly.", default=0)
@option("--confidence", float, "Confidence of the lower bound on epsilon.", default=0.95)
@option("--quick", bool, "Bet against the guarantee instead of measuring epsilon.")
@device_option
@option("--json as_json", bool, "Print the report as JSON.")
def audit(policy: str, others: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Try to refute the privacy guarantee of POLICY, five ways.

    Exit status: 0 if nothing was found, 1 if the guarantee is violated, unproved or not examined.

    \b
    Example: balaclava audit dp-se --epsilon 1 --horizon 10000
    Example: balaclava audit dp-se --epsilon 1 --set radius_scale=0.5 --json
    """
    from balaclava.auditing.audit import audit as run_audit
    from balaclava.policies.base import POLICIES

    cls = POLICIES.get(policy)
    names = ("arms", "epsilon", "delta", "horizon")
    parameters = {name: options[name] for name in names if options[name] is not None}
    if "horizon" in cls.annotations:
        parameters.setdefault("horizon", 1_000)
    parameters |= dict(parse_parameter(text) for text in others)
    subject = cls.create(parameters)
    settings = {name: value for name, value in options.items() if name not in names}
    settings["device"] = settings["device"] or "cpu"
    with waiting(f"trying to refute {policy} ..."):
        report = run_audit(subject, **settings)
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(str(report))
    if report.verdict not in ("consistent", "not private"):
        raise SystemExit(1)
