"""Read scenes as datasets of xarray, and unmix these."""

import importlib.util
import sys
from typing import Any

from .. import Feature


class WhenImported:
    """Finds xarray for whoever imports it after unmix, once, to `attach` then."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return how xarray is loaded; None for every other module."""
        if name != "xarray":
            return None
        sys.meta_path.remove(WhenImported)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None:
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
