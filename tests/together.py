"""Random pairs of commands on the same outputs, killed at random moments: `python tests/together.py [100] [SEED]`.

Two commands write to one folder at once, the second a moment after the first, with or without --overwrite; either may
be killed (SIGKILL), and a file of somebody else's lies under a final name before, or appears meanwhile. After each pair
every file under a final name must be one that one of the commands writes when it is alone, byte for byte, every header
must be of the same command as the data beside it, and what is somebody else's must be as it was.
`tests/runs/test_publish.py` runs some pairs.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from unmix_cli.main import cli

from unmix.commands.synth import SyntheticScene, synthesise

VCA = "--extract vca"  # which takes a tenth of the time of the default
# The commands, each in two kinds that write the same names; {i} is the folder of the inputs.
COMMANDS = {
    "run": ("run {i}/s.hdr {v} -n 3 --device cpu -o {o}", "run {i}/s.hdr {v} -n 4 --device cpu -o {o}"),
    "run -f": (
        "run {i}/s.hdr {v} -n 3 --device cpu -f geotiff -o {o}",
        "run {i}/s.hdr {v} -n 3 --device cpu -f netcdf -o {o}",
    ),
    "mesma": (
        "mesma {i}/s.hdr -e {i}/c.csv --device cpu -o {o}",
        "mesma {i}/s.hdr -e {i}/c.csv --levels 2 --device cpu -o {o}",
    ),
    "nmf": ("nmf {i}/s.hdr -n 3 --steps 2 --device cpu -o {o}", "nmf {i}/s.hdr -n 3 --steps 4 --device cpu -o {o}"),
    "endmembers": ("endmembers {i}/s.hdr {v} -n 3 -o {o}", "endmembers {i}/s.hdr {v} -n 4 -o {o}"),
    "match": ("match {i}/s.hdr -e {i}/c.csv -o {o}", "match {i}/s.hdr -e {i}/c.csv --distance sid -o {o}"),
    "mnf": ("mnf {i}/s.hdr -n 3 -o {o}", "mnf {i}/s.hdr -n 5 -o {o}"),
    "ppi": ("ppi {i}/s.hdr --skewers 300 -o {o}", "ppi {i}/s.hdr --skewers 300 --seed 1 -o {o}"),
    "synth": (
        "synth {o}/t.hdr --lines 30 --samples 30 --bands 40 -n 3",
        "synth {o}/t.hdr --lines 20 --samples 20 --bands 40 -n 3",
    ),
    "export": ("export {i}/run/s -f cog -o {o}", "export {i}/run/other/s -f cog -o {o}"),
    "export --split": (
        "export {i}/run/s -f envi --split --qml -o {o}",
        "export {i}/run/other/s -f envi --split --qml -o {o}",
    ),
    "bands": ("bands {i}/s.hdr -m 3 -o {o}", "bands {i}/s.hdr -m 5 -o {o}"),
    "solve": (
        "solve {i}/a.npy {i}/b.npy -o {o}/x.npy --device cpu",
        "solve {i}/a.npy {i}/c.npy -o {o}/x.npy --device cpu",
    ),
    "build": (
        "library build {i}/s.hdr {o}/l.sli --pixels {i}/p.csv",
        "library build {i}/s.hdr {o}/l.sli --pixels {i}/q.csv",
    ),
    "convert": ("library convert {i}/c.csv {o}/l.sli", "library convert {i}/s_truth_endmembers.csv {o}/l.sli"),
    "prune": ("library prune {i}/c.csv {o}/l.csv --rule ear -n 1", "library prune {i}/c.csv {o}/l.csv --rule ear -n 2"),
    "compare": ("compare {i}/run/s {i}/run/other/s -o {o}/p.html", "compare {i}/run/other/s {i}/run/s -o {o}/p.html"),
    "report": ("report {i}/run/s -o {o}/p.html", "report {i}/run/other/s -o {o}/p.html"),
    "stac": ("stac {o}/s --time 2024-08-01", "stac {o}/s --time 2023-08-01"),
}
# Of these some bytes depend on the folder and the time; they have to be whole.
VARYING = ("_run.json", "_stac.json", "_bands.json")
PAIRS = {".hdr": (".img", ".sli")}
MINE = b"worth more than any map\n" * 3
EVER = 120.0  # seconds that a command may take


def inputs(folder: Path) -> Path:
    """Make all that the commands read."""
    folder.mkdir()
    synthesise(folder / "s.hdr", SyntheticScene(60, 40, 30, 4, seed=1))
    text = (folder / "s.hdr").read_text()
    placed = "map info = {UTM, 1, 1, 300000, 4600000, 30, 30, 11, North, WGS-84, units=Meters}\n"
    (folder / "s.hdr").write_text(text + placed)
    rows = (folder / "s_truth_endmembers.csv").read_text().splitlines()
    kinds = ("class", "a", "a", "b", "b")
    with_kinds = [
        ",".join([name, kind, rest]) for kind, (name, rest) in zip(kinds, (row.split(",", 1) for row in rows))
    ]
    (folder / "c.csv").write_text("\n".join(with_kinds) + "\n")
    (folder / "p.csv").write_text("line,sample,class\n0,0,a\n3,4,b\n")
    (folder / "q.csv").write_text("line,sample,class\n5,5,a\n7,4,b\n9,9,c\n")
    rng = np.random.default_rng(3)
    for name, shape in (("a", (9, 5)), ("b", (40, 9)), ("c", (40, 9))):
        np.save(folder / f"{name}.npy", rng.random(shape))
    for place, count in (("run", 3), ("run/other", 4)):
        assert done(f"run {folder}/s.hdr {VCA} -n {count} --device cpu -o {folder / place}", folder / "said") == 0
    return folder


def begun(words: str, said: Path) -> int:
    """Begin a command in a child, and return its process; what it says goes to a file."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        target = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(target, 1)
        os.dup2(target, 2)
        try:
            cli(words.split(), standalone_mode=False)
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            code = getattr(error, "exit_code", 71)
            code = code if isinstance(code, int) else 72
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(child: int, until: float) -> int | None:
    """Wait for a child, and return its exit code, negative for a signal; None where it has not ended by then."""
    while time.monotonic() < until:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def done(words: str, said: Path) -> int:
    """Run a command to its end, and return its exit code; one that hangs is killed and an error."""
    child = begun(words, said)
    code = ended(child, time.monotonic() + EVER)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"hangs: {words}")
    return code


