"""Import modules when a function of theirs is first called: a run loads only the code that it asks for."""

import importlib
import operator
from collections.abc import Callable
from typing import Any


def later(package: str, name: str) -> Callable[..., Any]:
    """Return a function of a package, ``file:function``, whose file is imported when it is called."""
    file, _, function = name.partition(":")
    found = operator.attrgetter(function)
    return lambda *given, **named: found(importlib.import_module(f"{package}.{file}"))(*given, **named)
