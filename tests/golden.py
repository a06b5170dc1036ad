"""SHA-256 of every map of some sixty runs, in golden.json: ``python tests/golden.py check|write [cpu|cuda]``.

Whoever takes code away shows with it that no byte of a map changed, or which. Bytes are those of a kind of device: a
CPU with so many lanes of a vector, or a GPU. ``write`` replaces the entries of this machine's kind, and prints those
that changed.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
TABLE = HERE / "golden.json"
LINES, SAMPLES, BANDS, SPECTRA = 14, 37, 24, 6
CLASSES = ["soil", "soil", "plant", "plant", "water", "ice"]
# Endings of files that are maps or spectra.
MAPS = (".img", ".tif", ".sli", ".nc", ".h5")
NNLS, FCLS, PCLS = ({"endmembers": "e.csv", "method": name} for name in ("nnls", "fcls", "pcls"))
NOISE = {"noise": "noise.txt"}
# What is run, by name: the cube, and the options of `unmix.run`.
RUNS = {
    **{
        f"{method} {solver}": ("f4_bil", {"endmembers": "e.csv", "method": method, "solver": solver})
        for method, solvers in (
            ("ucls", ("direct",)),
            ("scls", ("direct",)),
            ("nnls", ("active-set", "inverse")),
            ("fcls", ("active-set", "inverse", "delete-only")),
            ("pcls", ("active-set",)),
        )
        for solver in solvers
    },
    **{f"fcls of {cube}": (cube, FCLS) for cube in ("i2_bip", "u2_bsq", "f8_bil", "i4_bil", "u1_bip")},
    **{f"fcls as {format}": ("i2_bip", {**FCLS, "format": format}) for format in ("geotiff", "hdf5", "netcdf")},
    "defaults": ("f4_bil", {}),
    **{f"vca {method}": ("f4_bil", {"method": method, "extract": "vca", "count": 4}) for method in ("nnls", "fcls")},
    "spa": ("i2_bip", {"method": "fcls", "extract": "spa", "count": 4}),
    "nfindr": ("i2_bip", {"method": "fcls", "extract": "nfindr", "count": 4}),
    "sisal": ("f4_bil", {"method": "fcls", "extract": "sisal", "count": 4}),
    "certificate, residual": ("f4_bil", {**FCLS, "certificate": True, "residual": True}),
    "top": ("f4_bil", {**NNLS, "top": 3}),
    "quantized": ("f4_bil", {**FCLS, "quantize": 0.001}),
    "by class": ("f4_bil", {**FCLS, "classes": "class", "by": "class", "class_map": True}),
    "shade by class": ("f4_bil", {**PCLS, "classes": "class", "by": "class", "shade_normalize": True}),
    **{f"normalize {what}": ("f4_bil", {**NNLS, "normalize": what}) for what in ("sum", "length", "max")},
    "shade": ("f4_bil", {**PCLS, "shade": "shade.csv"}),
    "uncertainty": ("f4_bil", {**FCLS, **NOISE, "uncertainty": True}),
    "plain average": ("f4_bil", {**FCLS, **NOISE, "classes": "class", "by": "class", "average": "plain", "draws": 20}),
    "ranges each": ("f4_bil", {**FCLS, "ranges": "each", "within": 0.002}),
    "ranges class": ("f4_bil", {**NNLS, **NOISE, "classes": "class", "ranges": "class", "confidence": 0.95}),
    "weights": ("f4_bil", {**NNLS, "weights": "noise.txt"}),
    "weights noise": ("f4_bil", {**FCLS, **NOISE, "weights": "noise"}),
    "l1": ("f4_bil", {**NNLS, "l1": 0.05}),
    "at most": ("f4_bil", {**NNLS, "at_most": 2}),
    "rows": ("f4_bil", {**NNLS, "rows": 3}),
    "poisson": ("counts", {**NNLS, "likelihood": "poisson"}),
    "tie": ("f4_bil", {**NNLS, "tie": "600-1500"}),
    "albedo": ("f4_bil", {**FCLS, "albedo": "30,0"}),
    "laplacian": ("f4_bil", {**NNLS, "laplacian": 0.01}),
    "tv": ("f4_bil", {**FCLS, "tv": 0.01}),
    "window": ("f4_bil", {**FCLS, "lines": "2:9", "samples": "3:30", "bands": "2-20"}),
    "mask": ("f4_bil", {**FCLS, "mask": "mask.hdr"}),
    "mesma": ("f4_bil", {"endmembers": "e.csv", "classes": "class", "method": "mesma"}),
    "mesma of more": (
        "f4_bil",
        {"endmembers": "e.csv", "classes": "class", "method": "mesma", "levels": "2-4", "fusion": 0.0},
    ),
    "many": ("f4_bil", {"endmembers": "many.csv", "method": "nnls"}),
    "many fcls": ("f4_bil", {"endmembers": "many.csv", "method": "fcls"}),
}


def digest_of(path):
    """The digest of a map, whose header names the version of unmix: as that of the release that the table was begun with."""
    from unmix._version import VERSION

    return hashlib.sha256(path.read_bytes().replace(VERSION.encode(), b"0.2.0")).hexdigest()[:16]


def make_world(folder):
    """Write the cubes and tables that runs read, of numbers that are the same on each machine."""
    from conftest import write_csv, write_cube

    random = np.random.default_rng(20261128)
    axis = np.linspace(450, 2400, BANDS)
    many = np.abs(random.integers(100, 900, (BANDS, 40)) / 1000)
    E = many[:, :SPECTRA]
    parts = random.dirichlet(np.full(SPECTRA, 0.5), (LINES, SAMPLES))
    Y = np.round((parts @ E.T + 0.005 * random.standard_normal((LINES, SAMPLES, BANDS))).clip(0.001) * 2**16) / 2**16
    Y[3, 5] = -9999.0
    for name, dtype, interleave, scale in (
        ("f4_bil", "f4", "bil", 1),
        ("f8_bil", "f8", "bil", 1),
        ("i2_bip", "i2", "bip", 10_000),
        ("u2_bsq", "u2", "bsq", 10_000),
        ("i4_bil", "i4", "bil", 10_000),
        ("u1_bip", "u1", "bip", 250),
    ):
        values = np.where(Y < 0, 0 if dtype[0] == "u" else Y, np.round(Y * scale) if scale > 1 else Y)
        fields = {"wavelength": axis.tolist(), "data ignore value": 0 if dtype[0] == "u" else -9999}
        more = {"reflectance scale factor": scale} if scale > 1 else {}
        write_cube(folder / f"{name}.hdr", values.astype(dtype), interleave=interleave, **fields, **more)
    write_cube(folder / "counts.hdr", np.round(Y.clip(0.001) * 400).astype("u2"), wavelength=axis.tolist())
    write_cube(folder / "mask.hdr", (random.random((LINES, SAMPLES, 1)) > 0.3).astype("u1"))
    write_csv(folder / "e.csv", E, axis, classes=CLASSES)
    write_csv(folder / "many.csv", many, axis)
    write_csv(folder / "shade.csv", np.full((BANDS, 1), 0.01), axis)
    (folder / "noise.txt").write_text("".join(f"{0.004 + 0.0001 * b}\n" for b in range(BANDS)))


def digests(folder, device):
    """Run all of `RUNS`; return the digest of each map by the name of the run and of the map, or the words of an error."""
    import unmix

    make_world(folder)
    found = {}
    for number, (name, (cube, options)) in enumerate(RUNS.items()):
        out = folder / f"o{number}"
        files = {
            key: str(folder / value) if isinstance(value, str) and (folder / value).exists() else value
            for key, value in options.items()
        }
        try:
            unmix.run(folder / f"{cube}.hdr", out_dir=out, device=device, browse=False, **files)
            maps = sorted(path for path in out.iterdir() if path.suffix in MAPS)
            found[name] = {path.name: digest_of(path) for path in maps}
        except unmix.UnmixError as error:
            found[name] = {"error": str(error).replace(str(folder), "")}
    return found


def kind_of(device):
    """The kind of a device: bytes are those of a kind."""
    from unmix.compiled.jit import WIDE

    return "cuda" if device.startswith("cuda") else f"cpu with {WIDE.width} lanes"


def changes(device):
    """Yield what differs from the table; and the table with what was found."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    kept = table.get(kind_of(device), {})
    with tempfile.TemporaryDirectory() as folder:
        found = digests(Path(folder), device)
    table[kind_of(device)] = found
    names = list(dict.fromkeys([*kept, *found]))
    return [name for name in names if kept.get(name) != found.get(name)], kept, table


def main():
    """Check or write the table."""
    what, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"
    changed, kept, table = changes(device)
    for name in changed:
        was, now = kept.get(name, {}), table[kind_of(device)].get(name, {})
        print(name, [key for key in {**was, **now} if was.get(key) != now.get(key)], now.get("error", ""))
    print(f"{kind_of(device)}: {len(table[kind_of(device)])} runs, {len(changed)} changed")
    if what == "write":
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return int(what == "check" and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
