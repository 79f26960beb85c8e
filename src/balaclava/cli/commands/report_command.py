"""`balaclava report` and `balaclava assessment`: HTML pages, and the input of one."""

from pathlib import Path
from typing import Any

import click

from balaclava.cli.options import delay_options, option, pop_delay
from balaclava.cli.terminal import progress_bar, waiting


@click.command(short_help="Write an HTML page of results.")
@click.argument("source", type=click.Path(path_type=Path), required=False)
@option(
    "--assessment assessment_file",
    Path,
    "Write the page for a review board instead; `balaclava assessment` prints such a file.",
    metavar="FILE.toml",
)
@option(
    "--results results_file",
    Path,
    "With --assessment: what happened, from a save of the agent or the service's export.",
    metavar="FILE",
)
@option(
    "--out", Path, "HTML file to write; by default report.html in the folder, or beside the file."
)
@option(
    "--audit/--no-audit audited",
    bool,
    "Audit the policies, quickly; cached on disk. By default for an assessment only.",
    default=None,
)
@option("--trials", click.IntRange(100), "Games of each audit.", default=20_000)
@delay_options
def report(
    source: Path | None,
    assessment_file: Path | None,
    results_file: Path | None,
    out: Path | None,
    audited: bool | None,
    trials: int,
    **options: Any,
) -> None:
    """Write one HTML page about SOURCE: curves, intervals, tables, guarantees.

    SOURCE is the folder of a sweep, the folder that `balaclava simulate` wrote, or a results
    file. The page is one file that needs no network.

    Delays, losses and settling of an assessment are those of its file; the options replace them.
    After the trial, --results puts what happened beside what was planned. It reads released values
    only, of a file that `agent.save` wrote or of the service's export (format=jsonl).

    \b
    Example: balaclava report quickstart-results
    Example: balaclava report results.parquet --audit --out page.html
    Example: balaclava report --assessment assessment.toml
    Example: balaclava report --assessment assessment.toml --delay 300 --lost 0.1
    Example: balaclava report --assessment assessment.toml --results agent.json
    """
    late = pop_delay(options)
    if (source is None) == (assessment_file is None):
        raise click.UsageError("give either SOURCE or --assessment FILE.toml")
    if assessment_file is not None:
        _write_assessment_page(
            assessment_file, results_file, out, late, audited is not False, trials
        )
    elif source is not None:
        if late:
            raise click.UsageError(f"--{next(iter(late))} is for --assessment; leave it out")
        if results_file is not None:
            raise click.UsageError("--results is for --assessment; give SOURCE alone")
        _write_report_page(source, out, bool(audited), trials)


@click.command()
@option(
    "--init target",
    Path,
    "Write it to this file; by default assessment.toml.",
    is_flag=False,
    flag_value="assessment.toml",
)
@option("--registry", Path, "Print the record of a filled-in file for a public registry.")
def assessment(target: Path | str | None, registry: Path | None) -> None:
    """Print or write the input of a review board's page.

    Fill it in; then `balaclava report --assessment assessment.toml` writes the page: guarantee,
    audit, regret, risk, and questions that only the operator can answer.

    --registry prints a draft record for the OpenDP registry of differential privacy deployments, as
    YAML, and says what is missing for its third tier.

    \b
    Example: balaclava assessment --init
    Example: balaclava assessment --registry trial.toml > record.yaml
    Example: balaclava assessment > trial.toml
    """
    from balaclava.errors import ResultsFileError
    from balaclava.reporting.assessment_input import assessment_template

    if registry is not None:
        _print_record(registry)
        return
    if target is None:
        click.echo(assessment_template(), nl=False)
        return
    place = Path(target)
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(assessment_template())
    except FileExistsError:
        raise ResultsFileError(f"{place} exists already; give another name") from None
    except OSError as error:
        why = f"cannot be written: {error.strerror}; check the path"
        raise ResultsFileError(f"{place} {why}") from None
    click.echo(f"wrote {place}; fill it in, then: balaclava report --assessment {place}")


def _print_record(file: Path) -> None:
    from balaclava.reporting.assessment_input import read_assessment
    from balaclava.reporting.deployments.registry_record import as_yaml, registry_record

    record, missing = registry_record(read_assessment(file))
    click.echo(as_yaml(record), nl=False)
    for field in missing:
        click.echo(f"balaclava: missing for tier 3: {field}", err=True)


def _write_assessment_page(
    file: Path,
    results_file: Path | None,
    out: Path | None,
    late: dict[str, Any],
    audited: bool,
    trials: int,
) -> None:
    from balaclava._core.atomic_files import atomically, require_writable_file
    from balaclava.reporting.assessment_input import audit_policy, read_assessment
    from balaclava.reporting.assessment_page import assessment_page
    from balaclava.reporting.deployments.trial_outcome import read_outcome

    inputs = read_assessment(file).with_feedback(**late)
    out = file.with_suffix(".html") if out is None else out
    require_writable_file(out)
    outcome = None if results_file is None else read_outcome(results_file, inputs.confidence)
    with progress_bar() as progress:
        results = inputs.simulate(progress)
    with waiting("planning ..."):
        planned = inputs.plan()
    verdict = None
    if audited:
        with waiting(f"trying to refute {inputs.policy.name} ..."):
            verdict = audit_policy(inputs, trials)
    page = assessment_page(inputs, results=results, audit=verdict, plan=planned, outcome=outcome)
    with atomically(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    click.echo(f"wrote {out}: open it in a browser, or print it")
    _fail_if_refuted([] if verdict is None else [verdict.verdict])


def _write_report_page(source: Path, out: Path | None, audited: bool, trials: int) -> None:
    from balaclava._core.atomic_files import require_writable_file
    from balaclava.reporting.quick_audits import run_audits
    from balaclava.reporting.report_data import read_page_data
    from balaclava.reporting.report_page import write_page

    data = read_page_data(source)
    if out is None:
        out = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    require_writable_file(out)
    audits = None
    if audited:
        with waiting("auditing ...") as status:
            audits = run_audits(
                data.policies,
                trials=trials,
                progress=lambda label: status.update(f"trying to refute {label} ..."),
            )
    page = write_page(data, out, audits=audits)
    click.echo(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser")
    _fail_if_refuted([each.verdict for each in (audits or {}).values()])


def _fail_if_refuted(verdicts: list[str]) -> None:
    if set(verdicts) & {"violated", "unproved"}:
        click.echo("balaclava: an audit refuted a guarantee; see the page", err=True)
        raise SystemExit(1)
