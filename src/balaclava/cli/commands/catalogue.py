"""`balaclava policies`, `environments` and `proofs`: lists, and one entry in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.options import option
from balaclava.cli.terminal import print_json, print_table

if TYPE_CHECKING:
    from balaclava._core.declared import Declared
    from balaclava.auditing.proof_notes import ProofNote


def complete_policy(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Complete the name of a policy in the shell."""
    from balaclava.policies.base import POLICIES

    return [name for name in POLICIES.classes() if name.startswith(text)]


def complete_environment(_: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Complete the name of an environment in the shell."""
    from balaclava.environments.base import ENVIRONMENTS

    return [name for name in ENVIRONMENTS.classes() if name.startswith(text)]


@click.command()
@click.argument("name", required=False, shell_complete=complete_policy)
@option("--private/--not-private", bool, "Only private ones, or only others.", default=None)
@option("--rewards", ["bounded", "real", "loss", "any"], "Only policies that take such rewards.")
@option(
    "--scope",
    ["decision", "joint", "trajectory", "report", "none"],
    "Only policies that protect this.",
)
@option("--json as_json", bool, "Print as JSON.")
@option("--bibtex as_bibtex", bool, "Print balaclava and the papers of NAME for BibTeX.")
def policies(
    name: str | None,
    private: bool | None,
    rewards: str | None,
    scope: str | None,
    as_json: bool,
    as_bibtex: bool,
) -> None:
    """List the policies, or show one and its parameters.

    \b
    Example: balaclava policies --private
    Example: balaclava policies --rewards bounded --scope trajectory
    Example: balaclava policies ucb1
    Example: balaclava policies dp-se --bibtex
    """
    from balaclava._core.docstrings import bibtex, cited
    from balaclava.policies.base import POLICIES, list_policies

    if as_bibtex:
        papers = cited(POLICIES.get(name)) if name is not None else []
        click.echo("\n\n".join(map(bibtex, ["balaclava", *papers])))
        return
    if name is not None:
        _show(POLICIES.get(name), as_json)
        return
    entries = [
        entry
        for entry in list_policies()
        if (private is None or private == (entry.guarantee != "none"))
        and rewards in (None, entry.rewards)
        and scope in (None, entry.policy.scope)
    ]
    if as_json:
        print_json([_plain(entry, "policy") for entry in entries])
        return
    rows = [(e.name, e.title, e.rewards, e.guarantee, e.reference) for e in entries]
    print_table(("policy", "what it does", "rewards", "privacy", "reference"), rows)


@click.command()
@click.argument("name", required=False, shell_complete=complete_environment)
@option("--json as_json", bool, "Print as JSON.")
def environments(name: str | None, as_json: bool) -> None:
    """List the environments, or show one and its parameters.

    \b
    Example: balaclava environments
    Example: balaclava environments bernoulli
    """
    from balaclava.environments.base import ENVIRONMENTS, list_environments

    if name is not None:
        _show(ENVIRONMENTS.get(name), as_json)
        return
    if as_json:
        print_json([_plain(entry, "environment") for entry in list_environments()])
        return
    rows = [(entry.name, entry.title, entry.parameters) for entry in list_environments()]
    print_table(("environment", "what it is", "parameters"), rows)


@click.command(short_help="List the proofs of privacy, or print one.")
@click.argument("name", required=False, shell_complete=complete_policy)
@option("--json as_json", bool, "Print as JSON.")
def proofs(name: str | None, as_json: bool) -> None:
    """List the proof notes of mechanisms, frames and private policies, or print one.

    NAME is a policy, a mechanism or a note. After a policy's note come those that it uses. Each
    step of a proof names the code that does it and the tests that would fail if the code did not.

    \b
    Example: balaclava proofs
    Example: balaclava proofs dp-imed
    Example: balaclava proofs "truncated Laplace"
    """
    from balaclava.auditing.proof_notes import covered_policies, proof_notes, with_used

    if name is not None:
        notes = with_used(_note_of(name))
        if as_json:
            print_json([_plain_note(note) for note in notes])
        else:
            click.echo("\n".join(note.text for note in notes))
        return
    notes = list(proof_notes().values())
    covered = covered_policies()
    if as_json:
        print_json([_plain_note(note) | {"policies": covered.get(note.name, [])} for note in notes])
        return
    rows = [
        (
            note.name,
            ", ".join(covered.get(note.name, [])) or ", ".join(note.subjects),
            str(len(note.steps)),
            str(len({test for step in note.steps for test in step.tests})),
            note.derived_by,
        )
        for note in notes
    ]
    print_table(("proof", "of", "steps", "tests", "also derived by"), rows)
    steps = sum(len(note.steps) for note in notes)
    tests = len({test for note in notes for step in note.steps for test in step.tests})
    policies = sum(map(len, covered.values()))
    click.echo(f"\n{len(notes)} proofs, {policies} private policies, {steps} steps, {tests} tests")


def _note_of(name: str) -> ProofNote:
    from balaclava.auditing.proof_notes import proof_notes, proof_of
    from balaclava.errors import ParameterError
    from balaclava.policies.base import POLICIES

    if name in POLICIES.classes():
        policy = POLICIES.get(name)
        note = proof_of(policy) if policy.model != "none" else None
    else:
        note = proof_notes().get(name) or proof_of(name)
    if note is None:
        raise ParameterError(
            f"there is no proof note for {name!r}; give a private policy, a mechanism or a note "
            "that `balaclava proofs` lists"
        )
    return note


def _plain_note(note: ProofNote) -> dict[str, Any]:
    plain = note._asdict()
    del plain["path"]
    return plain | {"steps": [step._asdict() for step in note.steps]}


def _plain(entry: Any, kind: str) -> dict[str, Any]:
    return {name: value for name, value in entry._asdict().items() if name != kind}


def _show(cls: type[Declared], as_json: bool) -> None:
    """Print the docstring, and every parameter with its range."""
    import inspect

    from balaclava._core.declared import brief
    from balaclava.policies.base import Policy

    if as_json:
        listed = [each._asdict() for each in cls.parameter_list()]
        print_json({"name": cls.name, "help": inspect.getdoc(cls), "parameters": listed})
        return
    click.echo(f"{cls.name}\n\n{inspect.getdoc(cls)}\n")
    if issubclass(cls, Policy) and cls.lost_reward:
        click.echo(click.wrap_text(f"A reward that never arrives {cls.lost_reward}.", 100) + "\n")
    rows = []
    for each in cls.parameter_list():
        default = "required" if each.required else brief(each.default)
        rows.append((each.name, default, each.allowed, each.meaning))
    if cls.kind == "policy" and "horizon" not in cls.annotations:
        meaning = "ignored: other policies need it, so bl.policy accepts it"
        rows.append(("horizon", "-", "any", meaning))
    print_table(("parameter", "default", "allowed", "meaning"), rows)