def files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder; there are no folders in it but those of commands at work."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}


class Alone:
    """What each command writes when it is alone, and how long it takes."""

    def __init__(self, here: Path, names=tuple(COMMANDS)) -> None:
        self.here, self.inputs, self.names = here, inputs(here / "in"), list(names)
        self.kinds: dict[tuple[str, int], dict[str, bytes]] = {}
        self.seconds: dict[str, float] = {}
        for name in self.names:
            for kind in (0, 1):
                out = here / "alone"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                if name == "stac":
                    assert done(self.words("run", 0, out), here / "said") == 0
                before, began = files(out), time.monotonic()
                assert done(self.words(name, kind, out), here / "said") == 0, (name, (here / "said").read_text())
                self.seconds[name] = time.monotonic() - began  # of the second kind, for which nothing is compiled
                self.kinds[name, kind] = {key: value for key, value in files(out).items() if key not in before}

    def words(self, name: str, kind: int, out: Path) -> str:
        """Return the words of a command."""
        return COMMANDS[name][kind].format(i=self.inputs, o=out, v=VCA)

    def faults(self, out: Path, mine: set[str]) -> list[str]:
        """Return what is wrong in a folder: ``mine`` are the names of files that are somebody else's."""
        found, wrong = files(out), []
        for name in mine:
            if found.pop(name, None) != MINE:
                wrong.append(f"{name}: was somebody else's")
        final = {name: content for name, content in found.items() if not name.endswith((".part", ".lock", ".turn"))}
        for name, content in final.items():
            if name.endswith(VARYING):
                try:
                    json.loads(content)
                except ValueError:
                    wrong.append(f"{name}: is not whole")
                continue
            writers = {key for key, kind in self.kinds.items() if kind.get(name) == content}
            if not writers:
                wrong.append(f"{name}: {len(content)} bytes that no command writes")
            for ending in PAIRS.get(Path(name).suffix, ()):
                beside = Path(name).stem + ending
                if beside in final and not any(self.kinds[key].get(beside) == final[beside] for key in writers):
                    wrong.append(f"{name}: is not of the command that wrote {beside}")
        return wrong


