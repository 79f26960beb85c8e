"""The page for a review board: what is promised, how it was checked, what the owner must answer."""

from __future__ import annotations

import numpy as np

import balaclava
from balaclava._core.number_format import rounded_up, significant
from balaclava.privacy.guarantee import Guarantee
from balaclava.reporting.assessment_input import AT_RANDOM, AssessmentInput
from balaclava.reporting.nist_levels import NistLevel, nist_levels
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.reporting.report_data import CURVE_QUANTILES
from balaclava.reporting.report_page import NOT_PRIVATE_TO_LOOK, asset
from balaclava.reporting.svg_charts import ChartCurve, LineLook, curves_chart, escape, legend
from balaclava.simulation.analysis.winners import recorded
from balaclava.simulation.results import Results

_REFUTED = ("violated", "unproved", "not examined")
_MATTERS = 0.9  # of the regret of playing at random: more is no margin that matters
GLOSSARY = {
    "arm": "one of the options of which each decision takes one: a text, a price, a treatment.",
    "reward": "the number that says how well a decision went. It is what is protected.",
    "epsilon": "how much an observer can learn: the odds of any guess about a reward change by a "
    "factor of at most e to the power of epsilon. Smaller is stricter; 1 is usual.",
    "delta": "the probability with which the limit of epsilon may fail.",
    "trajectory": "all decisions of a run, seen together.",
    "regret": "what was lost against always taking the best arm, in units of reward.",
    "policy": "the rule by which the next arm is chosen from what came before.",
    "audit": "an attempt to refute a promise, by replaying what the software does, by computing "
    "probabilities exactly, and by playing games against it. It can refute, not prove.",
    "95 %": "an interval or a limit that holds in 95 of 100 such trials.",
}


def assessment_page(
    dossier: AssessmentInput, *, results: Results | None = None, audit: AuditSummary | None = None
) -> str:
    """The page, as one HTML text that loads nothing.

    Args:
        dossier: what the owner says, and the policy.
        results: of `dossier.play()`; left out, the page says that nothing was simulated.
        audit: of the policy; left out, the page says that it was not audited.

    Example:
        >>> import balaclava as bl
        >>> from balaclava.reporting.assessment_input import Dossier
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> policy = bl.policy("dp-imed", arms=3, epsilon=1.0)
        >>> page = assessment_page(Dossier(policy, world, horizon=1_000, title="A trial"))
        >>> page.count('class="level"')
        8
    """
    title = dossier.title or "Assessment of a private bandit"
    parts = [
        _head(dossier, results, audit),
        _pyramid(_levels(dossier, audit), dossier.answers),
        _regret(dossier, results),
        _glossary(),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} - assessment</title>\n"
        f"<style>\n{asset('page.css')}{asset('assessment.css')}</style>\n</head>\n<body>\n"
        f'<header><p class="kind">Privacy assessment</p><h1>{escape(title)}</h1></header>\n'
        f"<main>{''.join(parts)}</main>\n"
        f"<footer><p>Written by balaclava {escape(balaclava.__version__)}. The levels are those of "
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees. This page is "
        "complete in itself: it loads nothing.</p></footer>\n</body>\n</html>\n"
    )


def conclusion(
    dossier: AssessmentInput, results: Results | None, audit: AuditSummary | None
) -> tuple[str, bool]:
    """One line, and whether it is good news."""
    promise, name = dossier.person or dossier.promise, dossier.policy.name
    if not promise.private:
        return f"{name} promises nothing to a person here: do not run it on personal data.", False
    if audit is not None and audit.verdict in _REFUTED:
        return f"The audit of {name} did not pass ({audit.verdict}): do not run it.", False
    checked = "not audited" if audit is None else "an audit found nothing against it"
    whom = "reward" if dossier.person is None else "person"
    words = f"{name} gives each {whom} {promise}; {checked}"
    if results is None:
        return f"{words}; its regret was not simulated.", audit is not None
    share = _share(results, name)
    if share > _MATTERS:
        return (
            f"{words}; it hardly learns here: {share:.0%} of the regret at random.",
            False,
        )
    return f"{words}; it loses {share:.0%} of what playing at random loses.", audit is not None


def _levels(dossier: AssessmentInput, audit: AuditSummary | None) -> list[NistLevel]:
    return nist_levels(dossier.policy, dossier.rewards_per_person, audit, dossier.promise)


def _share(results: Results, label: str) -> float:
    unit = float(results.final_regret(AT_RANDOM).mean())
    return float(results.final_regret(label).mean()) / unit if unit > 0 else float("inf")


def _head(dossier: AssessmentInput, results: Results | None, audit: AuditSummary | None) -> str:
    words, good = conclusion(dossier, results, audit)
    promise, person, count = dossier.promise, dossier.person, dossier.rewards_per_person
    facts = {
        "Owner": dossier.owner,
        "Purpose": dossier.purpose,
        "Population": dossier.population,
        "Date": dossier.date,
        "Rewards a person gives": "not counted" if count is None else f"at most {count}",
        "Guarantee of one reward": str(promise),
        "Guarantee of one person": str(person) if person else "none: rewards are not counted",
    }
    rows = "".join(f"<dt>{name}</dt><dd>{_filled(text)}</dd>" for name, text in facts.items())
    made = f'<dt>Made from</dt><dd class="mono">sha256 {escape(dossier.digest)}</dd>'
    return (
        f'<p class="verdict{"" if good else " bad"}">{escape(words)}</p>'
        f'<dl class="facts">{rows}{made if dossier.digest else ""}</dl>'
        f"<section><h2>The promise in words</h2>{_in_words(person or promise)}</section>"
    )


