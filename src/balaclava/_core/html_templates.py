"""Pages and texts from Jinja2 templates in the `templates` folder of a package."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from balaclava._core.extras import require_extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_BACKTICKS = re.compile("`([^`]+)`")


@functools.cache
def _environment(package: str, html: bool = True) -> Environment:
    """The templates of a package. In HTML values are escaped; a missing one is an error."""
    require_extra("jinja2", "an HTML page" if html else "the text of a figure")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"points": _points, "formatted": format, "code": _code}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def _points(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _code(text: str) -> Markup:
    """The escaped text, with what stands between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))


def render_text(package: str, template: str, **values: Any) -> str:
    """A plain text; `{{ lines | points }}` writes a list, `{{ number | formatted(".2f") }}`."""
    return _environment(package, html=False).get_template(template).render(values)


def render_template(package: str, template: str, **values: Any) -> str:
    return _environment(package).get_template(template).render(values)


def template_source(package: str, template: str) -> str:
    """The unrendered text of a template."""
    environment = _environment(package)
    assert environment.loader is not None
    return environment.loader.get_source(environment, template)[0]