def trial(alone: Alone, chance: random.Random, out: Path, mine: set[str]) -> tuple[list[str], list[int | None]]:
    """Run a pair of commands in a folder; return what is wrong afterwards, and the exit codes."""
    first = chance.choice(alone.names)
    second = first if chance.random() < 0.6 else chance.choice(alone.names)
    apart = chance.choice((0.02, 0.7 * alone.seconds[first]))
    begin, kinds = [0.0, chance.uniform(0, apart)], [0, 1]
    chance.shuffle(kinds)
    words = [
        alone.words(name, kind, out) + " --overwrite" * (chance.random() < 0.8)
        for name, kind in zip((first, second), kinds)
    ]
    kills = [chance.uniform(0, 1.6 * alone.seconds[first]) if chance.random() < 0.5 else None for _ in words]
    appears = chance.uniform(0, 1.5 * alone.seconds[first]) if chance.random() < 0.3 else None
    began, children = time.monotonic(), []
    events = [(at, "begin", k) for k, at in enumerate(begin)]
    events += [(begin[k] + at, "kill", k) for k, at in enumerate(kills) if at is not None]
    events += [] if appears is None else [(appears, "appear", 0)]
    for at, what, k in sorted(events):
        time.sleep(max(0.0, began + at - time.monotonic()))
        if what == "begin":
            children.append(begun(words[k], out.with_name(f"said{k}")))
        elif what == "kill":
            os.kill(children[k], signal.SIGKILL)  # one that has ended is not reaped yet
        else:
            likely = [name for key, kind in alone.kinds.items() if key[0] in (first, second) for name in kind]
            name = chance.choice(
                [name for name in likely if name != "p.html"] or ["x"]
            )  # that page the user gives away
            try:
                with open(out / name, "xb") as file:
                    file.write(MINE)
                mine.add(name)
            except FileExistsError:
                pass
    codes = [ended(child, time.monotonic() + EVER) for child in children]
    wrong = alone.faults(out, mine)
    for k, code in enumerate(codes):
        said = out.with_name(f"said{k}").read_text(errors="replace")
        if code is None:
            os.kill(children[k], signal.SIGKILL)
            os.waitpid(children[k], 0)
        if code not in (0, 1, 2, -signal.SIGKILL) or "should not happen" in said:
            wrong.append(f"exit code {code}: {said[-300:]}")
    return [f"{one} <- {' | '.join(words)}, kills {kills}" for one in wrong], codes


def trials(count: int, seed: int, here: Path, names=tuple(COMMANDS)) -> tuple[list[str], dict[int | None, int]]:
    """Run so many pairs, two in each folder; return all that was wrong, and how often each exit code came."""
    alone, chance, wrong, tally = Alone(here, names), random.Random(seed), [], {}
    for number in range(count):
        if number % 2 == 0:
            out, mine = here / f"o{number}", set()
            out.mkdir()
        faults, codes = trial(alone, chance, out, mine)
        wrong += faults
        for code in codes:
            tally[code] = tally.get(code, 0) + 1
        if number % 2 == 1 or number == count - 1:
            assert done(f"library convert {alone.inputs}/c.csv {out}/last.csv", here / "said") == 0
            wrong += [f"{path}: is left" for path in out.glob("unmix-*.part")]
            shutil.rmtree(out)
    return wrong, tally


if __name__ == "__main__":
    count, seed = map(int, (*sys.argv[1:], *("100", "1")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as name:
        wrong, tally = trials(count, seed, Path(name))
    print(
        json.dumps({"pairs": count, "exit_codes": {str(key): n for key, n in tally.items()}, "wrong": wrong}, indent=1)
    )
    sys.exit(bool(wrong))
