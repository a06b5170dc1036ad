"""Options of a run that do not go together, or are out of range: one line says so, and nothing is written."""

import numpy as np
import pytest
from conftest import KINDS, LINES, SAMPLES, L, P, refused, write_csv, write_cube

import unmix
from unmix.errors import InputError, MethodError, UnmixError

ONE_NOT_NEGATIVE = "not negative, nor 1e\\+100 or more, or all"
EACH_OF = "from 3, one of each class, to 5"
NNLS, MESMA, TIED = {"method": "nnls"}, {"method": "mesma"}, {"tie": "600-700"}
BY_CLASS, DRAWS = NNLS | {"by": "class"}, {"average": "plain", "draws": 5}
EXTRACTED = {"endmembers": None, "count": 3}
# What the rows share; and in each row what is asked for besides, what is said of it, and the error, if it is not
# `MethodError`.
REFUSED = {
    "noise": (
        {"uncertainty": True},
        [
            ({"noise": "short.txt"}, "2 lines of noise, but the cube has 24 bands", InputError),
            ({"noise": "words.txt"}, "'x' is no number", InputError),
            ({"noise": "zeros.txt"}, "must be above 0", InputError),
            ({"noise": "absent.txt"}, "cannot read the noise", InputError),
            ({"noise": "ones.txt", "uncertainty": False}, "add one of .*`uncertainty`"),
            ({"noise": "ones.txt", "method": "mesma"}, "does not go with mesma"),
        ],
    ),
    "weights": (
        NNLS,
        [
            ({"weights": "noise"}, "name a file with `noise`"),
            ({"weights": "absent.txt"}, "cannot read the weights", InputError),
            ({"weights": "short.txt"}, "2 lines of weights, but the cube has 24 bands", InputError),
            ({"weights": "zero.txt"}, "weights of every band must be above 0", InputError),
            ({"weights": "zero.txt", "method": "mesma"}, "does not go with mesma"),
            ({"weights": "least.txt"}, "least.txt: the weights of every band must be above 0, from 1e-100", InputError),
            (
                {"weights": "noise", "noise": "least.txt"},
                "least.txt: the noise of every band must be above 0, from 1e-100",
                InputError,
            ),
            ({"weights": "tiny.txt"}, "tiny.txt: the weights of two bands differ more than", InputError),
            (
                {"weights": "noise", "noise": "tiny.txt"},
                "tiny.txt: the weights of two bands differ more than",
                InputError,
            ),
        ],
    ),
    "fractions": (
        NNLS,
        [
            ({"method": "fcls", "normalize": "sum"}, "sum to one as they are"),
            ({"method": "scls", "normalize": "sum"}, "sum to one as they are"),
            ({"method": "ucls", "normalize": "length"}, "may be negative"),
            ({"method": "mesma", "normalize": "sum"}, "`normalize` is for"),
            ({"normalize": "most"}, "must be none, or sum, or length, or max"),
            ({"normalize": "sum", "by": "class", "shade_normalize": True}, "leave one"),
            ({"normalize": "sum", "tv": 1.0}, "does not go with `tv`"),
        ],
    ),
    "classes": (
        {},
        [
            ({"by": "name"}, "must be class"),
            ({"shade_normalize": True}, "is for `by` class"),
            ({"shade": "x.csv"}, "is for `method` pcls, mesma"),
            ({"library_scale": 0.0}, "must be above 1e-30"),
        ],
    ),
    "l1": (
        NNLS,
        [
            ({"method": "fcls", "l1": 0.1}, "`l1` is for `method` nnls, not fcls"),
            ({"method": "ucls", "l1": 0.1}, "`l1` is for `method` nnls, not ucls"),
            ({"solver": "inverse", "l1": 0.1}, "`l1` is for `solver` active-set, not inverse"),
            ({"l1": -0.1}, "`l1` -0.1: must be at least 0"),
            ({"l1": float("nan")}, "`l1` nan: must be at least 0"),
            ({"l1": 0.1, "uncertainty": True}, "does not go with `l1`"),
        ],
    ),
    "neighbours": (
        NNLS | {"tv": 0.1},
        [
            ({"method": "ucls"}, "`tv` is for `method` nnls, fcls, pcls"),
            ({"solver": "inverse"}, "for `solver` active-set, not inverse"),
            ({"tv": 0.0}, "`tv` 0: must be above 0"),
            ({"tv": "best"}, "`tv` 'best': must be above 0 .*, or auto"),
            ({"laplacian": 1.0}, "`laplacian` does not go with `tv`"),
            ({"edges": "guided"}, "`edges` is no more: unmix.spatial takes weights of differences"),
            ({"certificate": True}, "all are proved together"),
            ({"likelihood": "poisson"}, "does not go with `likelihood`"),
            ({"l1": "auto"}, "is no more: `rows` auto"),
            ({"uncertainty": True}, "`uncertainty` does not go with `tv`"),
            ({"quantize": 0.01}, "`quantize` does not go with `tv`"),
            ({"normalize": "sum"}, "`normalize` does not go with `tv`"),
            ({"top": 2}, "`tv` does not go with `top`"),
            ({"at_most": 2}, "`at_most` does not go with `tv`"),
            ({"weights": "w.txt"}, "does not go with `weights`"),
            ({"ranges": "each", "within": 0.1}, "which leaves mixtures out"),
        ],
    ),
    "draws": (
        BY_CLASS,
        [
            ({"average": "plain", "draws": 1}, "at least 2"),
            (DRAWS | {"by": None}, "is for `by` class"),
            ({"draw_spectra": 3}, "is for `average` plain"),
            (DRAWS | {"draw_spectra": 2}, EACH_OF),
            (DRAWS | {"draw_spectra": 6}, EACH_OF),
            (DRAWS | {"noise": "none"}, "nothing would vary"),
            (DRAWS | {"seed": -1}, "`seed` -1: must be a whole number, at least 0"),
            (DRAWS | {"draw_spectra": 0}, "at least 1"),
            (DRAWS | {"noise": "none", "draw_spectra": 5}, "nothing would vary"),
            (DRAWS | {"solver": "delete-only"}, "`average` is for `solver`"),
            (DRAWS | {"draw_spectra": 6, "dry_run": True}, EACH_OF),
        ],
    ),
    "ranges": (
        NNLS | {"ranges": "each"},
        [
            ({}, "one of `within`"),
            ({"within": 0.1, "confidence": 0.9}, "one of `within`"),
            ({"within": "all"}, "`within` all: ranges need an RMSE"),
            ({"confidence": 1.5}, "`confidence` 1.5: must be above 0, and below 1"),
            ({"within": 0.1, "simultaneous": True}, "`simultaneous` is for `confidence`"),
            ({"confidence": 0.9, "simultaneous": True}, "`simultaneous` needs the noise"),
            ({"confidence": 0.9, "noise": "none"}, "`noise` none: nothing would vary"),
            ({"within": 0.1, "noise": "ones.txt"}, "`noise` is for standard deviations, ranges"),
            ({"within": 0.1, "method": "ucls"}, "not ucls"),
            ({"within": 0.1, "l1": 0.1}, "does not go with `l1`, which leaves"),
            ({"within": 0.1, "at_most": 2}, "`at_most` does not go with `ranges`"),
            ({"ranges": None, "confidence": 0.9}, "`confidence` is for `ranges`"),
            ({"ranges": None, "within": 0.1}, "`within` is for `ranges`"),
            ({"ranges": "all", "within": 0.1}, "`ranges` 'all': must be class, or each"),
        ],
    ),
    "models": (
        MESMA,
        [
            ({"levels": "1-2"}, "from 2 to 9"),
            ({"levels": "x"}, "from 2 to 9"),
            ({"limits": "none"}, "there is exact and viper"),
            ({"max_shade": 0.9}, "`max_shade` rejects models under `limits` viper"),
            ({"fusion": -1.0}, "must not be negative"),
            ({"top": 2}, "`top` does not go with mesma"),
            ({"endmembers": None}, "needs a library"),
            ({"solver": "inverse"}, "unknown method 'mesma'"),
            ({"library_scale": 1e-4, "like": "viper"}, "reflectance from 0 to 1"),
        ],
    ),
    "averages of models": (
        MESMA | {"average": "likelihood"},
        [
            ({"average": "plain"}, "`average` plain: the models of mesma"),
            ({"within": 0.1}, "`within` is for `ranges`"),
            ({"ranges": "class", "within": 0.1}, "`ranges` is for `method`"),
            ({"uncertainty": True}, "`uncertainty` does not go with mesma"),
            ({"noise": "file.txt"}, "`noise` does not go with mesma"),
            ({"like": "dragon"}, "there is viper|must be viper"),
        ],
    ),
    "tied bands": (
        TIED,
        [
            ({"tie": "650-"}, "write ranges in nm"),
            ({"tie": "650-670"}, "1 band in use in this window; it needs two"),
            ({"tie": "600-700,650-800"}, "shares bands with another window"),
            ({"endmembers": None}, "is for `endmembers`"),
            ({"uncertainty": True}, "share the noise"),
            ({"by": "class", "average": "plain", "draws": 3}, "share the noise"),
        ],
    ),
    "extraction": (
        EXTRACTED,
        [
            ({"smooth": 5, "extract": "spa"}, "`smooth` is for the corners of the largest simplex"),
            ({"smooth": 5, "refine": False}, "`smooth` is for the corners of the largest simplex"),
            ({"smooth": -1}, "must be a whole number, at least 0"),
            ({"refine": False, "extract": "nfindr"}, "`refine`: nfindr always exchanges pixels"),
            ({"smooth": 50}, "18 valid pixels are too few for 3 endmembers"),
            ({"smooth": 5, "count": 1}, "one endmember has no simplex"),
            ({"extract": "nfindr", "outside": 0.3}, "is for `extract` sisal"),
            ({"extract": "sisal", "outside": 0.0}, "must be from 0.001 to 1"),
            ({"extract": "sisal", "smooth": 3}, "`smooth` is for"),
            ({"extract": "sisal", "refine": False}, "`refine`"),
            ({"extract": "sisal", "count": 1}, "one endmember has no simplex"),
        ],
    ),
    "counts, and cubes beside the scene": (
        NNLS,
        [
            ({"likelihood": "poisson", "scale": 2}, "counts are as they are stored", UnmixError),
            ({"likelihood": "poisson", "method": None}, "add that", UnmixError),
            ({"method": "fcls", "likelihood": "poisson"}, "is for `method` nnls", UnmixError),
            ({"likelihood": "other"}, "must be gaussian, or poisson", UnmixError),
            ({"background": "b.txt"}, "`background` is for `likelihood` poisson", UnmixError),
            ({"likelihood": "poisson", "l1": 0.1}, "`l1` does not go with `likelihood` poisson", UnmixError),
            (
                {"likelihood": "poisson", "weights": "b.txt"},
                "`weights` does not go with `likelihood` poisson",
                UnmixError,
            ),
            (
                {"likelihood": "poisson", "normalize": "sum"},
                "`normalize` does not go with `likelihood` poisson",
                UnmixError,
            ),
            ({"likelihood": "poisson", "solver": "inverse"}, "is for `solver` active-set", UnmixError),
            ({"weights": "three.hdr"}, "are for unmix.solve"),
            ({"likelihood": "poisson", "endmembers": "negative.csv"}, "no spectrum of counts", UnmixError),
        ],
    ),
}
ROWS = [(name, number) for name, (_, rows) in REFUSED.items() for number in range(len(rows))]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A scene, a library with classes, and what its options name; nothing is changed."""
    folder, random = tmp_path_factory.mktemp("refused"), np.random.default_rng(0)
    E, axis = random.uniform(0.1, 0.9, (L, P)), [400 + 25 * b for b in range(L)]
    write_cube(folder / "x.hdr", random.dirichlet(np.ones(P), (LINES, SAMPLES)) @ E.T, wavelength=axis)
    write_csv(folder / "library.csv", E, axis, classes=KINDS)
    write_csv(folder / "negative.csv", E - 1.0, axis)
    write_cube(folder / "noise.hdr", np.full((LINES, SAMPLES, L), 0.01))
    for name, bands in (("two", 2), ("three", 3), ("five", 5)):
        write_cube(folder / f"{name}.hdr", np.ones((LINES, SAMPLES, bands), np.uint8))
    tables = {
        "short": "1\n\n2\n",
        "words": "1\nx\n" * (L // 2),
        "zeros": "0\n" * L,
        "ones": "1\n" * L,
        "zero": "1\n" * (L - 1) + "0\n",
        "tiny": "1\n\n" * (L - 1) + "1e-99",
        "least": "1\n" * (L - 1) + "1e-310",
        "negative": "1\n-1\n" * 20,
    }
    for name, text in tables.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.mark.parametrize(("name", "number"), ROWS)
def test_options_that_do_not_fit(here, monkeypatch, name, number):
    monkeypatch.chdir(here)
    words, text, *error = REFUSED[name][1][number]
    words = {"endmembers": "library.csv", "device": "cpu", "out_dir": "o"} | REFUSED[name][0] | words
    caught = refused(error[0] if error else MethodError, text, unmix.run, "x.hdr", **words)
    assert "\n" not in str(caught.value) and not (here / "o").exists()
