"""How Sphinx makes the site of these pages: ``make site``."""

from unmix import __version__

project, author, release = "unmix", "the unmix developers", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "unmix"
html_show_sourcelink = False
# Headings that pages link to: methods.md#is-the-model-any-good.
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
