"""Records for the registry of deployments. Names and values of fields are those of its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from balaclava.reporting.assessment_input import assessment_template
from balaclava.reporting.deployments.registry_record import TIERS, as_yaml
from tests.cli.running import invoke

ALLOWED = {
    "status": {"Draft"},
    "data_product_type": {"Machine learning model"},
    "variant_name": {"Pure DP", "Approximate DP"},
    "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
}
OPTIONAL = {
    "basic": {"data_product_sector"},
    "privacy_loss": {"privacy_parameters_details"},
    "deployment_model": {"release_type_details", "model_name_details"},
    "administrative": {"registry_authors"},
}
FILLED = {
    'owner = ""': 'owner = "Clinic"',
    'purpose = ""': 'purpose = "Choose a reminder: \\"text\\" or call"',
    'population = ""': 'population = "patients of 2027"',
    'region = ""': 'region = "Iceland"',
    'why_epsilon = ""': 'why_epsilon = "decided by the board"',
    'tuned = ""': 'tuned = "no"',
    'operator = ""': 'operator = "the clinic"',
}


def written(folder: Path, text: str, **changes: str) -> Path:
    for old, new in {**FILLED, **changes}.items():
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "trial.toml"
    path.write_text(text, encoding="utf-8")
    return path


def record_of(path: Path) -> dict[str, Any]:
    done = invoke("assessment", "--registry", path)
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.stdout)


@pytest.mark.parametrize(
    ("policy", "model"),
    [
        ({"name": "dp-imed", "arms": 3, "epsilon": 1.0}, "Central"),
        ({"name": "dp-imed", "arms": 3, "epsilon": 1.0, "trust": "split"}, "Federated"),
        (
            {"name": "dp-imed", "arms": 3, "epsilon": 1.0, "delta": 1e-6, "noise": "gaussian"},
            "Central",
        ),
        (
            {"name": "dp-squarecb", "arms": 3, "features": 2, "epsilon": 1.0, "delta": 1e-6},
            "Central",
        ),
        ({"name": "ldp-ucb-bernoulli", "arms": 3, "epsilon": 2.0}, "Local"),
    ],
)
def test_a_complete_file_reaches_the_third_tier(
    policy: dict[str, Any], model: str, tmp_path: Path
) -> None:
    text = assessment_template(policy=policy, rewards_per_person=2)
    record = record_of(written(tmp_path, text))
    assert set(record) == {"url_slug", "status", "tier", "deployment"}
    assert record["tier"] == 3
    deployment = record["deployment"]
    known = {name: set(OPTIONAL.get(name, ())) for name in (*OPTIONAL, *deployment)}
    for fields in TIERS.values():
        for section, names in fields.items():
            known[section] = known.get(section, set()) | set(names)
            assert set(names) <= set(deployment[section])
    for section, values in deployment.items():
        assert set(values) <= known[section]
        for name, value in values.items():
            assert value in ALLOWED.get(name, {value: None} if isinstance(value, str) else [value])
    loss = deployment["privacy_loss"]["privacy_parameters"]
    trusted = deployment["deployment_model"]
    assert ("Neither server need be trusted alone" in str(trusted)) == ("trust" in policy)
    assert trusted["model_name"] == model
    own = "own decision" in deployment["dp_variant"]["unprotected_quantities"]
    assert own == (policy["name"] == "dp-squarecb")
    assert loss["epsilon"] >= 2.0  # two rewards of a participant
    assert ("delta" in loss) == ("delta" in policy)
    assert deployment["basic"]["intended_use"] == 'Choose a reminder: "text" or call'
    assert isinstance(deployment["basic"]["publication_date"], str)


def test_what_is_blank_lowers_the_tier_and_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, assessment_template())
    path.write_text(
        path.read_text().replace('why_epsilon = "decided by the board"', 'why_epsilon = ""')
    )
    done = invoke("assessment", "--registry", path)
    assert yaml.safe_load(done.stdout)["tier"] == 2
    assert "justification ([answers] why_epsilon)" in done.stderr


def test_a_record_without_its_basic_fields_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(assessment_template())
    done = invoke("assessment", "--registry", path)
    assert done.exit_code == 2
    for key in ("owner", "purpose", "population", "[registry] region"):
        assert key in done.output
    assert as_yaml({"a": {"b": ["x: y"], "c": 1.5}}) == 'a:\n  b:\n    - "x: y"\n  c: 1.5\n'


def test_a_policy_without_privacy_has_no_record(tmp_path: Path) -> None:
    path = written(tmp_path, assessment_template(policy={"name": "ucb1", "arms": 2}))
    done = invoke("assessment", "--registry", path)
    assert done.exit_code == 2
    assert "not private" in done.output
