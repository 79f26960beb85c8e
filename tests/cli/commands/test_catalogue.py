"""`balaclava policies`, `environments` and `proofs`."""

from __future__ import annotations

import json

import pytest

import balaclava as bl
from tests.cli.running import invoke


def test_policies() -> None:
    answer = invoke("policies")
    assert answer.exit_code == 0
    header, *lines = answer.output.splitlines()
    assert header.split()[0] == "policy"
    assert len(lines) == len(bl.list_policies())  # one line each, not wrapped at 80 columns
    (line,) = [line for line in lines if line.startswith("ucb1 ")]
    assert "sqrt(2 log t / n)" in line
    assert line.endswith("Auer, Cesa-Bianchi, Fischer 2002")
    assert "\x1b" not in answer.output
    names = {line.split()[0] for line in invoke("policies", "--private").output.splitlines()[1:]}
    assert names == {entry.name for entry in bl.list_policies() if entry.guarantee != "none"}
    assert "ucb1 " in invoke("policies", "--not-private").output


def test_one_policy() -> None:
    answer = invoke("policies", "ucb1")
    assert "rewards in [0, 1]" in answer.output  # not eaten as markup
    assert "radius_scale  1.0       a number above 0" in answer.output
    assert "arms          required  a whole number at least 1  number of arms" in answer.output


def test_environments() -> None:
    answer = invoke("environments")
    assert len(answer.output.splitlines()) == 1 + len(bl.list_environments())
    assert "chance of a reward of 1" in invoke("environments", "bernoulli").output


@pytest.mark.parametrize("name", ["dp-imed", "prae-central", "dp-htinf-experts"])
def test_what_a_policy_inherits_is_shown(name: str) -> None:
    output = invoke("policies", name).output
    assert "A reward that never arrives does not count" in output
    assert "holdout" in output
    assert ("explore " in output) == (name != "dp-htinf-experts")


def test_policies_can_be_filtered() -> None:
    output = invoke("policies", "--rewards", "bounded", "--scope", "trajectory").output
    assert "dp-imed" in output
    assert "dp-ftpl-new" not in output
    assert "dpr-batch-ucb" not in output
    assert "is not one of" in invoke("policies", "--scope", "everything").output


def test_the_list_counts_every_private_policy() -> None:
    listed = json.loads(invoke("proofs", "--json").output)
    private = {entry.name for entry in bl.list_policies() if entry.guarantee != "none"}
    assert private <= {name for note in listed for name in note["policies"]}
    steps = sum(len(note["steps"]) for note in listed)
    assert f"{len(listed)} proofs" in invoke("proofs").output
    assert f"{steps} steps" in invoke("proofs").output


def test_a_policy_has_its_note_and_all_that_it_uses() -> None:
    printed = invoke("proofs", "dp-klucb").output
    assert printed.index("# Noisy sums of batches") < printed.index("# One release for each reward")
    assert "# Rounding to a grid" in printed
    names = [note["name"] for note in json.loads(invoke("proofs", "dp-klucb", "--json").output)]
    noise = ["laplace", "split_laplace", "secret_shares", "exact_noise"]
    assert names == ["batched", "pools", "memory", *noise]


def test_a_mechanism_and_a_note_have_their_names() -> None:
    assert "# Truncated Laplace noise" in invoke("proofs", "truncated Laplace").output
    assert "# Continual counters" in invoke("proofs", "counters").output


def test_without_privacy_there_is_no_proof() -> None:
    for name in ("ucb1", "no-such-policy"):
        done = invoke("proofs", name)
        assert done.exit_code == 2
        assert name in done.output


def test_bibtex_has_the_software_first_and_then_the_papers() -> None:
    alone = invoke("policies", "--bibtex").output
    assert alone.startswith("@misc{balaclava,")
    assert alone.count("@") == 1
    with_papers = invoke("policies", "dp-imed", "--bibtex").output
    assert with_papers.startswith(alone.strip())
    assert with_papers.count("@") > 1
