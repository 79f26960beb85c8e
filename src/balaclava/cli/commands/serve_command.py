"""`balaclava serve`: private decisions over HTTP."""

from __future__ import annotations

from typing import Any

import click


@click.command(short_help="Private decisions over HTTP, with a dashboard.")
@click.option(
    "--database",
    default="balaclava.db",
    show_default=True,
    help="A file for SQLite, or the address of a PostgreSQL database (postgresql://...).",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: a free one."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes; more than one needs PostgreSQL.",
)
@click.option(
    "--ledger", help="Where charges and commits are counted: outside the database. [by its name]"
)
@click.option("--secrets", help="The key file under which persons are stored. [by its name]")
@click.option("--root-path", default="", help="The path under which a proxy shows it: /decisions.")
@click.option(
    "--restored",
    is_flag=True,
    help="Go on with a database from a backup: what was unfinished is charged again.",
)
@click.option("--no-keys", is_flag=True, help="Ask nobody for a key: on a loopback address only.")
@click.option(
    "--demo", is_flag=True, help="A throw-away database with made-up visitors, to look at."
)
def serve(demo: bool, no_keys: bool, **options: Any) -> None:
    """Decide over HTTP which arm each person gets, and learn from what came of it, in private.

    \b
    Prints the address and, the first time, an admin key.
    Example: balaclava serve
    Example: balaclava serve --database postgresql://host/balaclava --workers 4
    Example: balaclava serve --demo
    """
    from balaclava._core.extras import require_extra
    from balaclava.errors import BalaclavaError

    require_extra("fastapi", "the service")
    require_extra("uvicorn", "the service")
    if options["database"].startswith("postgresql"):
        require_extra("psycopg", "PostgreSQL")
    from balaclava.service.demo import serve_demo
    from balaclava.service.http.server import ServerSettings
    from balaclava.service.http.server import serve as serve_until_stopped
    from balaclava.service.problems import StartError

    try:
        if demo:
            serve_demo(options["host"], options["port"], click.echo)
        else:
            serve_until_stopped(ServerSettings(**options, keys=not no_keys), _greet)
    except StartError as error:
        raise BalaclavaError(str(error)) from error
    except KeyboardInterrupt:
        click.echo("balaclava: stopped", err=True)


def _greet(address: str, key: str | None) -> None:
    click.echo(f"balaclava serves at {address}")
    if key is not None:
        click.echo(f"admin key, shown this once: {key}")
