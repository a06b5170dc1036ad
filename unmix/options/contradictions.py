"""Refuse options that contradict each other, by each setting's declaration and by the rules of several at once."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MethodError
from ..features.runs import asked
from ..io.remote import is_remote
from ..methods import LARGEST_THRESHOLD, refuse_normalization
from ..scene import ReadOptions, geometry_of
from ..settings import settings_of
from ..settings.run import RunSettings

if TYPE_CHECKING:
    from . import Options

DECLARED = settings_of(RunSettings, ReadOptions)
# Options under which the abundances of all pixels are found, and proved, together.
WHOLE_SCENE = ("tv", "laplacian")
# Options that the table of methods has looked at.
CHOSEN = ("method", "solver")


def refuse_contradictions(options: "Options") -> None:
    """Raise `MethodError` where a number is out of range, or two options contradict each other."""
    if options.endmembers is None:
        refuse_without_library(vars(options))
    for faults_of in (faults_of_settings, *FAULTS, *(one.faults for one in asked(options).values())):
        for fault in faults_of(options):
            raise MethodError(fault)


def refuse_without_library(given: Mapping[str, Any]) -> None:
    """Raise if one of these options, by name, needs a library."""
    for name, one in settings_of(RunSettings).items():
        if one.is_of_library and given.get(name) not in (None, False):
            raise MethodError(f"`{name}` {one.is_of_library} a library; give one with `endmembers`")


def is_given(options: "Options", word: str) -> bool:
    """Return whether an option is not at its default, or has the value of ``name value``; False if there is none."""
    name, _, value = word.partition(" ")
    if hasattr(ReadOptions, name):
        return bool(value_given(options, name) != getattr(ReadOptions, name))
    if name in options.left_open or not hasattr(options, name):
        return False
    return value_given(options, name) == value if value else not options.is_default(name)


def value_given(options: "Options", name: str) -> Any:
    """Return the value of an option of the run or of how its scene is read."""
    return getattr(options.reading if hasattr(ReadOptions, name) else options, name)


def shown_value(options: "Options", word: str) -> str:
    """Return an option for a message, with the word that it is set to, or is to be set to."""
    name, _, value = word.partition(" ")
    if name not in DECLARED:
        return name  # mesma
    value = value or str(value_given(options, name))
    return f"`{name}` {value}" if value in DECLARED[name].choices else f"`{name}`"


def faults_of_settings(options: "Options") -> Iterator[str]:
    """Yield a message for each option with a wrong value, without one it needs, or with one that it excludes."""
    method, solver = str(options.method), options.solver_spec.name
    for name, one in DECLARED.items():
        if name in CHOSEN or not is_given(options, name):
            continue
        yield from one.faults(name, value_given(options, name), method, solver)
        if one.needs and not any(is_given(options, word) for word in one.needs):
            words = [shown_value(options, word) for word in one.needs]
            yield f"`{name}` is for {' or '.join(words)}; add {'one of these' if len(words) > 1 else 'that'}"
        for word, why in one.excludes.items():
            if is_given(options, word):
                yield (
                    f"`{name}` does not go with {shown_value(options, word)}{why and ', ' + why}; leave one of them out"
                )


def faults_of_places(options: "Options") -> Iterator[str]:
    """Yield a message if an option of outputs is for other outputs."""
    if options.work_dir is not None and (options.out_dir is None or not is_remote(options.out_dir)):
        yield "`work_dir` is for an `out_dir` in an object store: s3://bucket/prefix"
    if options.rgb is not None and not options.browse:
        yield "`rgb` chooses the colours of the browse image, which is not to be written"


def faults_of_method(options: "Options") -> Iterator[str]:
    """Yield a message if `normalize` or `likelihood` does not go with the method."""
    refuse_normalization(options.method_spec, str(options.normalize))
    if options.likelihood == "poisson" and "method" in options.left_open:
        yield "`likelihood` poisson is for `method` nnls; add that"


def uses_of_noise(options: "Options", *kinds: str) -> list[str]:
    """Return the names of the options that use noise, of these kinds (`Setting.noise`) or all."""
    given = [
        (name, one) for name, one in settings_of(RunSettings).items() if one.noise and not options.is_default(name)
    ]
    return [name for name, one in given if one.uses_noise(getattr(options, name)) and (not kinds or one.noise in kinds)]


def faults_of_noise(options: "Options") -> Iterator[str]:
    """Yield a message if `noise` is given and nothing uses it, or an option that needs noise comes without it."""
    if options.noise != "auto" and not uses_of_noise(options):
        names = ", ".join(f"`{name}`" for name, one in DECLARED.items() if one.noise not in ("", "none"))
        yield (
            "`noise` is for standard deviations, ranges, weights and weights of penalties that are chosen; add one of "
            f"{names}"
        )
    if options.weights == "noise" and options.noise in ("auto", "none"):
        yield "`weights` noise needs the noise of the bands; name a file with `noise`"
    if options.noise == "none" and (uses_of_noise(options, "of pixels") or not uses_of_noise(options, "none")):
        names = ", ".join(f"`{name}`" for name, one in DECLARED.items() if one.noise == "none")
        yield f"`noise` none: nothing would vary; it is for {names or 'no option that there is'}"


def faults_of_within(options: "Options") -> Iterator[str]:
    """Yield a message if `within` is given and nothing uses it, or is no RMSE."""
    if math.isnan(options.rmse_within):
        yield (
            f"`within` {options.within!r}: must be an RMSE that is not negative, nor {LARGEST_THRESHOLD:g} or more, or "
            "all"
        )


def faults_of_changes(options: "Options") -> Iterator[str]:
    """Yield a message if `albedo` has no such angles, or `tie` comes with noise of the bands as they are."""
    reading = options.reading
    if reading.albedo is not None:
        geometry_of(reading.albedo)
    has_noise = uses_of_noise(options, "of pixels") and not options.mesma
    if reading.tie is not None and (has_noise or options.noise not in ("auto", "none")):
        yield (
            "`tie`: the bands of a window share the noise of its first one; `uncertainty`, `confidence` and `noise` "
            "are for bands as "
            "they are"
        )


# In this order.
FAULTS = (faults_of_places, faults_of_method, faults_of_noise, faults_of_within, faults_of_changes)
