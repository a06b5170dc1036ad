"""What a host's memory, page cache and Python threads can move: ``python tests/bench/host.py FOLDER [GIGABYTES]``.

Two GPUs are no faster than one where the host feeds them as fast as it can; this says what that is, and where bytes
wait. A file is written to FOLDER (in memory: /dev/shm; or on a disk, whose pages are then in the page cache) and moved
in each way below, by 1 to 32 threads; prints a line of JSON for each: GB/s, the best of three. ``read`` is what unmix
does with a scene: pieces of 16 MiB by position into buffers that are used again; ``copy`` the same bytes from memory to
memory, without the system; ``map`` from the pages of the file itself, mapped; ``write`` what it does with maps: into a
new file, and ``rewrite`` into one whose pages are there already; ``place`` into the pages of a new file, mapped (a
quarter of the bytes). With CUDA the buffers are pinned, as in a run, and ``send`` is a copy of these to the GPU.
"""

import json
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PIECE, TURNS = 16 * 2**20, 3


def buffers_of(count: int) -> tuple[list[np.ndarray], bool]:
    """Buffers of a piece each, pinned where there is a GPU."""
    try:
        from numba import cuda

        return [cuda.pinned_array(PIECE, np.uint8) for _ in range(count)], True
    except Exception:
        return [np.ones(PIECE, np.uint8) for _ in range(count)], False


def fastest(move, pieces: int, threads: int) -> float:
    """GB/s of moving all pieces; ``move(piece, thread)`` moves one."""
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(TURNS):
            began = time.perf_counter()
            list(
                pool.map(
                    lambda thread: [move(piece, thread) for piece in range(thread, pieces, threads)], range(threads)
                )
            )
            best = max(best, pieces * PIECE / (time.perf_counter() - began) / 1e9)
    return round(best, 2)


def placed(new: int, source: np.ndarray, threads: int) -> float:
    """GB/s of copying into the pages of a new file, which is mapped."""
    best = 0.0
    for _ in range(TURNS):
        os.ftruncate(new, 0)
        began = time.perf_counter()
        os.ftruncate(new, source.nbytes)
        with mmap.mmap(new, 0) as area:
            target = np.frombuffer(area, np.uint8).reshape(source.shape)

            def copy(first: int, target: np.ndarray = target) -> None:
                for n in range(first, len(source), threads):
                    np.copyto(target[n], source[n])

            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(copy, range(threads)))
            del copy, target
        best = max(best, source.nbytes / (time.perf_counter() - began) / 1e9)
    return round(best, 2)


def say(**line) -> None:
    print(json.dumps(line), flush=True)


def main(folder: Path, gigabytes: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pieces, path = int(gigabytes * 1e9) // PIECE, folder / "moved"
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(pieces):
            file.write(rng.integers(0, 256, PIECE, np.uint8).data)
    nodes = sorted(each.name for each in Path("/sys/devices/system/node").glob("node[0-9]*"))
    buffers, pinned = buffers_of(64)
    how = {"cores": len(os.sched_getaffinity(0))}
    say(numa_nodes=len(nodes), gigabytes=round(pieces * PIECE / 1e9, 2), pinned=pinned, **how)
    source = rng.integers(0, 256, (pieces, PIECE), np.uint8)
    descriptor = os.open(path, os.O_RDONLY)
    mapped = np.frombuffer(
        mmap.mmap(descriptor, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE), np.uint8
    )
    new = os.open(folder / "new", os.O_RDWR | os.O_CREAT)

    def anew(piece: int, thread: int) -> None:
        if piece == thread == 0:
            os.ftruncate(new, 0)
        os.pwrite(new, source[piece], piece * PIECE)

    ways = {
        "read": lambda piece, thread: os.preadv(descriptor, [buffers[thread]], piece * PIECE),
        "copy": lambda piece, thread: np.copyto(buffers[thread], source[piece]),
        "map": lambda piece, thread: np.copyto(buffers[thread], mapped[piece * PIECE : (piece + 1) * PIECE]),
        "write": anew,
        "rewrite": lambda piece, thread: os.pwrite(new, source[piece], piece * PIECE),
    }
    for what, move in ways.items():
        rates = {threads: fastest(move, pieces, threads) for threads in (1, 2, 4, 8, 16, 32)}
        say(what=what, gigabytes_a_second=rates)
    rates = {threads: placed(new, source[: len(source) // 4], threads) for threads in (1, 4, 16)}
    say(what="place", gigabytes_a_second=rates)
    for node in nodes if len(nodes) > 1 else ():
        cores = {
            int(n)
            for part in (Path("/sys/devices/system/node") / node / "cpulist").read_text().strip().split(",")
            for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        }
        own = cores & os.sched_getaffinity(0)
        if own:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, own)
            say(what="read", on=node, cores=len(own), gigabytes_a_second={8: fastest(ways["read"], pieces, 8)})
            os.sched_setaffinity(0, before)
    if pinned:
        from numba import cuda

        for device in range(len(cuda.gpus)):
            with cuda.gpus[device]:
                there, stream = [cuda.device_array(PIECE, np.uint8) for _ in range(8)], cuda.stream()
                for k in range(8):
                    there[k].copy_to_device(buffers[k], stream=stream)
                stream.synchronize()
                began = time.perf_counter()
                for k in range(pieces):
                    there[k % 8].copy_to_device(buffers[k % 64], stream=stream)
                stream.synchronize()
                gigabytes_a_second = round(pieces * PIECE / (time.perf_counter() - began) / 1e9, 2)
                say(what="send", gpu=device, gigabytes_a_second=gigabytes_a_second)
    (folder / "new").unlink()
    path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 4.0)
