"""Read scenes as datasets of xarray, and unmix these."""

import importlib.util
import sys
import threading
from typing import Any

from .. import Feature

SEARCH = threading.local()


class WhenImported:
    """Finds xarray for whoever imports it after unmix, to `attach` then."""

    # It stays in `sys.meta_path`: another thread may be going through that.
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return how xarray is loaded; None for every other module."""
        if name != "xarray" or getattr(SEARCH, "is_under_way", False):
            return None
        SEARCH.is_under_way = True
        try:
            spec: Any = importlib.util.find_spec(name)
        finally:
            SEARCH.is_under_way = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_attach(module: Any) -> None:
                load(module)
                attach()

            spec.loader.exec_module = load_and_attach
        return spec


def attach() -> None:
    """Register ``dataset.unmix`` in xarray, now or when it is imported; what it needs is imported when it is used."""
    xarray: Any = sys.modules.get("xarray")
    if xarray is None and WhenImported not in sys.meta_path:
        sys.meta_path.insert(0, WhenImported)
    if hasattr(xarray, "register_dataset_accessor") and not hasattr(xarray.Dataset, "unmix"):
        made = lambda dataset: importlib.import_module(".engine", __name__).Unmixing(dataset)  # noqa: E731
        xarray.register_dataset_accessor("unmix")(made)


FEATURE = Feature("xarray", public={"read": "engine"}, attach=attach)
