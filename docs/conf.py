"""Sphinx configuration of `make docs`. Neither the build nor a reader fetches anything."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

import balaclava as bl  # noqa: E402

project = "balaclava"
author = "the balaclava developers"
project_copyright = f"2026, {author}"
version = release = bl.__version__

extensions = [
    *("sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"),
    *("reference_pages", "policy_links", "mathml"),
]
root_doc = "index"
exclude_patterns = ["extensions", "gallery"]

myst_enable_extensions = ["colon_fence", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the tests run notebooks and compare their stored output
nb_ipywidgets_js = {}  # a reader would have to fetch it

default_role = "code"  # `name` in a docstring
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Privacy", "notes_style"), ("Proof", "notes_style")]

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures, many of them other packages'
suppress_warnings = ["ref.python"]  # a class is documented under its public and its inner name
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
smartquotes = False  # two hyphens begin an option

html_theme = "furo"
html_title = f"balaclava {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "github-dark"
