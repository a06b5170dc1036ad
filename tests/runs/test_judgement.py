"""Each sentence about a model: a scene of which it is true and said, and one of which it is not; and none that contradicts another."""

import logging
import re

import numpy as np
import pytest
from conftest import at_night, write_csv, write_cube

import unmix
from unmix.runs.look import has_both_signs
from unmix.runs.record.fit import in_percent

NARROW, BROAD = np.linspace(420, 2450, 60), np.array([480.0, 560, 660, 850, 1600, 2200])


def spectra(waves, count=3):
    """Return smooth spectra of soil, tree, water and snow (L, count)."""
    tree = 0.05 + 0.4 / (1 + np.exp(-(waves - 720) / 40)) * np.exp(-(((waves - 900) / 900) ** 2))
    snow = 0.9 / (1 + np.exp((waves - 1200) / 150))
    rest = 0.1 + 0.35 * (waves - 400) / 2100, tree, 0.12 * np.exp(-(waves - 400) / 400) + 0.02
    return np.stack([*rest, snow], 1)[:, :count]


def made(folder, waves=NARROW, light=(1.0, 1.0), noise=0.002, have=3, given=3, more=None, change=None):
    """Write a scene of 24 × 24 mixtures of ``have`` spectra, times light within bounds, and a library of ``given``; return both."""
    random = np.random.default_rng(1)
    A = random.dirichlet(np.ones(have), (24, 24))
    Y = (A @ spectra(waves, have).T) * random.uniform(*light, (24, 24, 1)) + noise * random.standard_normal(
        (24, 24, len(waves))
    )
    Y = Y if change is None else change(Y)
    write_cube(folder / "m.hdr", (random.random((24, 24, 1)) < 0.1).astype(np.uint8))
    E = spectra(waves, given) if more is None else np.column_stack([spectra(waves, given), more(waves)])
    axis = "{" + ", ".join(map(str, waves)) + "}"
    return write_cube(folder / "s.hdr", Y.astype(np.float32), wavelength=axis), write_csv(folder / "e.csv", E, waves)


def turned(Y):
    """Return components about 0, as MNF has them."""
    flat = Y.reshape(-1, Y.shape[2]) - Y.reshape(-1, Y.shape[2]).mean(axis=0)
    return (flat @ np.linalg.svd(flat, full_matrices=False)[2].T).reshape(Y.shape)


def clouded(Y):
    Y = Y.copy()
    Y[:1] = 0.5 + 0.3 * np.sin(np.arange(Y.shape[2]) / 2)
    return Y


def with_shadow(Y):
    """Darken a third of the pixels to a fiftieth, with the noise that all have."""
    Y, noise = Y.copy(), 0.002 * np.random.default_rng(7).standard_normal((8, *Y.shape[1:]))
    Y[:8] = 0.02 * Y[:8] + noise
    return Y


def in_blocks(Y):
    """Put a spectrum that no library has into three blocks."""
    Y, waves = Y.copy(), np.linspace(0, 6, Y.shape[2])
    for lines, samples in ((slice(1, 4), slice(18, 22)), (slice(10, 12), slice(10, 12)), (slice(19, 23), slice(1, 6))):
        Y[lines, samples] = 0.3 + 0.2 * np.sin(waves)
    return Y


def with_offset(Y):
    return Y + 0.05


