"""`balaclava serve`, and the commands around the service."""

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from balaclava.cli.options import option
from balaclava.errors import ParameterError

# Not of a file or the environment, where they would stay: each is for one start.
_NOT_IN_ENVIRONMENT = {"allow_from_autoenv": False}
_IN_A_FILE = frozenset(
    {"database", "ledger", "secrets", "host", "port", "workers", "root_path"}
    | {"admin_key_file", "webhook_network", "log_format", "telemetry"}
)
_FROM_ENVIRONMENT = {"auto_envvar_prefix": "BALACLAVA"}


def _read_config(context: click.Context, _: Any, file: Path | None) -> None:
    """Take defaults of options from a TOML file."""
    if file is None:
        return
    import tomllib

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"cannot read --config {file}: {why}; check it") from None
    settings = {name.replace("-", "_"): value for name, value in content.items()}
    if unknown := sorted(settings.keys() - _IN_A_FILE):
        names = ", ".join(sorted(_IN_A_FILE))
        raise ParameterError(f"--config {file} sets {', '.join(unknown)}; it may set {names}")
    context.default_map = {**(context.default_map or {}), **settings}


_config = option(
    "--config",
    Path,
    "TOML file with options, such as port = 8765. The environment has BALACLAVA_PORT and so on.",
    is_eager=True,
    expose_value=False,
    callback=_read_config,
)
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


@click.command(
    short_help="Private decisions over HTTP, with a dashboard.", context_settings=_FROM_ENVIRONMENT
)
@_config
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
@option(
    "--restored",
    bool,
    "Start from a restored backup: charge unfinished releases again.",
    **_NOT_IN_ENVIRONMENT,
)
@option(
    "--accept-clock",
    bool,
    "Start although the last commit is more than 30 days old.",
    **_NOT_IN_ENVIRONMENT,
)
@option("--admin-key-file", str, "New file for the first admin key, instead of printing it.")
@option(
    "--webhook-network",
    str,
    "Network of your own that webhooks may reach, such as 10.1.0.0/16; repeat it for more.",
    multiple=True,
)
@option("--log-format", click.Choice(["text", "json"]), "Format of log lines.", default="text")
@option("--telemetry", bool, "Record spans of requests by OpenTelemetry's API.")
@option("--no-keys", bool, "Require no API key; on a loopback address only.", **_NOT_IN_ENVIRONMENT)
@option("--aggregator", bool, "Add up secret shares for the deciders of others.")
@option("--demo", bool, "Temporary database with simulated visitors.", **_NOT_IN_ENVIRONMENT)
def serve(demo: bool, no_keys: bool, aggregator: bool, **options: Any) -> None:
    """Serve private decisions over HTTP, with a dashboard.

    Prints the address and, the first time, an admin key. Options may also be in the environment,
    as BALACLAVA_DATABASE, or in a file; the command line comes first, then the environment.

    \b
    Example: balaclava serve
    Example: balaclava serve --database postgresql://host/balaclava --workers 4
    Example: balaclava serve --aggregator --database aggregator.db --port 8771
    Example: balaclava serve --demo
    """
    if demo:
        _refuse_beside_demo(click.get_current_context())
    _require_service(options["database"])
    from balaclava.service.aggregator_app import serve_aggregator
    from balaclava.service.demo import serve_demo
    from balaclava.service.http.server import ServerSettings
    from balaclava.service.http.server import serve as serve_until_stopped

    try:
        if demo:
            serve_demo(options["host"], options["port"], click.echo)
        else:
            serve_role = serve_aggregator if aggregator else serve_until_stopped
            serve_role(ServerSettings(**options, keys=not no_keys), _print_address)
    except KeyboardInterrupt:
        click.echo("balaclava: stopped", err=True)


def _refuse_beside_demo(context: click.Context) -> None:
    names = [
        each.opts[0]
        for each in context.command.params
        if each.name is not None
        and each.name not in ("demo", "host", "port")
        and context.get_parameter_source(each.name) == ParameterSource.COMMANDLINE
    ]
    if names:
        raise click.UsageError(
            "--demo has a temporary database and takes --host and --port only; leave out "
            f"{', '.join(names)}"
        )


