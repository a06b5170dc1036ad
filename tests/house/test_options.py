"""Every option is classified: whether maps depend on it, and how records, resumed runs and headers know of it."""

from dataclasses import fields, replace

import numpy as np
import pytest
from conftest import refused, write_csv, write_cube

import unmix
from unmix import methods, options
from unmix.errors import LibraryError, MethodError
from unmix.methods import Extraction, ModelChoice
from unmix.options import OF_EXTRACTION, Options
from unmix.runs.executor import Executor
from unmix.runs.scene_run import SceneRun
from unmix.scene import SINGLE_MASKS, ReadOptions
from unmix.settings import settings_of
from unmix.settings.models import ModelSettings
from unmix.settings.reading import ReadSettings
from unmix.settings.run import RunSettings

BANDS = 8
LIB = {"endmembers": "e.csv"}
SUMS = LIB | {"classes": "kinds.csv:kind", "by": "class"}
DRAWS = SUMS | {"average": "plain", "draws": 10, "draw_spectra": 2}
RANGES = SUMS | {"method": "nnls", "ranges": "each", "confidence": 0.9}
MESMA = SUMS | {"method": "mesma"}
VIPER = MESMA | {"limits": "viper"}
SPARSE = LIB | {"method": "nnls", "l1": 0.1}
# Options that change neither maps nor what is recorded: each as what a run has beside it, and another value.
OF_NO_MAP = {
    "out_dir": ({}, "elsewhere"),
    "work_dir": ({"out_dir": "s3://bucket/a"}, "w"),
    "overwrite": ({}, True),
    "skip_existing": ({}, True),
    "dry_run": ({}, True),
    "memory": ({}, "2G"),
    "gpu_memory": ({}, "2G"),
    "threads": ({}, 1),
    "streams": ({}, 2),
}
# Options that maps depend on, by their values, which map headers name.
OF_VALUES = {
    "by": (LIB | {"classes": "kinds.csv:kind"}, "class"),
    "shade_normalize": (SUMS, True),
    "l1": (SPARSE, 0.2),
    "rows": (LIB | {"method": "nnls"}, 2),
    "seconds": (LIB | {"method": "nnls", "rows": 2}, 9.0),
    "at_most": (LIB | {"method": "nnls"}, 2),
    "tv": (LIB | {"method": "nnls"}, 0.1),
    "laplacian": (LIB | {"method": "pcls"}, "auto"),
    "normalize": (LIB | {"method": "nnls"}, "length"),
    "class_map": (SUMS, True),
    "uncertainty": (LIB, True),
    "likelihood": (LIB | {"method": "nnls"}, "poisson"),
    "within": (RANGES | {"confidence": None, "within": 0.2}, 0.1),
    "ranges": (RANGES, "class"),
    "confidence": (RANGES, 0.8),
    "simultaneous": (RANGES | {"noise": "numbers.txt"}, True),
    "average": (LIB | {"classes": "kinds.csv:kind", "by": "class", "method": "pcls"}, "likelihood"),
    "draws": (DRAWS, 11),
    "draw_spectra": (DRAWS, 3),
    "seed": ({}, 1),
    "ortho": ({}, True),
    "quantize": ({}, 1e-3),
    "top": ({}, 2),
    "max_delta": ({}, 1e-5),
    "preset": ({}, "hymap"),
    "scale": ({}, 2.0),
    "offset": ({}, 0.5),
    "nodata": ({}, -1.0),
    "valid_max": ({}, 0.9),
    "bands": ({}, "1-7"),
    "ignore_nm": ({}, "395-405"),
    "only_nm": ({}, "415-465"),
    "tie": (LIB, "400-420"),
    "albedo": (LIB | {"scale": 2.0, "library_scale": 2.0}, "30,0"),
    "lines": ({}, "0:3"),
    "samples": ({}, "0:4"),
    "bbox": ({}, "0,-3,5,0"),
    "dataset": ({}, "reflectance"),
    "like": (MESMA, "viper"),
    "levels": (MESMA, "2-4"),
    "limits": (MESMA, "viper"),
    "fusion": (MESMA, 0.01),
    "fusion_rule": (MESMA, "preceding"),
    "min_fraction": (VIPER, -0.1),
    "max_fraction": (VIPER, 1.1),
    "min_shade": (VIPER, -0.1),
    "max_shade": (VIPER, 0.9),
    "max_rmse": (VIPER, 0.1),
    "max_residual": (VIPER, 0.1),
    "residual_bands": (VIPER | {"max_residual": 0.1}, 3),
    "class_sets": (MESMA, "a+b"),
}
# Options whose values say which outputs there are, in which form, or how endmembers are found: map headers leave them
# out.
OF_OUTPUTS = {
    "method": ({}, "nnls"),
    "solver": ({}, "inverse"),
    "count": ({}, 3),
    "extract": ({}, "spa"),
    "refine": ({}, False),
    "smooth": ({}, 2),
    "outside": ({"extract": "sisal"}, 0.2),
    "outliers": ({}, 5.0),
    "residual": ({}, True),
    "certificate": ({}, True),
    "browse": ({}, False),
    "rgb": (LIB, "em 1,em 2,em 3"),
    "format": ({}, "hdf5"),
    "tag": ({}, ("site=A",)),
}
# Options that name files, or what is taken of them: the contents are compared.
OF_CONTENTS = {
    "endmembers": (LIB, "other.csv"),
    "free": (LIB, "offset.csv"),
    "select": (LIB, "em 1,em 2"),
    "library_scale": (LIB, 2.0),
    "complete": ({"endmembers": "missing.csv"}, True),
    "across_gaps": ({"endmembers": "gap.csv"}, True),
    "classes": (SUMS, "others.csv:kind"),
    "shade": (LIB | {"method": "pcls"}, "shade.csv"),
    "weights": (LIB, "numbers.txt"),
    "noise": (LIB | {"uncertainty": True}, "numbers.txt"),
    "mask": ({}, "mask.hdr"),
    "mask_out": ({}, ("mask.hdr",)),
    "extract_mask": ({}, "mask.hdr"),
    "wavelengths": ({}, "nm.txt"),
    "names": ({}, "other.csv"),
    "background": (LIB | {"method": "nnls", "likelihood": "poisson"}, "numbers.txt"),
    "grains": (LIB | {"scale": 2.0, "library_scale": 2.0, "albedo": "30,0"}, "grains.csv"),
}
OF_A_LIBRARY = [name for name, one in settings_of(RunSettings).items() if one.is_of_library]
OF_MAPS = OF_VALUES | OF_OUTPUTS | OF_CONTENTS
ALL = OF_NO_MAP | OF_MAPS
# Without one of these a library is an error, so that there is nothing to compare.
NEEDED = ("complete", "across_gaps")
# Options of other files than the test's: a granule that a table places, a file of several arrays.
OF_OTHER_SCENES = ("ortho", "dataset")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a scene and all the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    nm = [400 + 10 * band for band in range(BANDS)]
    E = random.random((BANDS, 3)) + 0.1
    cube = random.dirichlet(np.ones(3), (6, 5)) @ E.T
    place = "{UTM, 1, 1, 0, 0, 1, 1, 33, North}"
    write_cube(
        tmp_path / "s.hdr",
        cube.astype(np.float32),
        wavelength=f"{{{','.join(map(str, nm))}}}",
        wavelength_units="Nanometers",
        map_info=place,
    )
    write_cube(tmp_path / "mask.hdr", (random.random((6, 5, 1)) < 0.9).astype(np.uint8))
    write_cube(tmp_path / "may.hdr", np.ones((6, 5, 3), np.uint8))
    write_csv(tmp_path / "e.csv", E, nm)
    write_csv(tmp_path / "other.csv", E + 0.01, nm)
    write_csv(tmp_path / "shade.csv", E[:, :1] * 0.01, nm)
    write_csv(tmp_path / "offset.csv", np.ones((BANDS, 1)), nm)
    fine = np.arange(390, 485)
    away = (fine < 415) | (fine > 445)
    write_csv(tmp_path / "gap.csv", random.random((away.sum(), 3)), fine[away].tolist())
    text = (tmp_path / "e.csv").read_text().splitlines()
    short = [*text, ",".join(["em 4", *["0.2"] * (BANDS - 1), "nan"])]
    (tmp_path / "missing.csv").write_text("\n".join(short) + "\n")
    for name, kinds in (("kinds", "aab"), ("others", "abb")):
        rows = "".join(f"em {j + 1},{kind}\n" for j, kind in enumerate(kinds))
        (tmp_path / f"{name}.csv").write_text("name,kind\n" + rows)
    (tmp_path / "numbers.txt").write_text("\n".join(str(0.01 * (band + 1)) for band in range(BANDS)))
    (tmp_path / "grains.csv").write_text("name,density,diameter\nem 1,2,10\nem 2,3,20\nem 3,4,10\n")
    (tmp_path / "three.txt").write_text("1\n2\n3\n")
    (tmp_path / "nm.txt").write_text("\n".join(str(number + 1) for number in nm))


