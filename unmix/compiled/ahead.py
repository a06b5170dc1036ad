"""Load kept machine code before it is called, beside other work.

To load a function takes 2 to 25 ms, most of it without Python's lock. Where many threads call one for the first time, all wait for it.
"""

import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger("unmix")


def load_ahead(functions: Iterable[Any]) -> None:
    """Load what is kept of compiled functions for this processor; nothing is compiled, and what cannot be loaded will be later."""
    for function in functions:
        cache = getattr(function, "_cache", None)  # there is none where nothing is compiled
        for path, held, data in () if cache is None else cache._cache_file.kept():
            try:
                kinds = tuple(data[3].args)  # as Numba's `CompileResult` hands itself over
                key = cache._index_key(kinds, function.targetctx.codegen())
                if cache._cache_file.path_of(key) == (path, held):
                    function.compile(kinds)
            except Exception as error:  # of a file that another program left there
                log.debug(f"not loaded ahead: {function.__name__}: {type(error).__name__}: {error}")