def _require_service(database: str) -> None:
    from balaclava._core.extras import require_extra

    require_extra("fastapi", "the service")
    require_extra("uvicorn", "the service")
    if database.startswith("postgresql"):
        require_extra("psycopg", "PostgreSQL")


@click.command(
    short_help="Back up the service's database and secret key.", context_settings=_FROM_ENVIRONMENT
)
@_config
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


@click.command(short_help="Restore a backup of the service.", context_settings=_FROM_ENVIRONMENT)
@_config
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


@click.command(
    short_help="Examine the service's database, ledger, key, clock and disk.",
    context_settings=_FROM_ENVIRONMENT,
)
@_config
@_database
@_ledger
@_secrets
def doctor(database: str, ledger: str | None, secrets: str | None) -> None:
    """Examine what the service needs, and say what is wrong and what to do.

    Give it the options of `balaclava serve`. It changes nothing, and may run beside the service.
    Exits with 1 if something is wrong, not for a warning.

    \b
    Example: balaclava doctor --database balaclava.db --ledger /mnt/ledger/balaclava.ledger
    """
    _require_service(database)
    from balaclava.service.doctor import examine

    findings = list(examine(database, ledger, secrets))
    for finding in findings:
        word = {True: "ok   ", None: "warn ", False: "WRONG"}[finding.well]
        click.echo(f"{word}  {finding.subject}: {finding.text}")
    if any(finding.well is False for finding in findings):
        raise SystemExit(1)


@click.command(short_help="Serve finished experiments from a signed snapshot.")
@click.argument("source")
@option("--public-key", str, "The service's key, from its snapshot: get it once.", required=True)
@option("--key-file", Path, "File with an API key of role read, for a URL.")
@option("--cache", str, "File that keeps the newest snapshot.", default="balaclava-edge.json")
@option("--host", str, "Loopback address to listen on.", default="127.0.0.1")
@option("--port", click.IntRange(0, 65535), "Port; 0 takes a free one.", default=8766)
def edge(
    source: str, public_key: str, key_file: Path | None, cache: str, host: str, port: int
) -> None:
    """Serve the finished experiments of a service without its database.

    SOURCE is the URL of the service's /v1/snapshot, or a file with what it answered. Decisions and
    feature flags have the paths of the service; a person gets the same arm from every edge, and
    nothing is stored. A snapshot is valid for a day, and is fetched again every minute.

    \b
    Example: balaclava edge https://decisions.example.org/v1/snapshot --key-file read.key
      --public-key 3q2+7w...
    """
    from balaclava._core.extras import require_extra

    require_extra("fastapi", "the edge")
    require_extra("cryptography", "the edge")
    from balaclava.service.http.edge import EdgeDecider, serve_edge
    from balaclava.service.http.server import ServerSettings

    decider = EdgeDecider(source, public_key, cache, _read_key(key_file))
    try:
        serve_edge(decider, ServerSettings(host=host, port=port, keys=False), click.echo)
    except KeyboardInterrupt:
        click.echo("balaclava: stopped", err=True)


@click.command(short_help="Let language models read experiments (Model Context Protocol).")
@option("--url", str, "Address of the service.", default="http://127.0.0.1:8765")
@option("--key-file", Path, "File with an API key of role read. [env: BALACLAVA_KEY]")
def mcp(url: str, key_file: Path | None) -> None:
    """Let language models read experiments: a Model Context Protocol server on stdin and stdout.

    Its tools list experiments, and read results, privacy and plan. They change nothing. Give it a
    key of role read.

    \b
    Example: balaclava mcp --url https://decisions.example.org --key-file read.key
    """
    from balaclava._core.extras import require_extra

    require_extra("httpx", "the client")
    from balaclava.client.clients import Client
    from balaclava.client.model_context import serve_stdio

    key = _read_key(key_file) or os.environ.get("BALACLAVA_KEY")
    with Client(url, key) as client:
        serve_stdio(client, sys.stdin, sys.stdout)


def _read_key(file: Path | None) -> str | None:
    """The API key in a file."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ParameterError(f"cannot read --key-file {file}: {error.strerror}; check it") from None


def _print_address(address: str, key: str | None) -> None:
    click.echo(f"balaclava serves at {address}")
    if key is not None:
        click.echo(f"admin key, displayed only this once: {key}")