DARK, SNOW = {"light": (0.6, 0.6)}, {"have": 4, "given": 3, "waves": BROAD}
BLACK = {"more": lambda waves: np.full(len(waves), 1e-6)}
INK = {"more": lambda waves: 0.04 + 0.01 * np.sin(waves / 300), "light": (0.5, 1.6)}
# A part of the sentence; a scene and method of which it is true and said; and those of which it would be false.
SAID = {
    "darker than the library": [
        ("fcls", DARK),
        ("scls", {"light": (0.7, 0.8)}),
        ("fcls", DARK | {"waves": BROAD}),
        ("fcls", DARK | {"noise": 0.02}),
    ],
    "brighter than the library": [
        ("fcls", {"light": (1.5, 1.5)}),
        ("pcls", {"light": (1.5, 1.7)}),
        ("scls", {"light": (3, 3)}),
    ],
    "brightness varies": [("fcls", {"light": (0.5, 1.6)})],
    "the sum to one costs much of the fit": [("fcls", {"light": (0.6, 0.6)}), ("fcls", {"light": (1.5, 1.5)})],
    "the fit is poor": [("nnls", {"have": 4, "given": 1})],
    "an endmember may be missing": [
        ("nnls", {"have": 4, "given": 2}),
        ("nnls", {"have": 4, "given": 2, "waves": BROAD}),
        ("nnls", {"have": 4, "given": 2, "waves": BROAD[:4]}),
    ],
    "missing in": [
        ("nnls", {"have": 4, "given": 3}),
        ("nnls", {"have": 4, "given": 3, "waves": BROAD}),
    ],
    ": noise, which neighbours do not share": [("nnls", {"noise": 0.05}), ("fcls", {"noise": 0.05})],
    "values lie on both sides of 0": [("nnls", {"change": turned}), ("pcls", {"change": turned})],
    "times as bright as the others": [("nnls", BLACK), ("ucls", BLACK), ("pcls", BLACK)],
    "nearly collinear": [("nnls", {"more": lambda waves: spectra(waves)[:, 0] * 1.5 + 1e-7})],
    "are fitted poorly (relative RMSE": [("nnls", {"change": clouded})],
    "largest patch lines 19–2": [("nnls", {"change": in_blocks})],
    "an offset that was not taken off": [("fcls", {"change": with_offset})],
    "nearly unused": [("nnls", {"have": 2, "noise": 0.0})],
    "noise alone moves fractions of": [("nnls", INK | {"noise": 0.02}), ("pcls", INK | {"noise": 0.03})],
}
NOT_SAID = {
    "darker than the library": [
        ("fcls", {}),
        ("nnls", DARK),
        ("pcls", DARK),
        ("fcls", {"light": (0.97, 0.97)}),
        ("fcls", SNOW),
    ],
    "brighter than the library": [
        ("fcls", {}),
        ("nnls", {"light": (1.5, 1.5)}),
        ("fcls", {"light": (1.03, 1.03)}),
        ("fcls", {"noise": 0.03}),
        ("fcls", SNOW),
    ],
    "brightness varies": [
        ("fcls", {}),
        ("fcls", DARK),
        ("nnls", {"light": (0.5, 1.6)}),
        ("fcls", {"change": turned}),
        ("fcls", SNOW),
    ],
    "the sum to one costs much of the fit": [("fcls", {}), ("nnls", DARK), ("fcls", {"change": turned})],
    "the fit is poor": [("nnls", {})],
    "an endmember may be missing": [("nnls", {}), ("nnls", {"noise": 0.05}), ("nnls", {"change": turned})],
    "missing in": [("nnls", {}), ("nnls", {"noise": 0.05}), ("nnls", {"change": turned})],
    ": noise, which neighbours do not share": [
        ("nnls", {"have": 4, "given": k, "waves": waves})
        for k in (2, 3)
        for waves in (NARROW, BROAD, BROAD[:5], BROAD[:4])
    ],
    "values lie on both sides of 0": [("nnls", {}), ("nnls", {"noise": 0.05}), ("fcls", {"change": turned})],
    "times as bright as the others": [("fcls", BLACK), ("nnls", {})],
    "nearly collinear": [("nnls", BLACK), ("ucls", BLACK)],
    "are fitted poorly (relative RMSE": [
        ("nnls", {}),
        ("nnls", {"change": with_shadow}),
        ("nnls", {"change": with_shadow, "waves": BROAD}),
    ],
    "largest patch lines 19–2": [("nnls", {"have": 4, "given": 3})],
    "an offset that was not taken off": [("fcls", {}), ("fcls", DARK), ("nnls", {"change": with_offset})],
    "nearly unused": [("nnls", {})],
    "noise alone moves fractions of": [("nnls", {}), ("fcls", {}), ("nnls", INK), ("nnls", BLACK), ("ucls", BLACK)],
}
# Words of a message, the scene's stem among them.
MOST_WORDS = 25
# Pairs of sentences that must not meet in one run.
NEVER_TOGETHER = [
    ("brightness does not vary", "brightness varies"),
    ("brightness does not vary", "than the library: unconstrained"),
    ("brightness does not vary", "costs much of it"),
    ("brightness does not vary", "cannot follow how bright"),
    (": noise, which", "missing in"),
    (": noise, which", "an endmember may be missing"),
    ("darker than the library", "brighter than the library"),
    ("than the library: unconstrained", "brightness varies"),
    ("both sides of 0", "an endmember may be missing"),
    ("both sides of 0", "missing in"),
    ("both sides of 0", "costs much of it"),
    ("both sides of 0", "the fit is poor"),
    ("times as bright as the others", "nearly collinear"),
    ("have no standard deviations", "just so in 100 %"),
    ("the fit is poor", "explain the pixels well"),
    ("explain the pixels well[.]", "are fitted poorly"),
    ('class="verdict poor"', "explain the pixels well[.]"),
    (r"\b0 % of the others", "missing in"),
    ("brightness does not vary", "nnls with `normalize` sum"),
    ("brightness does not vary", "use nnls"),
    ("an offset that was not taken off", "are masked; "),
    ("scattered over the scene", "in [0-9] places "),
]


