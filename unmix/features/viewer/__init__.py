"""Look at scenes and finished runs in a browser on this machine; values are read as they are asked for."""

from .. import Feature

FEATURE = Feature(
    "viewer",
    commands={"view": "Look at scenes and finished runs in a browser."},
    public={"view": "serve"},
)
