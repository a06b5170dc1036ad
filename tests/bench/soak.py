"""What docs/reliability.md says, measured again: runs killed at random moments, and an archive with broken scenes.

``python tests/bench/soak.py kills [cpu|cuda] [50]`` kills a run (SIGKILL) at so many random moments, lets the same command go on,
and compares every map with those of an undisturbed run. ``python tests/bench/soak.py archive [500]`` makes so many scenes, breaks one
in 25 in different ways, runs them twice, and looks at memory and open files after each scene. Each prints a line of JSON.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import unmix
from unmix.jobs.synth import Scene, synthesise
from unmix.outputs.journal import read_past

# A run that records every block of a few lines: its journal is flushed all the time, and takes a second.
OFTEN = """
import sys, time, unmix, unmix.outputs.journal as journal
journal.FLUSH_BYTES, journal.FLUSH_SECONDS = 1, 0.0
due = journal.Journal.is_due
journal.Journal.is_due = lambda self, written: (time.sleep(0.004), due(self, written))[1]
print(unmix.run(sys.argv[1], out_dir=sys.argv[2], count=4, device=sys.argv[3], memory="1M", certificate=True)["resumed_from"])
"""
MAPS = ("s_abundance.img", "s_rmse.img", "s_certificate.img", "s_abundance.hdr", "s_endmembers.sli")


def kills(device, count):
    """Killed, gone on from, compared."""
    chance, between, ended, same, moments = random.Random(0), 0, 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesise(folder / "s.hdr", Scene(2000, 80, 60, 4, seed=2))
        unmix.run(folder / "s.hdr", out_dir=folder / "whole", count=4, device=device, memory="1M", certificate=True)
        whole = [(folder / "whole" / one).read_bytes() for one in MAPS]
        for trial in range(count):
            out = folder / f"o{trial}"
            words = [sys.executable, "-c", OFTEN, str(folder / "s.hdr"), str(out), device]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            journal = out / "s_run.journal.part"
            while not journal.exists() and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.7))
            process.kill()
            process.communicate()
            try:
                past = read_past(journal)
            except ValueError:
                past = None
            within = past is not None and 0 < past.lines < 2000
            between += within
            moments.append(past.lines if past is not None else 0)
            if (out / "s_run.json").exists():  # it had ended before
                ended += 1
            else:
                done = subprocess.run(words, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert int(done.stdout) == past.lines if within else True
            same += [(out / one).read_bytes() for one in MAPS] == whole and not list(out.glob("*.part"))
    return {"kills": count, "device": device, "between_first_and_last_entry": between, "ended_before": ended, "byte_identical": same,
            "lines_done_when_killed": [min(moments), sorted(moments)[count // 2], max(moments)]}  # fmt: skip


def broken(path, how):
    """Break a scene."""
    image = path.with_suffix(".img")
    if how == 0:
        os.truncate(image, 100)
    elif how == 1:
        path.write_text("ENVI\nsamples = many\n")
    elif how == 2:
        image.unlink()
    elif how == 3:
        path.write_text(
            path.read_text()
            .replace("interleave = bip", "interleave = bop")
            .replace("interleave = bil", "interleave = bop")
        )
    else:
        path.write_bytes(b"\x00\xff" * 400)


def archive(count):
    """Many scenes in one process, as `unmix run --list --skip-existing` does it."""
    memory, files = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenes = [folder / f"s{i:04}.hdr" for i in range(count)]
        for i, path in enumerate(scenes):
            synthesise(path, Scene(20, 20, 30, 3, seed=i))
        for i, path in enumerate(scenes[12::25]):
            broken(path, i % 5)
        errors, began = [], time.perf_counter()
        for path in scenes:
            try:
                unmix.run(path, count=3, out_dir=folder / "o", device="cpu", skip_existing=True)
            except unmix.UnmixError as error:
                errors.append(str(error))
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
            files.append(len(os.listdir("/proc/self/fd")))
        seconds = time.perf_counter() - began
        stamps = {path: path.stat().st_mtime_ns for path in (folder / "o").glob("*_run.json")}
        words = [
            sys.executable,
            "-m",
            "unmix_cli.main",
            "run",
            "-n",
            "3",
            "-o",
            str(folder / "o"),
            "--device",
            "cpu",
            "--skip-existing",
            "--list",
            "-",
        ]
        again = subprocess.run(words, input="\0".join(map(str, scenes)), capture_output=True, text=True)
        untouched = stamps == {path: path.stat().st_mtime_ns for path in (folder / "o").glob("*_run.json")}
    start = min(50, count // 10)
    return {"scenes": count, "done": len(stamps), "named": len(errors), "seconds": round(seconds, 1),
            "resident_MiB": [round(memory[start] / 2**20, 1), round(memory[-1] / 2**20, 1)],
            "grown": round(memory[-1] / memory[start] - 1, 4), "open_files": [files[start], files[-1]],
            "second_run": {"exit": again.returncode, "said": again.stderr.splitlines()[-1],
                           "touched_nothing_that_was_done": untouched}}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "kills":
        print(
            json.dumps(
                kills(sys.argv[2] if len(sys.argv) > 2 else "cpu", int(sys.argv[3]) if len(sys.argv) > 3 else 50)
            )
        )
    else:
        print(json.dumps(archive(int(sys.argv[2]) if len(sys.argv) > 2 else 500)))
