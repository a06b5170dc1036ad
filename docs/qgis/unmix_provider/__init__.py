"""unmix in QGIS: a provider of the Processing toolbox that runs the command line program.

Copy this folder to the plugins of a QGIS profile (or name the one above it in QGIS_PLUGINPATH), and enable it.
"""


def classFactory(interface):  # QGIS asks for it by this name
    """Return the plugin."""
    from .provider import Plugin

    return Plugin()
