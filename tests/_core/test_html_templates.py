"""Templates: every value is escaped, and a missing one is an error."""

from __future__ import annotations

import jinja2
import pytest

from balaclava._core import html_templates
from balaclava._core.html_templates import render_template, template_source


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the package, with templates of the test."""
    environment = html_templates._environment("balaclava.reporting").overlay(
        loader=jinja2.DictLoader(
            {"page.html": "<p>{{ text }}</p>\n", "data.html": "{{ d | tojson }}"}
        )
    )
    monkeypatch.setattr(html_templates, "_environment", lambda package: environment)


@pytest.mark.usefixtures("templates")
def test_values_are_escaped() -> None:
    page = render_template("any", "page.html", text="<b> & \"'")
    assert page == "<p>&lt;b&gt; &amp; &#34;&#39;</p>\n"
    assert "</script>" not in render_template("any", "data.html", d=["</script>"])


@pytest.mark.usefixtures("templates")
def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'text' is undefined"):
        render_template("any", "page.html")


def test_a_file_among_the_templates_is_read_unchanged() -> None:
    assert template_source("balaclava.reporting", "report.js").startswith("// Hovering")
