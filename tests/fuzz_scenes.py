"""Damaged and odd scenes and libraries in all formats that are read, and options of a run of them, for `fuzz_grammar.py`."""

import gzip
import re

import numpy as np

ODD = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "255",
    "65536",
    "2147483647",
    "4294967296",
    "-2147483648",
    "1e308",
    "nan",
    "inf",
    "-inf",
    "1e-300",
    "",
    "x",
    "{",
    "}",
    "{1, 2}",
    "3.5",
    "µm",
    "9" * 40,
)


def seeds(folder, random):
    """Write a scene in some format, and a library; return their paths."""
    import products
    import scipy.io
    from conftest import write_csv, write_cube

    lines, samples, bands = (int(n) for n in random.integers((1, 1, 6), (24, 24, 26)))
    scene = products.truth(max(2, lines), max(4, samples), bands, int(random.integers(2**31)))
    E = np.stack([0.4 + 0.3 * np.sin(scene.waves / 300.0 + k) for k in range(3)], axis=1)
    kinds = ["envi"] * 4 + ["gzip", *products.ARCHIVES, *products.WRITERS]
    kind = kinds[random.integers(len(kinds))]
    if kind in ("envi", "gzip"):
        dtype = str(random.choice(["uint8", "int16", "int32", "float32", "float64", "uint16"]))
        factor = {"uint8": 250, "float32": 1, "float64": 1}.get(dtype, 10000)
        fields = {
            "wavelength": scene.waves,
            "reflectance_scale_factor": factor,
            "fwhm": scene.fwhm,
            "data_ignore_value": 0,
            "map_info": "{UTM, 1, 1, 5e5, 4e6, 30, 30, 11, North}",
        }
        path = write_cube(
            folder / "c.hdr",
            (scene.Y * factor).astype(dtype),
            str(random.choice(["bip", "bil", "bsq"])),
            str(random.choice(["<", ">"])),
            **fields,
        )
        if kind == "gzip":
            path.write_text(path.read_text() + "file compression = 1\n")
            path.with_suffix(".img").write_bytes(gzip.compress(path.with_suffix(".img").read_bytes()))
    else:
        write, name = (products.ARCHIVES | {key: (each, "c.h5") for key, each in products.WRITERS.items()})[kind]
        path = folder / name
        write(path, scene)
    which = str(random.choice(["csv", "sli", "usgs", "ecostress", "plot", "mat"]))
    library = write_csv(folder / "e.csv", E, scene.waves)
    fine = np.linspace(scene.waves[0] - 5, scene.waves[-1] + 5, 120)
    seen = np.stack([np.interp(fine, scene.waves, spectrum) for spectrum in E.T])
    if which == "sli":
        from unmix.library import load

        load(library).write(None, folder / "e.sli", folder / "e.hdr")
        library = folder / "e.sli"
    elif which in ("usgs", "ecostress"):
        library = folder / "lib"
        library.mkdir()
        for j, values in enumerate(seen):
            rows = "\n".join(f" {wave / 1000:.6f}\t{value:.6f}\t0.0" for wave, value in zip(fine, values))
            text = f"USGS Digital Spectral Library x\n---------\nStuff{j} A\nhistory\n{rows}\n"
            if which == "ecostress":
                rows = "\n".join(f"{wave / 1000:.6f} {100 * value:.6f}" for wave, value in zip(fine, values))
                text = f"Name: s{j}\nX Units: Wavelength (micrometers)\nY Units: Reflectance (percent)\n\n{rows}\n"
            (library / f"{j}.txt").write_text(text)
    elif which == "plot":
        library = folder / "e.txt"
        rows = "\n".join(" ".join(f"{v:.6f}" for v in (wave / 1000, *column)) for wave, column in zip(fine, seen.T))
        names = "".join(f"Column {j + 2}: s{j}~~{j}\n" for j in range(3))
        library.write_text(f"ENVI ASCII Plot File [x]\nColumn 1: Wavelength\n{names}{rows}\n")
    elif which == "mat":
        library = folder / "e.mat"
        scipy.io.savemat(library, {"A": seen.T, "wl": fine, "material_names": np.array(["a", "b", "c"], object)})
    return path, library