def asked(words):
    """All that an unfinished or finished run must have in common with one with these options: its request, its inputs."""
    chosen = Options.of(**{"device": "cpu"} | words)
    if set(words) & set(OF_OTHER_SCENES):
        return chosen.request(None, "cpu"), None
    if str(chosen.out_dir).startswith("s3:"):  # the work is done elsewhere
        chosen = replace(chosen, out_dir=None, work_dir=None)
    completed = SceneRun("s.hdr", chosen, Executor(chosen), None, None, []).asked()
    return completed.request, completed.identity


def names(*classes):
    return {field.name for one in classes for field in fields(one) if field.init}


def test_every_option_is_classified():
    """A new field of these classes goes into one of the tables above, and with it through all tests below."""
    given_apart = {"mesma", "reading", "device", "left_open"}
    assert set(ALL) == names(Options, ReadOptions, ModelChoice) - given_apart
    assert len(ALL) == sum(map(len, (OF_NO_MAP, OF_VALUES, OF_OUTPUTS, OF_CONTENTS)))
    assert names(Options) & names(ReadOptions, ModelChoice) == set() == names(ReadOptions) & names(ModelChoice)


def default_of(name):
    return next(getattr(one, name) for one in (Options, ReadOptions, ModelChoice) if hasattr(one, name))


