"""What docs/reliability.md says, measured again: ``python tests/bench/soak.py WHAT [...]`` prints a line of JSON.

``kills [cpu|cuda] [50] [KILL|TERM]`` stops a run at so many random moments, lets the same command go on, and compares
every map with those of an undisturbed run. ``full [10]`` fills the file system, a small tmpfs (root may mount one),
half-way. ``inputs [10]`` lets the input vanish or shrink half-way, and come back. ``damage [20]`` cuts or scribbles on
what a stopped run left. ``pairs [10]`` starts two processes on one scene. ``workers [10]`` kills a worker of four of a
batch. ``archive [500]`` makes so many scenes, breaks one in 25 in different ways, runs them twice, and looks at memory
and open files after each scene. ``large [100000000] [FOLDER]`` runs a scene of so many pixels, and looks at memory all
the way.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import say

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.runs.files.journal import read_resume_state

# A run that records every block of a few lines: its journal is flushed all the time, and takes a second.
OFTEN = """
import signal, sys, time, unmix, unmix.runs.files.journal as journal
journal.FLUSH_BYTES, journal.FLUSH_SECONDS = 1, 0.0
due = journal.Journal.is_due
journal.Journal.is_due = lambda self, written: (time.sleep(0.004), due(self, written))[1]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    report = unmix.run(sys.argv[1], out_dir=sys.argv[2], count=4, device=sys.argv[3], memory="1M", certificate=True)
    print(report["resumed_from"])
except unmix.UnmixError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
MAPS = ("s_abundance.img", "s_rmse.img", "s_certificate.img", "s_abundance.hdr", "s_endmembers.sli")
LINES = 2000


def begun(cube, out, device="cpu"):
    """A run of that kind."""
    words = [sys.executable, "-c", OFTEN, str(cube), str(out), device]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(out, process, lines):
    """Until the journal says so many lines, or the run ends."""
    journal = out / "s_run.journal.part"
    while process.poll() is None:
        try:
            past = read_resume_state(journal)
        except ValueError:
            past = None
        if past is not None and past.lines >= lines:
            return
        time.sleep(0.002)


def ends_the_same(cube, out, whole, device="cpu"):
    """Whether the same command ends, with an undisturbed run's maps and nothing left over; and from which line it went on."""
    done = begun(cube, out, device)
    said, error = done.communicate()
    assert done.returncode == 0, error
    return maps_in(out) == whole and not list(out.glob("*.part")) and not list(out.glob("*.lock")), int(said)


def maps_in(out):
    """The bytes of the maps."""
    return [(out / name).read_bytes() for name in MAPS]


def undisturbed(folder, device="cpu"):
    """A scene, and the maps of a run that nobody stopped."""
    cube = folder / "s.hdr"
    synthesise(cube, SyntheticScene(LINES, 80, 60, 4, seed=2))
    unmix.run(cube, out_dir=folder / "whole", count=4, device=device, memory="1M", certificate=True)
    return cube, maps_in(folder / "whole")


