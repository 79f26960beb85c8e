"""HTML pages from Jinja2 templates in the `templates` folder of a package."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from balaclava._core.extras import require_extra

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def _environment(package: str) -> Environment:
    """The templates of a package. Every value is escaped, and a missing one is an error."""
    require_extra("jinja2", "an HTML page")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def render_template(package: str, template: str, **values: Any) -> str:
    return _environment(package).get_template(template).render(values)


def template_source(package: str, template: str) -> str:
    """The unrendered text of a template."""
    environment = _environment(package)
    assert environment.loader is not None
    return environment.loader.get_source(environment, template)[0]
