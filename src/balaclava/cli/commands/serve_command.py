"""`balaclava serve`: private decisions over HTTP."""

from typing import Any

import click

from balaclava.cli.options import option


@click.command(short_help="Private decisions over HTTP, with a dashboard.")
@option(
    "--database",
    str,
    "File for SQLite, or URL of a PostgreSQL database (postgresql://...).",
    default="balaclava.db",
)
@option("--host", str, "Address to listen on.", default="127.0.0.1")
@option("--port", click.IntRange(0, 65535), "Port; 0 takes a free one.", default=8765)
@option("--workers", click.IntRange(1, 64), "Processes; more than one needs PostgreSQL.", default=1)
@option(
    "--ledger",
    str,
    "Path or URL of the privacy ledger; keep it off the database's disk. [DATABASE.ledger]",
)
@option("--secrets", str, "File with the key that pseudonymises persons. [DATABASE.key]")
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
    from balaclava._core.extras import require_extra

    require_extra("fastapi", "the service")
    require_extra("uvicorn", "the service")
    if options["database"].startswith("postgresql"):
        require_extra("psycopg", "PostgreSQL")
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


def _print_address(address: str, key: str | None) -> None:
    click.echo(f"balaclava serves at {address}")
    if key is not None:
        click.echo(f"admin key, displayed only this once: {key}")
