"""Build what is released, twice, check it, and describe it; writes dist/.

    make release
    make release DRAFT=1            # without a date in CHANGELOG.md
    make release SIGN=0x1234ABCD    # signs the list of digests with this GnuPG key

The wheel is built from the last commit in two folders, at two times and with two settings of time
zone, locale, hash seed and umask; the bytes must be equal. It is installed from the lock files, in
an environment of its own, and plays. docs/release.md has the steps that need an account.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LOCKS = ("requirements-lab.lock", "requirements-service.lock")
# A second build must not depend on these.
SETTINGS = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)
PLAY = """
import balaclava as bl
agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent()
for _ in range(200):
    decision = agent.ask()
    agent.tell(decision, reward=float(decision.arm))
assert agent.guarantee.epsilon == 1.0
assert all(estimate.decisions for estimate in agent.estimates())
assert len(bl.list_policies()) > 50
"""


def run(*command: str | Path, **options: Any) -> str:
    """Run a command; its output. A failure ends the release."""
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def version_of(root: Path, draft: bool) -> str:
    """The version, which all files must agree on."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    places = {
        "src/balaclava/__init__.py": f'__version__ = "{version}"',
        "CITATION.cff": f"version: {version}\n",
        "src/balaclava/_core/bibliography.bib": f"version {version} of ",
    }
    for name, text in places.items():
        if text not in (root / name).read_text(encoding="utf-8"):
            sys.exit(f"{name} does not have version {version}")
    heading = re.search(r"^## (\S+) \((.+)\)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or heading[1] != version:
        sys.exit(f"the first heading of CHANGELOG.md is not of version {version}")
    if not (draft or re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2])):
        sys.exit(f"CHANGELOG.md says {heading[2]!r}; write the date, or give DRAFT=1")
    dates = {
        "CITATION.cff": f"date-released: {heading[2]}\n",
        "src/balaclava/_core/bibliography.bib": f"version {version} of {heading[2]}",
    }
    for name, text in dates.items():
        if not draft and text not in (root / name).read_text(encoding="utf-8"):
            sys.exit(f"{name} does not have the date of CHANGELOG.md, {heading[2]}")
    return version


def export(commit: str, folder: Path, age: int) -> Path:
    """The files of a commit, with times that differ by folder."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", archive, commit, cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (10**9 + age + number, 10**9 + age + number))
    return folder


def build(source: Path, target: Path, settings: dict[str, str], umask: int) -> Path:
    """Build the wheel of a source folder."""
    command = "umask $0 && exec $1 -m pip wheel --quiet --no-build-isolation --no-deps -w $2 $3"
    options = {"env": {**os.environ, **settings, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}}
    run("sh", "-c", command, f"{umask:o}", sys.executable, target, source, **options)
    (wheel,) = target.glob("*.whl")
    return wheel


def built_twice(commit: str, work: Path) -> Path:
    """The wheel, if two builds of the commit have the same bytes."""
    first = build(export(commit, work / "a", 0), work / "one", SETTINGS[0], 0o022)
    source = export(commit, work / "another" / "and-longer-folder", 10**6)
    second = build(source, work / "two", SETTINGS[1], 0o077)
    if first.read_bytes() != second.read_bytes():
        sys.exit(f"two builds differ in {', '.join(differences(first, second)) or 'the archive'}")
    return first


def differences(first: Path, second: Path) -> list[str]:
    """Members of two wheels that differ."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        names = {*one.namelist(), *two.namelist()}
        contents = [{n: z.read(n) for n in z.namelist()} for z in (one, two)]
    return sorted(name for name in names if contents[0].get(name) != contents[1].get(name))


def check_contents(wheel: Path, commit: str) -> None:
    """The wheel has the package's files of the commit and the stubs that the build writes."""
    listed = run("git", "ls-tree", "-r", "--name-only", commit, "src/", cwd=ROOT).splitlines()
    expected = {name.removeprefix("src/") for name in listed}
    expected |= {"balaclava/factories.pyi", "balaclava/policies/__init__.pyi"}
    with zipfile.ZipFile(wheel) as archive:
        members = {name for name in archive.namelist() if ".dist-info/" not in name}
    if members != expected:
        sys.exit(f"the wheel's files differ from the commit's: {sorted(members ^ expected)[:10]}")


def installed(wheel: Path, folder: Path) -> Path:
    """A new environment with the locked versions and the wheel; its Python, after it has played."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for lock in LOCKS:
        run(*pip, "--require-hashes", "-r", ROOT / lock)
    run(*pip, wheel)
    run(python, "-m", "pip", "check")
    run(python, "-I", "-c", PLAY, cwd=folder)
    return python


def provenance(version: str, commit: str, files: Iterable[Path]) -> dict[str, Any]:
    """An in-toto statement with SLSA provenance: files, their commit and the locked inputs."""
    locks = [ROOT / name for name in (*LOCKS, "requirements-build.lock")]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f.name, "digest": {"sha256": digest(f)}} for f in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"version": version},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *({"name": f.name, "digest": {"sha256": digest(f)}} for f in locks),
                ],
            },
            "runDetails": {"builder": {"id": f"python {sys.version.split()[0]}"}},
        },
    }


def describe(version: str, commit: str, wheel: Path, python: Path) -> None:
    """Write the SBOM, the provenance and the list of digests."""
    sbom = DIST / f"balaclava-{version}.cdx.json"
    tool = ROOT / ".venv-release/bin/cyclonedx-py"
    run(
        *(tool, "environment", "--output-reproducible", "--of", "JSON", "--validate"),
        *("--pyproject", ROOT / "pyproject.toml", "-o", sbom, python),
    )
    statement = DIST / f"balaclava-{version}.provenance.json"
    text = json.dumps(provenance(version, commit, [wheel, sbom]), indent=2)
    statement.write_text(text + "\n", encoding="utf-8")
    digests = "".join(f"{digest(path)}  {path.name}\n" for path in (wheel, sbom, statement))
    (DIST / "SHA256SUMS").write_text(digests, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draft", action="store_true")
    parser.add_argument("--sign", metavar="KEY", help="GnuPG key that signs the digests")
    options = parser.parse_args()
    if run("git", "status", "--porcelain", cwd=ROOT):
        sys.exit("the checkout has changes; commit them first")
    version, commit = version_of(ROOT, options.draft), run("git", "rev-parse", "HEAD", cwd=ROOT)
    commit = commit.strip()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheel = Path(shutil.copy(built_twice(commit, work), DIST))
        print("two builds have the same bytes")
        check_contents(wheel, commit)
        python = installed(wheel, work / "venv")
        print("the wheel has the commit's files, installs from the lock files, and plays")
        describe(version, commit, wheel, python)
    strict = [] if options.draft else ["--strict"]
    done = subprocess.run([sys.executable, ROOT / ".ci/advisories.py", *strict])
    if done.returncode:
        sys.exit("a dependency has a known vulnerability, or not all were looked up")
    if options.sign:
        signing = ["--local-user", options.sign, "--armor", "--detach-sign"]
        run("gpg", "--batch", "--yes", *signing, DIST / "SHA256SUMS")
    for path in sorted(DIST.iterdir()):
        print(path.relative_to(ROOT), path.stat().st_size)


if __name__ == "__main__":
    main()
