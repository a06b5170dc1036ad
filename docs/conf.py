"""How Sphinx makes the site of these pages: ``make site``."""

from unmix import __version__

project, author, release = "unmix", "the unmix developers", __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# The notebook is run each time; an error in it is an error of the site.
nb_execution_mode, nb_execution_raise_on_error, nb_execution_timeout = "force", True, 120
html_theme = "furo"
html_title = "unmix"
html_show_sourcelink = False
# Headings that pages link to: methods.md#is-the-model-any-good.
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