# What was said of the scenes below, each run once though several sentences ask about it: by method and scene.
SAID_BEFORE = {}


def said_once(folder, method, scene, caplog):
    """Run a scene, unless it was; return all that is logged, as one text, and its warnings."""
    key = method, repr(scene)
    if key not in SAID_BEFORE:
        SAID_BEFORE[key] = said_of(folder, method, scene, caplog)
    return SAID_BEFORE[key]


def said_of(folder, method, scene, caplog, **how):
    """Run a scene; return all that is logged, as one text, and its warnings."""
    path, library = made(folder, **{name: one for name, one in scene.items() if not name.startswith("mask")})
    how |= {name: f"{folder}/{scene[name]}" for name in ("mask", "mask_out") if name in scene}
    caplog.clear()
    with caplog.at_level(logging.INFO, "unmix"):
        report = unmix.run(path, endmembers=library, method=method, device="cpu", overwrite=True, browse=False, **how)
    return "\n".join(record.getMessage() for record in caplog.records), report["warnings"]


@pytest.mark.parametrize("sentence", SAID)
def test_sentences_are_said_where_they_are_true(tmp_path, caplog, sentence):
    for method, scene in SAID[sentence]:
        text, warnings = said_once(tmp_path, method, scene, caplog)
        assert sum(sentence in warning for warning in warnings) == 1, (method, scene, text)
        (warning,) = [one for one in warnings if sentence in one]
        assert warning.startswith(("s: ", "e.csv: ")) and "  " not in warning


@pytest.mark.parametrize("sentence", NOT_SAID)
def test_sentences_are_not_said_where_they_are_false(tmp_path, caplog, sentence):
    for method, scene in NOT_SAID[sentence]:
        text, _ = said_once(tmp_path, method, scene, caplog)
        assert sentence not in text, (method, scene, text)


def test_every_sentence_has_both():
    assert SAID.keys() == NOT_SAID.keys() and all(SAID.values()) and all(NOT_SAID.values())


ODD = [
    {},
    DARK,
    {"light": (0.4, 1.8)},
    {"light": (2, 2)},
    {"noise": 0.05},
    {"noise": 0.0},
    {"have": 4},
    {"have": 4, "given": 2},
    SNOW,
    {"have": 4, "given": 2, "waves": BROAD},
    {"have": 4, "given": 2, "waves": BROAD[:4]},
    {"change": turned},
    {"change": clouded},
    BLACK,
    {"have": 4, "given": 3, "noise": 0.05},
    DARK | {"noise": 0.05},
    {"change": lambda Y: Y[:, :1].repeat(24, 1)},
    {"change": with_shadow},
    {"change": with_shadow, "light": (0.5, 1.6)},
    {"change": with_shadow, "have": 4},
    {"change": in_blocks},
    {"change": in_blocks, "light": (0.5, 1.6)},
    {"change": with_offset},
    {"change": with_offset} | DARK,
    {"mask": "m.hdr"},
    {"mask": "m.hdr", "change": clouded},
    {"mask": "m.hdr", "change": with_offset},
    {"mask_out": "m.hdr", "light": (0.4, 0.7)},
    {"waves": BROAD, "change": with_shadow},
    {"have": 2, "given": 1, "light": (0.5, 1.5)},
]