def test_every_option_is_declared_with_its_effect():
    """`device` is no part of what a run can be repeated with, but CPU and GPU agree to rounding only: it is part of the request."""
    declared = settings_of(RunSettings, ReadSettings, ModelSettings)
    tables = {"nothing": OF_NO_MAP, "values": OF_VALUES, "outputs": OF_OUTPUTS, "contents": OF_CONTENTS}
    effects = {name: effect for effect, table in tables.items() for name in table}
    assert {name: one.affects for name, one in declared.items()} == effects | {"device": "nothing"}
    assert all(
        one.help and (one.metavar or one.choices or isinstance(default_of(name), bool))
        for name, one in declared.items()
    )
    assert Options().request(None, "cpu") != Options().request(None, "cuda:0") == Options().request(None, "cuda:1")
    assert set(OF_EXTRACTION) == names(Extraction) - {"count", "extract", "seed"}
    assert {*SINGLE_MASKS, "mask_out"} == {name for name in names(ReadOptions) if "mask" in name}
    defaults = {f.name: f.default for f in fields(ModelChoice)}
    assert {name for name in defaults if name not in ModelChoice().to_dict()} == set(methods.WHEN_SET) <= set(defaults)


@pytest.mark.parametrize("name", [name for name in OF_MAPS if name not in NEEDED])
def test_a_run_with_another_value_is_another_run(here, name):
    words, other = OF_MAPS[name]
    before = asked({name: getattr(Options, name, None)} | words if name in OF_OTHER_SCENES else words)
    assert asked(words) == asked(words) and asked(words | {name: other}) != before