def _in_words(promise: Guarantee) -> str:
    """With the footnote that a sentence in it needs."""
    sentence = "leaks at most twice this"
    text = escape(promise.explain())
    if sentence not in text:
        return f"<p>{text}</p>"
    return (
        f"<p>{text.replace(sentence, sentence + '<sup>*</sup>')}</p>"
        '<p class="footnote"><sup>*</sup> This is no second loss. All decisions together leak '
        f"ε={rounded_up(promise.epsilon)}. Who already knows the earlier ones compares the chance "
        "of all decisions with the chance of the earlier ones; each of the two can differ by a "
        "factor of e^ε, and so their ratio by e^(2ε).</p>"
    )


def _filled(text: str) -> str:
    return escape(text) if text else '<span class="blank"></span>'


def _pyramid(parts: list[NistLevel], answers: dict[str, str]) -> str:
    cards = []
    for i, level in enumerate(parts, start=1):
        questions = "".join(
            f'<p class="owner"><span class="role">For the owner to answer</span>{escape(question)}'
            f" {_answer(answers.get(key, ''))}</p>"
            for key, question in level.questions.items()
        )
        cards.append(
            f'<section class="level"><h3>{i}. {escape(level.title)}</h3>'
            f'<p><span class="role">What is promised</span>{escape(level.promise)}</p>'
            f'<p><span class="role">How it was checked</span>{escape(level.check)}</p>'
            f"{questions}</section>"
        )
    return (
        "<section><h2>Level by level</h2><p>Each level rests on those below it: an epsilon is "
        "worth "
        f"no more than the way in which data are collected and kept.</p>{''.join(cards)}</section>"
    )


def _answer(text: str) -> str:
    return f"<strong>{escape(text)}</strong>" if text else _filled("")


def _regret(dossier: AssessmentInput, results: Results | None) -> str:
    if results is None:
        return "<section><h2>Regret and risk</h2><p>Not simulated for this page.</p></section>"
    world = results.environment
    rows = "".join(_risk_row(results, label) for label in results.labels)
    count = len(results.final_regret(dossier.policy.name))
    settings = ", ".join(f"{k} = {v}" for k, v in world.public_parameters.items() if v is not None)
    look = f'<p class="notice strong">{escape(NOT_PRIVATE_TO_LOOK)}</p>'
    return (
        f"<section><h2>Regret and risk</h2>{look if world.holds_data else ''}"
        f"<p>Simulated {count} times over {results.horizon:,} decisions on a problem that the "
        f"owner considers plausible: {escape(world.name)}, {escape(settings)}. If the truth is "
        "different, so are these numbers; what is promised on privacy is not.</p>"
        '<div class="wide keep"><table><thead><tr><th scope="col">policy</th>'
        '<th scope="col" class="number">median</th><th scope="col" class="number">95 % of runs at '
        f'most</th><th scope="col" class="number">worst of {count}</th><th scope="col" '
        'class="number">of random</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{_winner(dossier, results)}{_chart(results)}</section>"
    )


def _risk_row(results: Results, label: str) -> str:
    regret = results.final_regret(label)
    cells = (
        *map(significant, (np.median(regret), np.quantile(regret, 0.95), regret.max())),
        f"{_share(results, label):.0%}",
    )
    return (
        f'<tr><th scope="row">{escape(label)}</th>'
        + "".join(f'<td class="number">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def _winner(dossier: AssessmentInput, results: Results) -> str:
    """How often the right arm is named, where the policy releases what that takes."""
    if not recorded(results):
        return ""
    winners = results.winners()
    row = next(row for row in winners if row.label == dossier.policy.name)
    if row.right != row.right:
        return "<p>The policy releases no averages, so that it names no winner.</p>"
    return (
        f"<p>The winner: at {winners.confidence:.0%} confidence the right arm was named by the "
        "end in "
        f"{row.right:.0%} of the runs, a wrong one in {row.wrong:.0%}, none in {row.none:.0%}.</p>"
    )


def _chart(results: Results) -> str:
    places = np.unique(np.linspace(0, results.checkpoints.size - 1, 100).round().astype(int))
    curves = []
    for i, label in enumerate(results.labels):
        regret = results.regret(label)[:, places]
        low, high = np.quantile(regret, CURVE_QUANTILES, axis=0)
        rounds = results.checkpoints[places]
        scope = results.guarantee(label)
        curves.append(ChartCurve(label, scope, LineLook(i), rounds, regret.mean(axis=0), low, high))
    chart = curves_chart(curves, [], title="Mean regret over the decisions", key="regret")
    return (
        f'<figure class="chart"><div class="views">{chart}</div>{legend(curves)}'
        f"<figcaption>Mean regret over the decisions; bands: "
        f"{CURVE_QUANTILES[0]:.0%} to {CURVE_QUANTILES[1]:.0%} of the runs.</figcaption></figure>"
    )


def _glossary() -> str:
    rows = "".join(
        f"<div><dt>{escape(word)}</dt><dd>{escape(text)}</dd></div>"
        for word, text in GLOSSARY.items()
    )
    return f'<section><h2>Glossary</h2><dl class="glossary">{rows}</dl></section>'
