"""`balaclava serve`: private decisions over HTTP."""

from pathlib import Path
from typing import Any

import click

from balaclava.cli.options import option

_database = option(
    "--database",
    str,
    "File for SQLite, or URL of a PostgreSQL database (postgresql://...).",
    default="balaclava.db",
)
_ledger = option(
    "--ledger",
    str,
    "Path or URL of the privacy ledger; keep it off the database's disk. [DATABASE.ledger]",
)
_secrets = option("--secrets", str, "File with the key that pseudonymises persons. [DATABASE.key]")


@click.command(short_help="Private decisions over HTTP, with a dashboard.")
@_database
@option("--host", str, "Address to listen on.", default="127.0.0.1")
@option("--port", click.IntRange(0, 65535), "Port; 0 takes a free one.", default=8765)
@option("--workers", click.IntRange(1, 64), "Processes; more than one needs PostgreSQL.", default=1)
@_ledger
@_secrets
@option(
    "--root-path",
    str,
    "Path prefix behind a proxy, such as /decisions.",
    default="",
    show_default=False,
)
@option("--restored", bool, "Start from a restored backup: charge unfinished releases again.")
@option("--accept-clock", bool, "Start although the last commit is more than 30 days old.")
@option("--admin-key-file", str, "New file for the first admin key, instead of printing it.")
@option("--no-keys", bool, "Require no API key; on a loopback address only.")
@option("--demo", bool, "Temporary database with simulated visitors.")
def serve(demo: bool, no_keys: bool, **options: Any) -> None:
    """Serve private decisions over HTTP, with a dashboard.

    Prints the address and, the first time, an admin key.

    \b
    Example: balaclava serve
    Example: balaclava serve --database postgresql://host/balaclava --workers 4
    Example: balaclava serve --demo
    """
    _require_service(options["database"])
    from balaclava.service.demo import serve_demo
    from balaclava.service.http.server import ServerSettings
    from balaclava.service.http.server import serve as serve_until_stopped

    try:
        if demo:
            serve_demo(options["host"], options["port"], click.echo)
        else:
            serve_until_stopped(ServerSettings(**options, keys=not no_keys), _print_address)
    except KeyboardInterrupt:
        click.echo("balaclava: stopped", err=True)


def _require_service(database: str) -> None:
    from balaclava._core.extras import require_extra

    require_extra("fastapi", "the service")
    require_extra("uvicorn", "the service")
    if database.startswith("postgresql"):
        require_extra("psycopg", "PostgreSQL")


@click.command(short_help="Back up the service's database and secret key.")
@click.argument("folder", type=click.Path(path_type=Path))
@_database
@_secrets
def backup(folder: Path, database: str, secrets: str | None) -> None:
    """Back up the service's SQLite database and secret key, also while it runs.

    Makes a new folder in FOLDER, named after the time, that only its owner can read. The ledger is
    not part of it: keep its newest state.

    \b
    Example: balaclava backup /var/backups/balaclava
    """
    _require_service(database)
    from balaclava.service.store.backup import back_up

    click.echo(back_up(database, secrets, folder))


@click.command(short_help="Restore a backup of the service.")
@click.argument("folder", type=click.Path(path_type=Path))
@_database
@_secrets
def restore(folder: Path, database: str, secrets: str | None) -> None:
    """Restore what `balaclava backup` wrote into FOLDER, while the service is stopped.

    The database in place is set aside, not deleted. Then start the service once with --restored:
    the ledger charges what may be released again.

    \b
    Example: balaclava restore /var/backups/balaclava/2026-05-01T02-00-00Z
    """
    _require_service(database)
    from balaclava.service.store.backup import restore as restore_backup

    for path in restore_backup(folder, database, secrets):
        click.echo(f"set aside: {path}")
    click.echo("restored; start the service once with --restored")


@click.command(short_help="Examine the service's database, ledger, key, clock and disk.")
@_database
@_ledger
@_secrets
def doctor(database: str, ledger: str | None, secrets: str | None) -> None:
    """Examine what the service needs, and say what is wrong and what to do.

    Give it the options of `balaclava serve`. It changes nothing, and may run beside the service.
    Exits with 1 if something is wrong.

    \b
    Example: balaclava doctor --database balaclava.db --ledger /mnt/ledger/balaclava.ledger
    """
    _require_service(database)
    from balaclava.service.doctor import examine

    findings = list(examine(database, ledger, secrets))
    for finding in findings:
        click.echo(f"{'ok   ' if finding.well else 'WRONG'}  {finding.subject}: {finding.text}")
    if not all(finding.well for finding in findings):
        raise SystemExit(1)


def _print_address(address: str, key: str | None) -> None:
    click.echo(f"balaclava serves at {address}")
    if key is not None:
        click.echo(f"admin key, displayed only this once: {key}")
