"""A first day: 24 tasks on real scenes, as a newcomer types them; each is right at the first try, and says so in its output."""

import shlex

import numpy as np
import pytest
from conftest import read_values, write_cube
from test_cli import unmix as command

import unmix

pytestmark = [pytest.mark.real, pytest.mark.slow]
# Each: the command, {d} being the folder of the scenes, and a word of what it prints or writes.
TASKS = {
    "fractions of a scene": (
        "run {d}/jasper/jasper.hdr -e {d}/jasper/jasper_truth_endmembers.csv --method fcls -o r1",
        "certified",
    ),
    "without a library": ("run {d}/samson/samson.hdr -o r2", "certified"),
    "against a truth": ("compare r1/jasper {d}/jasper/jasper_truth_abundance.hdr -o c.html", "R²"),
    "against larger pixels": ("compare r3/placed coarse.hdr", "A averaged by area"),
    "by class": ("compare classed/jasper classes.hdr --by class", "matched by name"),
    "within a mask": (
        "compare r1/jasper {d}/jasper/jasper_truth_abundance.hdr --mask mask.hdr",
        "5000 pixels compared",
    ),
    "deviations": ("compare sure/jasper {d}/jasper/jasper_truth_abundance.hdr", "within σ (68 %)"),
    "a pixel's spectrum": ("plot r1/jasper --at 30,40 -o pixel.png", "pixel.png"),
    "a map of materials": (
        "match {d}/jasper/jasper.hdr -e {d}/jasper/jasper_truth_endmembers.csv --only-nm 2000-2450 --class-map -o m",
        "_class",
    ),
    "one target": ("detect {d}/jasper/jasper.hdr -e {d}/jasper/jasper_truth_endmembers.csv --select road -o t", "road"),
    "two libraries": (
        "library merge {d}/jasper/jasper_truth_endmembers.csv {d}/jasper/jasper_truth_endmembers.csv two.csv",
        "two.csv",
    ),
    "nearest spectra": ("library match r2/samson_endmembers.csv {d}/samson/samson_truth_endmembers.csv", "°"),
    "an intimate mixture": (
        "run {d}/jasper/jasper.hdr -e {d}/jasper/jasper_truth_endmembers.csv --method fcls --albedo 30,0 "
        "--grains grains.csv -o w",
        "certified",
    ),
    "a granule": ("synth emit.nc --like emit --lines 30 --samples 30", "emit.nc"),
    "its product": ("product emit-frcov emit.nc -e emit_library.csv -o product", "FRCOVPV"),
    "a sensor's preset": ("run {d}/neon_aop/neonhs_ex.h5 --preset neon -n 4 -o neon", "certified"),
    "how many": ("count {d}/samson/samson.hdr", "3"),
    "are they good": ("endmembers {d}/samson/samson.hdr -n 3 -o e", "nearest"),
    "states of runs": ("status .", "done"),
    "a page": ("report r1/jasper", "jasper_report.html"),
    "proof": ("verify r1/jasper", "unmixed again"),
    "another format": ("export r1/jasper -f cog -o gis", ".tif"),
}
BEFORE = {
    "against larger pixels": "run placed.hdr -e {d}/jasper/jasper_truth_endmembers.csv --method fcls -o r3 --tag site=jasper",
    "by class": "run {d}/jasper/jasper.hdr -e classed.csv --method fcls -o classed",
    "deviations": "run {d}/jasper/jasper.hdr -e {d}/jasper/jasper_truth_endmembers.csv --method fcls --uncertainty -o "
    "sure",
}


def prepared(folder, data):
    """Write what a newcomer has beside the scenes: a mask, classes, a table of grains, a coarser truth."""
    truth = unmix.open_cube(data / "jasper/jasper_truth_abundance.hdr")
    values = read_values(truth).astype(np.float32)
    names = "{" + ", ".join(truth.fields["band names"].strip("{}").split(",")) + "}"
    where = "{{UTM, 1, 1, 560000, 4140000, {0}, {0}, 10, North, WGS-84, units=Meters}}"
    write_cube(
        folder / "coarse.hdr",
        values.reshape(50, 2, 50, 2, 4).mean(axis=(1, 3)),
        map_info=where.format(40),
        band_names=names,
    )
    header = (data / "jasper/jasper.hdr").read_text()
    (folder / "placed.hdr").write_text(header + f"\nmap info = {where.format(20)}\n")
    (folder / "placed.img").symlink_to(data / "jasper/jasper.img")
    mask = np.zeros((100, 100, 1), np.uint8)
    mask[:50] = 1
    write_cube(folder / "mask.hdr", mask)
    library = unmix.load_library(data / "jasper/jasper_truth_endmembers.csv")
    classes = {name: "green" if name == "tree" else "other" for name in library.names}
    order = [name.strip() for name in names.strip("{}").split(",")]
    sums = np.stack(
        [sum(values[..., j] for j, name in enumerate(order) if classes[name] == kind) for kind in ("green", "other")],
        axis=-1,
    )
    write_cube(folder / "classes.hdr", sums, band_names="{green, other}")
    rows = (data / "jasper/jasper_truth_endmembers.csv").read_text().splitlines()
    given = [line.split(",", 1) for line in rows]
    (folder / "classed.csv").write_text(
        "\n".join(f"{name},{classes.get(name, 'class')},{rest}" for name, rest in given) + "\n"
    )
    (folder / "grains.csv").write_text(
        "name,density,diameter\n" + "".join(f"{name},2.6,50\n" for name in library.names)
    )


def test_each_is_right_at_the_first_try(tmp_path, data):
    """In one folder, one after the other."""
    prepared(tmp_path, data)
    for task, (words, says) in TASKS.items():
        for line in filter(None, (BEFORE.get(task), words)):
            out, told = command(*shlex.split(line.format(d=data)), cwd=tmp_path)
        assert says in out + told, (task, out, told)
        assert "should not happen" not in told
