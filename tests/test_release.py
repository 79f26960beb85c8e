"""What is released: a wheel that anyone can build again, from files with known hashes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.test_base_install import PROJECT, required

ROOT = Path(__file__).parents[1]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
PIN = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
)


def script(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """Version and hashes by name; fails on a line that is neither a pin nor a comment."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    known = {}
    while text:
        match = PIN.match(text)
        assert match is not None, text[:80]
        known[match[1]] = match[2], match[3]
        text = text[match.end() :]
    return known


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_locked_version_has_hashes_and_no_file_names_an_index(path: Path) -> None:
    assert pins(path)
    assert "://" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["lab", "service"])
def test_smaller_lock_files_are_parts_of_the_one_that_is_tested(name: str) -> None:
    whole = pins(ROOT / "requirements.lock")
    part = pins(ROOT / f"requirements-{name}.lock")
    assert {key: whole[key] for key in part} == part
    extras = {"lab": ["lab"], "service": ["serve", "client", "postgres", "edge"]}[name]
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    direct = [line for line in (*PROJECT["dependencies"], *lines) if "balaclava[" not in line]
    assert {normal(each) for each in required(direct)} <= set(part)


def test_make_installs_only_what_has_hashes() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "pip install" in line]
    assert lines == ["PIP := -m pip install --quiet --disable-pip-version-check --no-deps"]
    uses = [line for line in text.splitlines() if re.search(r"\$\((PIP|LOCKED)\)", line)]
    assert len(uses) > 8
    for line in uses:
        assert line.startswith(("LOCKED :=", "SELF :=")) or "$(LOCKED) -r requirements" in line, (
            line
        )
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*?)(?: \\)?\n", container + "\n")
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def test_the_container_file_copies_what_the_build_needs() -> None:
    """The hook of the build and the lock files, past .dockerignore."""
    copied = re.findall(
        r"^COPY (?!--from)(.*) \./(?:src)?$", (ROOT / "Containerfile").read_text(), re.M
    )
    names = {name for line in copied for name in line.split()}
    assert {"hatch_build.py", "build_stubs.py", "src", "README.md", "LICENSE"} <= names
    admitted = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in names} <= set(admitted)
    for name in names:
        assert (ROOT / name).exists()


@pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None,
    reason="no hatchling: pip install --require-hashes --no-deps -r requirements-build.lock",
)
def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    release = script("release")
    wheel = release.built_twice("HEAD", tmp_path)
    release.check_contents(wheel, "HEAD")
    other = tmp_path / "changed.whl"
    shutil.copy(wheel, other)
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-c", str(other), str(ROOT / "LICENSE")], check=True
    )
    assert release.differences(wheel, other)  # the comparison can fail
    with pytest.raises(SystemExit, match="differ from the commit's"):
        release.check_contents(other, "HEAD")


def test_a_release_has_one_version_and_a_date(tmp_path: Path) -> None:
    release = script("release")
    files = ("pyproject.toml", "src/balaclava/__init__.py", "CITATION.cff", "CHANGELOG.md")
    files += ("src/balaclava/_core/bibliography.bib",)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = PROJECT["version"]
    assert release.version_of(tmp_path, draft=True) == version
    changes = tmp_path / "CHANGELOG.md"
    text = re.sub(r"^(## \S+) \(.*\)$", r"\1 (unreleased)", changes.read_text(), flags=re.M)
    changes.write_text(text)
    with pytest.raises(SystemExit, match="write the date"):
        release.version_of(tmp_path, draft=False)
    changes.write_text(text.replace("(unreleased)", "(2026-12-01)", 1))
    with pytest.raises(SystemExit, match=r"date of CHANGELOG\.md, 2026-12-01"):
        release.version_of(tmp_path, draft=False)
    for name in ("CITATION.cff", files[-1]):
        path = tmp_path / name
        path.write_text(re.sub(r"2026-\d\d-\d\d", "2026-12-01", path.read_text()))
    assert release.version_of(tmp_path, draft=False) == version
    citation = tmp_path / "CITATION.cff"
    citation.write_text(citation.read_text().replace(f"version: {version}", "version: 9.9.9"))
    with pytest.raises(SystemExit, match=r"CITATION\.cff"):
        release.version_of(tmp_path, draft=False)


def test_provenance_has_the_digest_of_each_file(tmp_path: Path) -> None:
    release = script("release")
    file = tmp_path / "a.whl"
    file.write_bytes(b"wheel")
    statement = release.provenance("1.2.3", "c0ffee", [file])
    (subject,) = statement["subject"]
    sha = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True)
    assert subject == {"name": "a.whl", "digest": {"sha256": sha.stdout.split()[0]}}
    sources = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert sources[0]["digest"] == {"gitCommit": "c0ffee"}
    assert {each["name"] for each in sources[1:]} <= {path.name for path in LOCKS}


CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found and could not be audited: c (3)"}


@pytest.mark.parametrize(
    ("report", "status", "words"),
    [
        ({"dependencies": [CLEAN]}, 0, "1 looked up, 0 with"),
        ({"dependencies": [CLEAN, BAD]}, 1, "b 2: CVE-1 (fixed in 3)"),
        ({"dependencies": [CLEAN, UNKNOWN]}, 3, "NOT LOOKED UP in x.lock: 1 of 2 packages"),
        ({"dependencies": [BAD, UNKNOWN]}, 1, "NOT LOOKED UP"),
        ({"dependencies": [], "reason": "no connection"}, 3, "no connection"),
    ],
)
def test_what_was_not_looked_up_is_never_called_clean(
    report: dict[str, object], status: int, words: str
) -> None:
    code, lines = script("advisories").judge({"x.lock": report})
    assert code == status
    assert any(words in line for line in lines)


@pytest.mark.slow
def test_a_release_is_built_checked_and_signed(tmp_path: Path) -> None:
    """`make release` in a clone, with a key of its own; about five minutes."""
    clone, keys = tmp_path / "clone", tmp_path / "keys"
    keys.mkdir(mode=0o700)
    environment = {**os.environ, "GNUPGHOME": str(keys)}
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    name = "Release test <test@example.org>"
    key = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", name, "default", "sign"]
    subprocess.run(key, check=True, env=environment, capture_output=True)
    command = ["make", "release", "DRAFT=1", "SIGN=test@example.org"]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    sums = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(sums, cwd=clone / "dist", check=True)
    verify = ["gpg", "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS"]
    subprocess.run(verify, cwd=clone / "dist", check=True, env=environment)