@pytest.mark.slow
@pytest.mark.parametrize("number", at_night(range(len(ODD)), *range(0, len(ODD), 3)))
def test_no_two_sentences_contradict_each_other(tmp_path, caplog, number):
    """In what a run logs, its page and `check` say together, with any method, and with endmembers of the scene's own."""
    for method in ("nnls", "fcls", "pcls", "ucls", "scls", None):
        text, _ = said_of(tmp_path, method, ODD[number], caplog, uncertainty=method is not None)
        page = unmix.report(tmp_path / "s", overwrite=True).read_text()
        masks = {name: f"{tmp_path}/m.hdr" for name in ("mask", "mask_out") if name in ODD[number]}
        found = unmix.check(tmp_path / "s.hdr", tmp_path / "e.csv", method=method, **masks)["findings"]
        refuse_pairs("\n".join([text, page, *(one["message"] for one in found)]), (method, number))
        said = [*text.splitlines(), *(one["message"] for one in found if one["severity"] != "info")]
        long = [
            one for one in said if len(one.split()) > MOST_WORDS and "; relative RMSE" not in one
        ]  # but the sum of a run
        assert long == []
    caplog.clear()
    with caplog.at_level(logging.INFO, "unmix"):
        unmix.run(tmp_path / "s.hdr", extract="vca", device="cpu", overwrite=True, browse=False)
    refuse_pairs("\n".join(record.getMessage() for record in caplog.records), ("extracted", number))


def refuse_pairs(text, about):
    for one, other in NEVER_TOGETHER:
        assert not (re.search(one.replace("(", r"\("), text) and re.search(other.replace("(", r"\("), text)), (
            about,
            one,
            other,
            text[:3000],
        )


@pytest.mark.parametrize("words", [{"count": 3}, {"count": 4}, {"count": 2}])
def test_a_scene_whose_brightness_does_not_vary_is_not_said_to_vary(tmp_path, caplog, words):
    path, _ = made(tmp_path, noise=0.001)
    with caplog.at_level(logging.INFO, "unmix"):
        unmix.run(path, device="cpu", browse=False, **words)
    refuse_pairs("\n".join(record.getMessage() for record in caplog.records), words)


def test_what_has_both_signs():
    pixels = np.random.default_rng(2).dirichlet(np.ones(3), 200) @ spectra(NARROW).T
    noisy = pixels + np.where(np.arange(60) < 20, 0.5, 0.0) * np.random.default_rng(4).standard_normal(pixels.shape)
    assert not has_both_signs(pixels) and not has_both_signs(noisy) and has_both_signs(pixels - pixels.mean(axis=0))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0 %"),
        (1e-9, "below 0.001 %"),
        (0.0512, "5.1 %"),
        (0.0996, "10 %"),
        (0.53, "53 %"),
        (0.99999, "99.9 %"),  # not 100 %: some are left
        (1.0, "100 %"),
        (float("inf"), "infinite"),
    ],
)
def test_shares(share, said):
    assert in_percent(share) == said


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.01, False), (0.1, True)])
def test_pixels_that_miss_single_bands_are_said(tmp_path, share, said):
    random = np.random.default_rng(6)
    Y = random.dirichlet(np.ones(3), (20, 20)) @ spectra(NARROW).T + 0.5
    dark = random.permutation(400)[: int(400 * share)]
    Y.reshape(400, -1)[dark, 7] = 0
    path, library = write_cube(tmp_path / "s.hdr", Y), write_csv(tmp_path / "e.csv", spectra(NARROW) + 0.5)
    report = unmix.run(path, endmembers=library, nodata=0.0, device="cpu", browse=False)
    assert any("miss a band in use" in one for one in report["warnings"]) == said