def kills(device="cpu", count="50", number="KILL"):
    """Killed, gone on from, compared; the second run reads the lines that are left, and no others."""
    chance, between, ended, same, moments = random.Random(0), 0, 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name), device)
        for trial in range(int(count)):
            out = Path(name) / f"o{trial}"
            process = begun(cube, out, device)
            while not (out / "s_run.journal.part").exists() and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.7))
            process.send_signal(getattr(signal, f"SIG{number}"))
            process.communicate()
            try:
                past = read_resume_state(out / "s_run.journal.part")
            except ValueError:
                past = None
            within = past is not None and 0 < past.lines < LINES
            between += within
            moments.append(past.lines if past is not None else 0)
            if (out / "s_run.json").exists():  # it had ended before
                ended += 1
                same += maps_in(out) == whole
            else:
                right, first = ends_the_same(cube, out, whole, device)
                assert not within or first == past.lines
                same += right
    done = [min(moments), sorted(moments)[int(count) // 2], max(moments)]
    return {
        "signal": number,
        "times": int(count),
        "device": device,
        "between_first_and_last_entry": between,
        "ended_before": ended,
        "byte_identical": same,
        "lines_done_when_stopped": done,
    }


def full(count="10"):
    """A neighbour fills the file system half-way; there is room again, and the same command goes on."""
    chance, same, said, between = random.Random(1), 0, set(), 0
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name))
        for _ in range(int(count)):
            small = Path(name) / "small"
            small.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)], check=True)
            try:
                process = begun(cube, small / "o")
                wait_for_lines(small / "o", process, chance.randrange(1, LINES * 3 // 4))
                with open(small / "neighbour", "wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass
                error = process.communicate()[1]
                past = read_resume_state(small / "o" / "s_run.journal.part")
                between += past is not None and 0 < past.lines < LINES
                said.add((process.returncode, error.strip().rpartition(": ")[2]))
                (small / "neighbour").unlink()
                same += ends_the_same(cube, small / "o", whole)[0]
            finally:
                subprocess.run(["umount", str(small)], check=True)
                small.rmdir()
    return {
        "what": "full file system",
        "times": int(count),
        "between_first_and_last_entry": between,
        "said": sorted(said),
        "byte_identical": same,
    }


def inputs(count="10"):
    """The data file vanishes, or is cut short, half-way; it comes back as it was, and the same command goes on."""
    chance, same, said, between = random.Random(2), 0, set(), 0
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name))
        image, away = cube.with_suffix(".img"), cube.with_suffix(".away")
        stamps = image.stat()
        for trial in range(int(count)):
            out = Path(name) / f"o{trial}"
            process = begun(cube, out)
            wait_for_lines(out, process, chance.randrange(1, LINES // 2))
            if trial % 2:
                image.rename(away)
            else:
                shutil.copy(image, away)
                os.truncate(image, image.stat().st_size * 2 // 3)
            error = process.communicate()[1]
            past = read_resume_state(out / "s_run.journal.part")
            between += past is not None and 0 < past.lines < LINES
            said.add(
                (
                    process.returncode,
                    "vanished" if trial % 2 else "shrank",
                    error.strip().splitlines()[-1].partition(": ")[2][:22],
                )
            )
            away.replace(image)
            os.utime(image, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
            same += ends_the_same(cube, out, whole)[0]
    return {
        "what": "inputs",
        "times": int(count),
        "between_first_and_last_entry": between,
        "said": sorted(said),
        "byte_identical": same,
    }


def damage(count="20"):
    """What a killed run left is cut short or scribbled on; the same command notices, or it does not matter, and ends the same."""
    chance, same, anew = random.Random(3), 0, 0
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name))
        for trial in range(int(count)):
            out = Path(name) / f"o{trial}"
            process = begun(cube, out)
            wait_for_lines(out, process, chance.randrange(1, LINES * 3 // 4))
            process.kill()
            process.communicate()
            target = out / ("s_run.journal.part" if trial % 2 else "s_abundance.img.part")
            size = target.stat().st_size
            if trial % 4 < 2:
                os.truncate(target, chance.randrange(size))
            else:
                with open(target, "r+b") as file:
                    file.seek(chance.randrange(max(1, size // 2)))
                    file.write(b"\xa5\x5a")
            right, first = ends_the_same(cube, out, whole)
            same, anew = same + right, anew + (first == 0)
    return {"what": "damage", "times": int(count), "began_anew": anew, "byte_identical": same}


def pairs(count="10"):
    """Two processes on one scene, the second a moment after the first."""
    chance, same, codes = random.Random(4), 0, []
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name))
        for trial in range(int(count)):
            out = Path(name) / f"o{trial}"
            both = [begun(cube, out)]
            time.sleep(chance.uniform(0, 0.3))
            both.append(begun(cube, out))
            errors = [process.communicate()[1] for process in both]
            codes.append(sorted(process.returncode for process in both))
            assert any("holds this scene" in error for error in errors), errors
            same += maps_in(out) == whole and not list(out.glob("*.part"))
    return {
        "what": "pairs",
        "times": int(count),
        "exit_codes": codes[0],
        "always": all(code == codes[0] for code in codes),
        "byte_identical": same,
    }


class Killer:
    """Watches a batch, and kills a worker when so many lines are done."""

    def __init__(self, line, victims):
        self.line, self.victims = line, victims

    def scene(self, path):
        def report(step):
            if self.victims and step.done >= self.line:
                os.kill(self.victims.pop(), signal.SIGKILL)

        return report


def workers(count="10"):
    """A batch over four workers, one of which is killed."""
    import distributed

    chance, same, died = random.Random(5), 0, 0
    with tempfile.TemporaryDirectory() as name:
        cube, whole = undisturbed(Path(name))
        with distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=":0", memory_limit=0, silence_logs=50
        ) as local:
            for trial in range(int(count)):
                with distributed.Client(local) as client:
                    client.wait_for_workers(4)
                    before = set(client.run(os.getpid).values())
                    killer = Killer(chance.randrange(100, LINES * 3 // 4), [chance.choice(sorted(before))])
                    out = Path(name) / f"o{trial}"
                    how = {"count": 4, "device": "cpu", "memory": "1M", "certificate": True, "out_dir": out}
                    list(unmix.batch([cube], scheduler=local.scheduler_address, watch=killer, **how))
                    client.wait_for_workers(4)
                    died += len(before - set(client.run(os.getpid).values()))
                same += maps_in(out) == whole
    return {"what": "workers of four", "times": int(count), "killed": died, "byte_identical": same}


# Ways to break a scene.
BREAKS = (
    lambda path: os.truncate(path.with_suffix(".img"), 100),
    lambda path: path.write_text("ENVI\nsamples = many\n"),
    lambda path: path.with_suffix(".img").unlink(),
    lambda path: path.write_text(path.read_text().replace("interleave = bi", "interleave = bo")),
    lambda path: path.write_bytes(b"\x00\xff" * 400),
)


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def archive(count="500"):
    """Many scenes in one process, as `unmix run --list --skip-existing` does it."""
    memory, files, count = [], [], int(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenes = [folder / f"s{i:04}.hdr" for i in range(count)]
        for i, path in enumerate(scenes):
            synthesise(path, SyntheticScene(20, 20, 30, 3, seed=i))
        for i, path in enumerate(scenes[12::25]):
            BREAKS[i % 5](path)
        errors, began = [], time.perf_counter()
        for path in scenes:
            try:
                unmix.run(path, count=3, out_dir=folder / "o", device="cpu", skip_existing=True)
            except unmix.UnmixError as error:
                errors.append(str(error))
            memory.append(resident())
            files.append(len(os.listdir("/proc/self/fd")))
        seconds = time.perf_counter() - began
        stamps = {path: path.stat().st_mtime_ns for path in (folder / "o").glob("*_run.json")}
        words = [sys.executable, "-m", "unmix_cli.main", "run", "-n", "3", "-o", str(folder / "o"), "--device", "cpu"]
        words += ["--skip-existing", "--list", "-"]
        again = subprocess.run(words, input="\0".join(map(str, scenes)), capture_output=True, text=True)
        untouched = stamps == {path: path.stat().st_mtime_ns for path in (folder / "o").glob("*_run.json")}
    start = min(50, count // 10)
    return {
        "scenes": count,
        "done": len(stamps),
        "named": len(errors),
        "seconds": round(seconds, 1),
        "resident_MiB": [round(memory[start] / 2**20, 1), round(memory[-1] / 2**20, 1)],
        "grown": round(memory[-1] / memory[start] - 1, 4),
        "open_files": [files[start], files[-1]],
        "second_run": {
            "exit": again.returncode,
            "said": again.stderr.splitlines()[-1],
            "touched_nothing_that_was_done": untouched,
        },
    }


def large(pixels="100000000", folder=None, device="cpu", bands="50"):
    """A scene of so many pixels: a synthetic slab of 1000 lines, again and again. Extraction and all."""
    lines, samples, memory = int(pixels) // 1000, 1000, []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        cube = Path(name) / "s.hdr"
        synthesise(cube, SyntheticScene(1000, samples, int(bands), 4, seed=1))
        slab = cube.with_suffix(".img").read_bytes()
        with open(cube.with_suffix(".img"), "wb") as file:
            for first in range(0, lines, 1000):
                file.write(slab[: min(1000, lines - first) * samples * int(bands) * 2])
        cube.write_text(cube.read_text().replace("lines = 1000", f"lines = {lines}"))
        del slab
        report = unmix.run(
            cube,
            count=4,
            device=device,
            out_dir=Path(name) / "o",
            memory="256M",
            progress=lambda step: memory.append((step.done, resident())),
        )
    after = [size for line, size in memory if line >= lines // 20]
    return {
        "pixels": lines * samples,
        "bands": int(bands),
        "bytes": lines * samples * int(bands) * 2,
        "device": report["device"],
        "certified": report["certified"],
        "seconds": report["seconds"]["total"],
        "extracting": report["seconds"]["extracting"],
        "resident_MiB_after_a_twentieth_most_and_last": [
            round(size / 2**20, 1) for size in (after[0], max(after), after[-1])
        ],
        "grown": round(max(after) / after[0] - 1, 4),
    }


if __name__ == "__main__":
    made = {call.__name__: call for call in (kills, full, inputs, damage, pairs, workers, archive, large)}
    if not sys.argv[1:] or sys.argv[1] not in made:
        sys.exit(__doc__)
    say(made[sys.argv[1]](*sys.argv[2:]))
