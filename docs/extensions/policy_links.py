"""Link each policy name in a text to the page of that policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle

from docutils import nodes
from sphinx.application import Sphinx

from reference_pages import selection

APART = (nodes.reference, nodes.title, nodes.literal_block, nodes.rubric, nodes.math)


def link_names(app: Sphinx, doctree: nodes.document, here: str) -> None:
    names = selection(app)
    hyphened = "|".join(re.escape(name) for name in names if "-" in name)
    known = re.compile(rf"(?<![\w-])({hyphened})(?![\w-])")
    for text in list(doctree.findall(nodes.Text)):
        if any(isinstance(node, APART) for node in ancestors(text)):
            continue
        if isinstance(text.parent, nodes.literal):
            if text.astext() in names and not here.endswith(f"/{text.astext()}"):
                literal = text.parent
                literal.parent.replace(literal, link(app, here, text.astext(), literal.deepcopy()))
        elif known.search(text.astext()):
            parts = [
                link(app, here, words, nodes.Text(words)) if odd else nodes.Text(words)
                for odd, words in zip(cycle((0, 1)), known.split(text.astext()), strict=False)
                if words
            ]  # a split by a group has the matches at odd places
            text.parent.replace(text, parts)


def ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def link(app: Sphinx, here: str, name: str, content: nodes.Node) -> nodes.Node:
    home = f"reference/policies/{name}"
    if here == home:
        return content
    target = app.builder.get_relative_uri(here, home)
    return nodes.reference("", "", content, internal=True, refuri=target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
