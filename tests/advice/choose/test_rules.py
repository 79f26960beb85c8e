"""The table of recommendations."""

from __future__ import annotations

from typing import get_args

import balaclava as bl
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, Rewards, find_rule


def test_the_table_names_registered_policies() -> None:
    known = {entry.name: entry.policy for entry in bl.list_policies()}
    for rule in RECOMMENDATION_RULES:
        assert known[rule.policy].model == rule.trust, rule
        assert known[rule.baseline].model == "none", rule
        scopes = ("report",) if rule.trust == "local" else (rule.scope,)
        assert known[rule.policy].scope in scopes, rule


def test_the_table_answers_each_question_once() -> None:
    questions = [(rule.rewards, rule.trust, rule.scope) for rule in RECOMMENDATION_RULES]
    assert len(set(questions)) == len(questions)
    for rewards in get_args(Rewards):
        assert find_rule(rewards, "central", "trajectory").rewards == rewards
