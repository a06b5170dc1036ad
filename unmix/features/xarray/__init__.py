"""Read scenes as datasets of xarray, and unmix these."""

import importlib
import sys
from typing import Any

from .. import Feature


def attach() -> None:
    """Register ``dataset.unmix`` in xarray, where that is imported; what it needs is imported when it is first used."""
    xarray: Any = sys.modules.get("xarray")
    if hasattr(xarray, "register_dataset_accessor") and not hasattr(xarray.Dataset, "unmix"):
        made = lambda dataset: importlib.import_module(".engine", __name__).Unmixing(dataset)  # noqa: E731
        xarray.register_dataset_accessor("unmix")(made)


FEATURE = Feature("xarray", public={"read": "engine"}, attach=attach)
