"""The `balaclava` command.

Only click is imported here, so that help is fast; each command imports what it needs.
"""

import importlib
import os
import sys
import warnings
from typing import Any

import click

import balaclava
from balaclava.cli.commands.audit_command import audit
from balaclava.cli.commands.calibrate_command import calibrate
from balaclava.cli.commands.catalogue import environments, policies, proofs
from balaclava.cli.commands.choose_command import choose
from balaclava.cli.commands.compare_command import compare, explore
from balaclava.cli.commands.demo_command import demo
from balaclava.cli.commands.plan_command import plan
from balaclava.cli.commands.report_command import assessment, report
from balaclava.cli.commands.reproduce_command import reproduce
from balaclava.cli.commands.serve_command import backup, doctor, edge, mcp, restore, serve
from balaclava.cli.commands.simulate_command import simulate
from balaclava.cli.commands.summary_command import example, summary
from balaclava.cli.options import option
from balaclava.cli.terminal import INTERRUPTED_STATUS
from balaclava.errors import BalaclavaError, DamageWarning, MomentWarning, PlugInWarning

_USER_WARNINGS = (DamageWarning, MomentWarning, PlugInWarning)  # printed in one line


class _Refused(click.ClickException):
    """An error that a user can fix, printed without a traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        lines = (" ".join(line.split()) for line in self.message.splitlines())
        click.echo("balaclava: " + "\n".join(filter(None, lines)), err=True)


class _Group(click.Group):
    def main(self, *arguments: Any, **keywords: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # an ε must not crash an ASCII terminal
                stream.reconfigure(errors="replace")
        return super().main(*arguments, **keywords)

    def invoke(self, context: click.Context) -> Any:
        usual_format = warnings.showwarning

        def show(message: Any, category: Any, *where: Any) -> None:
            if issubclass(category, _USER_WARNINGS):
                click.echo(f"balaclava: warning: {message}", err=True)
            else:
                usual_format(message, category, *where)

        try:
            with warnings.catch_warnings():
                warnings.showwarning = show  # type: ignore[assignment]
                return super().invoke(context)
        except click.NoSuchOption as error:
            if error.option_name != "--import":
                raise
            raise _Refused(
                "--import stands before the command: balaclava --import MODULE "
                f"{context.invoked_subcommand} ..."
            ) from None
        except BalaclavaError as error:
            raise _Refused(str(error)) from error
        except KeyboardInterrupt:
            click.echo("balaclava: interrupted", err=True)
            context.exit(INTERRUPTED_STATUS)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(balaclava.__version__, message="%(prog)s %(version)s")
@option(
    "--import modules",
    "MODULE",
    "Import a Python module first, such as one that registers your policies.",
    multiple=True,
)
def main(modules: tuple[str, ...]) -> None:
    """Differentially private multi-armed bandits.

    \b
    See a demo:               balaclava demo
    List the policies:        balaclava policies
    Describe one:             balaclava policies ucb1
    Find one that fits:       balaclava choose
    Plan a trial's size:      balaclava plan --arms 3 --rate 0.05 --difference 0.02
    Rank some on your log:    balaclava compare log.csv --arm page --reward clicked
    Ask it what if:           balaclava explore log.csv --arm page --reward clicked
    Start an experiment:      balaclava example > experiment.toml
    Run it:                   balaclava simulate experiment.toml
    View the results:         balaclava report experiment-results
    Tune a policy's scale:    balaclava calibrate experiment.toml --policy dp-se
    Audit a guarantee:        balaclava audit dp-se --epsilon 1
    Read its proof:           balaclava proofs dp-se
    Write for a review board: balaclava report --assessment trial.toml
    Reproduce a figure:       balaclava reproduce wang2024-fig1
    Serve decisions:          balaclava serve --demo
    Back its database up:     balaclava backup /var/backups/balaclava
    Find what is wrong:       balaclava doctor
    Serve without a database: balaclava edge snapshot.json --public-key KEY
    For language models:      balaclava mcp --key-file read.key
    """
    if modules:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            hint = f"; write --import {module[:-3]}" if module.endswith(".py") else ""
            advice = f"give a module in this folder or an installed one{hint}"
            raise BalaclavaError(f"--import {module}: {error}; {advice}") from error


for _command in (
    *(demo, choose, plan, compare, explore, example, simulate, summary),
    *(calibrate, report, assessment),
    *(audit, proofs, reproduce, serve, backup, restore, doctor, edge, mcp, policies, environments),
):
    main.add_command(_command)