@pytest.mark.parametrize("name", OF_NO_MAP)
def test_a_run_elsewhere_is_the_same_run(here, name):
    words, other = OF_NO_MAP[name]
    assert asked(words | {name: other}) == asked(words)


@pytest.mark.parametrize("name", NEEDED)
def test_without_these_there_is_no_run(here, name):
    words, other = OF_CONTENTS[name]
    asked(words | {name: other})
    refused(LibraryError, None, asked, words)


@pytest.mark.parametrize("name", OF_MAPS)
def test_the_record_repeats_each_option(here, name):
    """A run with the options of a record is the same run; those left out of the record differ in nothing."""
    words, other = OF_MAPS[name]
    recorded = Options.of(**words | {name: other}).repeatable()
    assert name in recorded
    assert asked(recorded) == asked(words | {name: other})


def test_what_a_request_has_at_times_alone_is_listed(here):
    """A finished run whose record lacks a key was made without it; one that is not in `WHEN_SET` would not be compared."""
    always = set(asked({})[0])
    for name, (words, other) in OF_MAPS.items():
        request = set(asked(words | {name: other})[0])
        assert request - always <= set(options.WHEN_SET), name
        assert always - request <= set(options.WHEN_SET), name


@pytest.mark.parametrize("name", OF_MAPS)
def test_what_needs_a_library_or_an_extraction_says_so(name):
    """An option that nothing would use is an error, not a run that ignores it."""
    words, other = OF_MAPS[name]
    if name in OF_A_LIBRARY:
        refused(MethodError, "a library; give one", Options.of, **{name: other})
    if name in OF_EXTRACTION:
        refused(MethodError, "does not go with `endmembers`", Options.of, **LIB | words | {name: other})
    assert set(OF_A_LIBRARY) | set(OF_EXTRACTION) <= set(OF_MAPS)


@pytest.mark.parametrize(
    ("call", "words", "text"),
    [
        (unmix.run, {"out": "o"}, "'out' is no option; there is `out_dir`"),
        (unmix.run, {"outdir": "o"}, "there is `out_dir`"),
        (unmix.run, {"endmember": "e.csv"}, "there is `endmembers`"),
        (unmix.check, {"scal": 2}, "there is `scale`"),
        (unmix.mnf, {"out": "o"}, "there is `out_dir`"),
        (unmix.extract, {"cnt": 3}, "there is `count`"),
        (unmix.ppi, {"zzzz": 1}, "'zzzz' is no option here"),
        (unmix.ReadOptions, {"no_data": 1}, "there is `nodata`"),
        (unmix.run, {"levels": "2-4"}, "'levels' is an option of `method` mesma"),
        (unmix.run, {"method": "mesma", "level": "2"}, "there is `levels`"),
    ],
)
def test_what_is_no_option_is_named(here, call, words, text):
    """Messages named a class of this package."""
    told = refused(TypeError, text, call, *["s.hdr"][: call is not unmix.ReadOptions], **words)
    assert isinstance(told.value, MethodError) and "__init__" not in str(told.value)


def test_what_is_left_open_stays_open():
    """Options for a scene, an upload or a worker are made of others; the scene decides once."""
    given = replace(replace(Options(), out_dir="elsewhere").for_scene("s.hdr"), work_dir=None)
    assert given.is_open and given.decided(True).method == "fcls" and not given.decided(False).is_open
    assert not replace(Options(method="nnls"), out_dir="elsewhere").is_open


def test_every_derived_map_is_declared():
    from unmix.maps.derived.table import DERIVED
    from unmix.settings.maps import MAPS

    assert set(DERIVED) == {name for name, what in MAPS.items() if what.is_derived}
    wanted = Options.of(**DRAWS | {"class_map": True, "uncertainty": True, "weights": "numbers.txt"}).derived
    assert set(wanted) <= set(DERIVED)
