"""Runs from a web server beside plain downloads of the same file: ``python tests/bench/remote.py FOLDER [LINES] [MBIT]
[LATENCY]``.

A synthetic scene of LINES x 1000 pixels and 224 bands of int16 is written to FOLDER as ENVI (bil), as HDF5 in chunks of
gzip, and as a TIFF in deflated tiles. A server in a process of its own serves FOLDER on the loopback, each answer after
LATENCY s (0.03), all answers together at no more than MBIT Mbit/s (1000; 0: as fast as it can). In turn: a plain
download of the data file into memory, by 24 threads of Python's own HTTP client with ranges of 4 MiB; a run of the URL,
five endmembers given, maps to FOLDER; a run of the file. Prints a line of JSON for each format: medians of three, and
the median of the ratios download / run, which is the share of the download's throughput that a run has.
"""

import http.client
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import rasterio
from common import say, seconds_of
from conftest import write_cube

import unmix

HERE = Path(__file__).parents[1]
BANDS, SAMPLES, P, TURNS = 224, 1000, 5, 3
PIECE, AT_ONCE = 4 * 2**20, 24
SERVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from object_server import serving
with serving(Path(sys.argv[2]), rate=float(sys.argv[3]) * 1e6 / 8, latency=float(sys.argv[4])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def write(folder: Path, lines: int) -> unmix.Endmembers:
    """Write the scene three times; return its endmembers."""
    random = np.random.default_rng(0)
    waves = np.linspace(400, 2400, BANDS)
    E = np.stack([0.4 + 0.3 * np.sin(waves * (k + 1) / 700.0 + k) for k in range(P)], axis=1)
    A = random.dirichlet(np.full(P, 0.4), (lines, SAMPLES // 20)).repeat(20, axis=1)
    noise = 0.004 * random.standard_normal((lines, SAMPLES, BANDS), np.float32)
    values = np.round((A @ E.T + noise) * 10_000).astype(np.int16)
    units = {"wavelength_units": "nanometers", "wavelength": waves.tolist()}
    write_cube(folder / "envi.hdr", values, "bil", reflectance_scale_factor=10000, **units)
    with h5py.File(folder / "hdf5.nc", "w") as file:
        file.create_dataset("reflectance", data=values, chunks=(64, 64, BANDS), compression="gzip", shuffle=True)
        file["sensor_band_parameters/wavelengths"] = waves
    profile = {"driver": "GTiff", "dtype": "int16", "height": lines, "width": SAMPLES, "count": BANDS}
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate", "interleave": "pixel"}
    with rasterio.open(folder / "tiff.tif", "w", **profile, **tiles) as file:
        file.write(values.transpose(2, 0, 1))
    return unmix.Endmembers(tuple(f"e{k}" for k in range(P)), E, waves, source="truth")


def download(url: str, size: int) -> None:
    """Fetch a file into memory, by ranges."""
    host, _, name = url.removeprefix("http://").partition("/")
    into = bytearray(size)

    def fetch(worker: int) -> None:
        connection = http.client.HTTPConnection(host)
        for first in range(worker * PIECE, size, AT_ONCE * PIECE):
            part = memoryview(into)[first : first + PIECE]
            connection.request("GET", f"/{name}", headers={"Range": f"bytes={first}-{first + len(part) - 1}"})
            if connection.getresponse().readinto(part) != len(part):
                raise EOFError(url)
        connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(fetch, range(AT_ONCE)))


def main(folder: Path, lines: int, rate: float, latency: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    library = write(folder, lines)
    options = {"endmembers": library, "out_dir": folder / "maps", "overwrite": True, "device": "cpu"}
    words = [sys.executable, "-c", SERVER, str(HERE), str(folder), str(rate), str(latency)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip()
        for name, data in (("envi.hdr", "envi.img"), ("hdf5.nc", "hdf5.nc"), ("tiff.tif", "tiff.tif")):
            size = (folder / data).stat().st_size
            scaled = options | ({} if name == "envi.hdr" else {"scale": 10_000.0})
            taken: dict[str, list[float]] = {"download": [], "run": [], "local": []}
            for turn in range(TURNS + 1):
                once = {
                    "download": seconds_of(1, download, f"{url}/{data}", size)[0],
                    "run": seconds_of(1, unmix.run, f"{url}/{name}", **scaled)[0],
                    "local": seconds_of(1, unmix.run, folder / name, **scaled)[0],
                }
                for kind, value in once.items() if turn > 0 else ():  # the first compiles
                    taken[kind].append(value)
            share = statistics.median(plain / run for plain, run in zip(taken["download"], taken["run"]))
            medians = {kind: round(statistics.median(values), 3) for kind, values in taken.items()}
            about = {"format": name, "megabytes": round(size / 1e6, 1), "mbit": rate, "latency": latency}
            say(about | {"share": round(share, 3)} | medians)
        server.stdin.close()


if __name__ == "__main__":
    given = [*sys.argv[1:], *("1000", "1000", "0.03")[len(sys.argv) - 2 :]]
    main(Path(given[0]), int(given[1]), float(given[2]), float(given[3]))