def damage(path, random):
    """Do something to a file: bytes, words, its length."""
    raw = bytearray(path.read_bytes())
    what = str(random.choice(["bytes", "bytes", "byte", "words", "words", "cut", "longer", "block", "swap"]))
    size = max(1, len(raw))
    if what in ("byte", "bytes"):
        for at in random.integers(size, size=1 if what == "byte" else int(random.integers(2, 30))):
            if raw:
                raw[at] = int(random.choice([0, 1, 127, 128, 255, random.integers(256)]))
    elif what == "cut":
        raw = raw[: int(random.integers(size))]
    elif what == "longer":
        raw += bytes(int(random.integers(1, 5000)))
    elif what == "block":
        at = int(random.integers(size))
        length = int(random.integers(1, 600))
        raw[at : at + length] = random.bytes(length)
    elif what == "swap":
        a, b = sorted(int(n) for n in random.integers(size, size=2))
        raw[a : a + 64], raw[b : b + 64] = raw[b : b + 64], raw[a : a + 64]
    else:
        numbers = list(re.finditer(rb"[-+]?\d[\d.eE+-]*", raw[:20000]))
        for one in [
            numbers[i] for i in random.integers(len(numbers), size=min(len(numbers), int(random.integers(1, 3))))
        ][::-1]:
            raw[one.start() : one.end()] = str(random.choice(ODD)).encode()
    path.write_bytes(raw)


def options(random, folder, cube):
    """The words of some of the options of a run, most of them right."""
    found = {}
    odd = [
        ("bands", ["all", "auto", "1-3", "2,4", "0", "9999", "x", "1-"]),
        ("only_nm", ["500-700", "0-9999", "a-b"]),
        ("ignore_nm", ["500-700", "0-9999", "a-b", "1e3-1.2e3"]),
        ("lines", ["1:", ":2", "0:1", "5:2", "-1:", "0:99999999999"]),
        ("samples", ["1:", ":3", "2:2", ":", "1:1e3"]),
        ("scale", [1.0, 10000.0, 0.0, -1.0, float("nan"), 1e-300]),
        ("nodata", [0.0, -9999.0, float("nan"), 1e300]),
        ("format", ["geotiff", "hdf5", "hdf5"]),
        ("select", ["*", "em*", "nothing", ","]),
        ("method", ["nnls", "scls", "ucls", "pcls", "pcls", "mesma", "mesma"]),
        ("uncertainty", [True]),
        ("noise", ["auto", str(cube), "no.txt"]),
        ("by", ["class", "name"]),
        ("shade_normalize", [True]),
        ("normalize", ["sum", "length"]),
        ("library_scale", [10.0, 0.0, float("nan"), 1e-300]),
        ("classes", ["name", "class", "no.csv:x", f"{cube}:class", "%"]),
        ("shade", [str(cube), "no.csv", str(folder)]),
        ("memory", ["64k", "1k", "1M", "0"]),
        ("dataset", ["/cube", "cube", "/cube:bxy", "/nothing:yxb", "Y"]),
        ("wavelengths", ["/wavelength", "wl"]),
        ("mask", [str(cube), f"{cube}:2", "no.hdr", str(folder)]),
        ("residual", [True]),
        ("certificate", [True]),
        ("ortho", [True]),
    ]
    for name, values in odd:
        if random.random() < 0.06:
            found[name] = values[random.integers(len(values))]
    return found


def scene(folder, random):
    """Make a scene, a library and options, perhaps with damage to a file; return the words of a run of them."""
    before = set(folder.rglob("*"))
    cube, library = seeds(folder, random)
    settings = {"memory": "8M"} | options(random, folder, cube)
    files = sorted(path for path in set(folder.rglob("*")) - before if path.is_file())
    if random.random() < 0.75:
        damage(files[random.integers(len(files))], random)
    if random.random() < 0.1:
        for name in ("select", "classes", "library_scale", "by", "shade_normalize"):
            settings.pop(name, None)
        settings["count"] = 2
    else:
        settings["endmembers"] = library
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in settings.items()]
    return ["run", str(cube), *words, "--device", "cpu", "--threads", "1", "-o", "o", "-q"]
