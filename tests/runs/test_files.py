"""The user's files: nothing that is read is replaced, nothing of anybody else's goes, and what changes under a run is noticed."""

import functools
import importlib
import itertools
import json
import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import cut_off, refused, write_csv, write_cube
from unmix_cli.main import cli

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.io.identity import BLOCK_BYTES, BLOCKS, SMALL, identity_of, pieces
from unmix.library import load
from unmix.runs.files import output_set
from unmix.runs.files.journal import read_resume_state
from unmix.runs.files.output_set import Outputs
from unmix.scene import ReadOptions, open_scene


@pytest.fixture
def here(tmp_path):
    """A folder with a scene `s` of 12 bands, a library of its endmembers and a mask, under names of their own."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(lines=40, samples=30, bands=12, count=3, seed=2))
    for ending in ("sli", "hdr", "csv"):
        shutil.copy(tmp_path / f"s_truth_endmembers.{ending}", tmp_path / f"lib.{ending}")
    write_cube(tmp_path / "m.hdr", np.ones((40, 30, 1), np.uint8), "bsq")
    return tmp_path


# How the runs of these tests extract their endmembers: the default would take ten times as long.
HOW = {"count": 3, "extract": "vca", "device": "cpu"}


def contents(folder):
    """Every file of a folder with its bytes; links as what they point to."""
    return {
        path.name: os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.iterdir())
        if not path.is_dir()
    }


def command(*words):
    """The exit code of a command line, and its error."""
    result = CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False)
    error = result.exception
    return getattr(error, "exit_code", 1 if error else result.return_value or 0), str(error or "")


RUN = ["run", "s.hdr", "--device", "cpu", "--overwrite"]


def test_each_scene_s_mask_is_no_output_of_another(tmp_path):
    """By its template: the first scene would replace the mask of the second, which was then unmixed with the wrong one."""
    rng = np.random.default_rng(0)
    for folder, name in (("d1", "a"), ("d2", "b")):
        (tmp_path / folder).mkdir()
        write_cube(tmp_path / folder / f"{name}.hdr", rng.random((4, 5, 6)).astype(np.float32))
        write_cube(tmp_path / folder / "a_rmse.hdr", np.ones((4, 5, 1), np.uint8))
    cubes = [tmp_path / "d1/a.hdr", tmp_path / "d2/b.hdr"]
    before = contents(tmp_path / "d2")
    for option in (("--mask",), ("--mask-out",), ("--extract-mask",), ("--uncertainty", "--noise")):
        words = ("run", *cubes, "-n", 3, *option, "{dir}/a_rmse.hdr", "-o", tmp_path / "d2", "--overwrite")
        code, said = command(*words)
        assert code == 2 and "a_rmse.hdr: has the name of an output of" in said and f"the file of {option[-1]}" in said
    assert contents(tmp_path / "d2") == before


def test_files_of_other_commands_are_no_outputs_of_theirs(tmp_path):
    """A table of classes, a library, a configuration, a map under the name of a page."""
    rng = np.random.default_rng(1)
    E = rng.random((6, 5))
    library = write_csv(tmp_path / "lib.csv", E, np.arange(400, 1000, 100))
    (tmp_path / "classes.csv").write_text("name,kind\n" + "".join(f"em {k + 1},{'ab'[k % 2]}\n" for k in range(5)))
    cube = rng.dirichlet(np.ones(5), (4, 5)) @ E.T
    write_cube(tmp_path / "s.hdr", cube.astype(np.float32))
    (tmp_path / "s_rmse.hdr").write_text('method = "nnls"\n')
    load(library).write(None, tmp_path / "x.img", tmp_path / "x.hdr")
    run = ("run", tmp_path / "s.hdr", "-e", library, "--device", "cpu")
    assert command(*run, "-o", tmp_path / "maps")[0] == 0
    os.link(tmp_path / "maps/s_run.json", tmp_path / "linked.html")
    (tmp_path / "soft.html").symlink_to(tmp_path / "maps/s_abundance.img")
    before = contents(tmp_path) | contents(tmp_path / "maps")
    classes = tmp_path / "classes.csv"
    prune = ("library", "prune", library, classes, "--rule", "ear", "--classes", f"{classes}:kind")
    page = tmp_path / "linked.html", tmp_path / "soft.html"
    for words in (
        prune,
        (*run, "--config", tmp_path / "s_rmse.hdr"),
        ("report", tmp_path / "maps/s", "-o", page[0]),
        ("report", tmp_path / "maps/s", "-o", page[1]),
        ("compare", tmp_path / "maps/s", tmp_path / "maps/s", "-o", page[1]),
    ):
        code, said = command(*words, "--overwrite")
        assert code == 2 and "would replace" in said, (words, said)
    assert contents(tmp_path) | contents(tmp_path / "maps") == before
    again = ("run", tmp_path / "s.hdr", "--config", tmp_path / "maps/s_run.json", "-o", tmp_path / "maps")
    assert command(*again, "--overwrite", "--device", "cpu")[0] == 0


def test_a_lock_without_room_leaves_nothing(tmp_path, monkeypatch):
    """And endmembers are not extracted for nothing: the folder is tried before."""

    def full():
        raise OSError(28, "No space left on device")

    write_cube(tmp_path / "s.hdr", np.random.default_rng(2).random((4, 5, 6)).astype(np.float32))
    (tmp_path / "out").mkdir()
    words = ("endmembers", tmp_path / "s.hdr", "-n", 3, "--extract", "vca", "-o", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("unmix.outputs.lock.socket.gethostname", full)
        patch.setattr("unmix.commands.extract.extracted", lambda *_: pytest.fail("was extracted"))
        code, said = command(*words)
    assert code == 1 and "cannot write here: No space left" in said and not list((tmp_path / "out").iterdir())
    assert command(*words)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("unmix.commands.extract.extracted", lambda *_: pytest.fail("was extracted"))
        code, said = command(*words)
    assert code == 1 and "exists already" in said


# What is linked to which input under the name of an output, and the command that would replace it.
TRAPS = {
    "library csv": ({"s_endmembers.csv": "lib.csv"}, [*RUN, "-e", "lib.csv"]),
    "library sli": ({"s_endmembers.sli": "lib.sli"}, [*RUN, "-e", "lib.sli"]),
    "library's header": ({"s_endmembers.hdr": "lib.hdr"}, [*RUN, "-e", "lib.sli"]),
    "mask": ({"s_abundance.img": "m.img"}, [*RUN, "-n", "3", "--mask", "m.hdr"]),
    "mask's header": ({"s_rmse.hdr": "m.hdr"}, [*RUN, "-n", "3", "--mask", "m.img"]),
    "cube": ({"s_abundance.img": "s.img"}, [*RUN, "-n", "3"]),
    "cube's header": ({"s_abundance.hdr": "s.hdr"}, [*RUN, "-n", "3"]),
    "work file": ({"s_rmse.img.part": "s.img"}, [*RUN, "-n", "3", "--format", "hdf5"]),
    "journal": ({"s_run.journal.part": "lib.csv"}, [*RUN, "-e", "lib.csv"]),
    "dry run": ({"s_rmse.img": "m.img"}, [*RUN, "-n", "3", "--mask", "m.hdr", "--dry-run"]),
    "nmf": (
        {"s_rmse.img": "m.img"},
        ["nmf", "s.hdr", "-n", "3", "--steps", "2", "--mask", "m.hdr", "--overwrite", "--device", "cpu"],
    ),
    "nmf's start": (
        {"s_endmembers.csv": "lib.csv"},
        ["nmf", "s.hdr", "-e", "lib.csv", "--overwrite", "--device", "cpu"],
    ),
    "endmembers": ({"s_endmembers.csv": "m.img"}, ["endmembers", "s.hdr", "-n", "3", "--mask", "m.hdr", "--overwrite"]),
    "bands": ({"s_bands.csv": "s.hdr"}, ["bands", "s.hdr", "-m", "3", "--overwrite"]),
    "bands' mask": ({"s_bands.csv": "m.img"}, ["bands", "s.hdr", "-m", "3", "--mask", "m.hdr", "--overwrite"]),
    "table of bands": ({"numbers_bands.csv": "numbers.csv"}, ["bands", "numbers.csv", "-m", "2", "--overwrite"]),
    "convert": ({"o.csv": "lib.csv"}, ["library", "convert", "lib.csv", "o.csv", "--overwrite"]),
    "convert's header": ({"o.hdr": "lib.hdr"}, ["library", "convert", "lib.sli", "o.sli", "--overwrite"]),
    "resample": ({"o.hdr": "s.hdr"}, ["library", "resample", "lib.csv", "s.hdr", "o.sli", "--overwrite"]),
    "solve": ({"x_kappa.npy": "b.npy"}, ["solve", "a.npy", "b.npy", "-o", "x.npy", "--overwrite"]),
    "log": ({"log.txt": "dated.csv"}, ["bands", "s.hdr", "--target", "dated.csv", "--log-file", "log.txt"]),
}


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard", "soft"])
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_read_is_not_replaced(here, monkeypatch, trap, link):
    """Whatever the input is called there, and with --overwrite, too; nothing is opened for writing before."""
    monkeypatch.chdir(here)
    np.save("a.npy", np.eye(3))
    np.save("b.npy", np.ones((2, 3)))
    write_csv(here / "numbers.csv", np.random.default_rng(0).random((6, 8)))
    (here / "dated.csv").write_text("2021-05-01 line,sample,value\n0,0,1\n")
    links, words = TRAPS[trap]
    for name, target in links.items():
        link(here / target, here / name)
    before = contents(here)
    code, said = command(*words)
    assert (
        code == 2 and next(iter(links)) in said and ("use `out_dir`, or another name" in said or "--log-file" in said)
    ), said
    assert contents(here) == before


def test_outputs_that_the_replaced_run_lists_count_too(here):
    """The new run would not write them, but take them away."""
    unmix.run(here / "s.hdr", **HOW, residual=True)
    code, said = command(
        "run", here / "s.hdr", "-n", 3, "--mask", f"{here}/s_residual.img", "--overwrite", "--device", "cpu"
    )
    assert code == 2 and "s_residual.img" in said and (here / "s_residual.img").exists()


@pytest.mark.parametrize(
    "words", [["synth", "c.hdr", "--overwrite"], ["library", "convert", "lib.csv", "c.sli", "--overwrite"]]
)
def test_the_header_of_other_data_is_not_replaced(here, monkeypatch, words):
    monkeypatch.chdir(here)
    write_cube(here / "c.hdr", np.ones((2, 2, 2), np.int16)).with_suffix(".img").rename(here / "c.dat")
    before = contents(here)
    code, said = command(*words)
    assert code == 2 and "c.hdr: is the header of c.dat" in said and contents(here) == before


def test_overwrite_leaves_what_unmix_never_wrote(here):
    """Files that only have the names that some run might give; what the replaced run listed goes, and only that."""
    unmix.run(here / "s.hdr", **HOW, certificate=True)
    mine = dict.fromkeys(("s_residual.img", "s_residual.hdr", "s_index.tif", "s_residual.img.part"), b"mine")
    for name, content in mine.items():
        (here / name).write_bytes(content)
    unmix.run(here / "s.hdr", **HOW, overwrite=True)
    found = contents(here)
    assert {name: found[name] for name in mine} == mine and "s_certificate.img" not in found
    with pytest.raises(unmix.OutputError, match=r"s_residual\.(img|hdr): exists already|s_abundance"):
        unmix.run(here / "s.hdr", **HOW, residual=True)
    assert contents(here) == found
    with pytest.raises(
        unmix.OutputError, match=r"s_residual\.img: exists already, and unmix did not write it; use `out_dir`"
    ):
        unmix.run(here / "s.hdr", **HOW, residual=True, overwrite=True)
    assert contents(here) == found


def test_replaced_outputs_go_after_a_crash_between_names_too(here, monkeypatch):
    """The old record is gone by then; the journal still knows what it listed."""
    unmix.run(here / "s.hdr", **HOW, certificate=True)
    (here / "s_residual.img").write_bytes(b"mine")
    discard = output_set.discard

    def dies(path):
        if path.name == "s_certificate.img":
            raise KeyboardInterrupt
        discard(path)

    monkeypatch.setattr(output_set, "discard", dies)
    refused(KeyboardInterrupt, None, unmix.run, here / "s.hdr", **HOW, overwrite=True)
    monkeypatch.setattr(output_set, "discard", discard)
    assert (here / "s_certificate.img").exists() and not (here / "s_run.json").exists()
    unmix.run(here / "s.hdr", **HOW, overwrite=True)
    assert not (here / "s_certificate.img").exists() and (here / "s_residual.img").read_bytes() == b"mine"
    assert verify(here / "s").faults == [] and not list(here.glob("*.part"))


def test_a_file_that_appears_meanwhile_is_not_replaced(here):
    def appear(step):
        (here / "s_rmse.img").write_bytes(b"mine")

    refused(unmix.OutputError, r"s_rmse\.img: exists by now", unmix.run, here / "s.hdr", **HOW, progress=appear)
    assert (here / "s_rmse.img").read_bytes() == b"mine" and not (here / "s_run.json").exists()
    refused(unmix.OutputError, r"s_rmse\.img: exists already", unmix.run, here / "s.hdr", **HOW)
    (here / "s_rmse.img").unlink()
    assert unmix.run(here / "s.hdr", **HOW)["resumed_from"] == 40


def identity(path, **reading):
    """Of a scene as it is opened now."""
    return identity_of(open_scene(path, ReadOptions(**reading))[0])


def test_identity_is_of_what_is_opened(here):
    """The same by whichever file it is named and wherever it lies; another for any byte of data, header, mask or band."""
    first = identity(here / "s.hdr", mask=f"{here}/m.hdr")
    assert first == identity(here / "s.img", mask=f"{here}/m.img:1") and first["mask"]["band"] == 1
    os.utime(here / "s.img", (1, 1))
    shutil.copytree(here, here / "copy", ignore=lambda *_: ["copy"])
    assert identity(here / "copy/s.hdr", mask=f"{here}/copy/m.hdr") == first and "modified" not in json.dumps(first)
    seen = [first, identity(here / "s.hdr")]
    for name, change in {
        "m.img": lambda raw: raw[:-1] + b"\0",
        "m.hdr": lambda raw: raw + b"data ignore value = 7\n",
        "s.img": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        "s.hdr": lambda raw: raw.replace(b"10000", b"5000"),
    }.items():
        path = here / name
        before = path.read_bytes()
        path.write_bytes(change(before))
        seen.append(identity(here / "s.hdr", mask=f"{here}/m.hdr"))
        path.write_bytes(before)
    write_cube(here / "two.hdr", np.ones((40, 30, 2), np.uint8), "bsq")
    seen += [identity(here / "s.hdr", mask=f"{here}/two.hdr:{band}") for band in (1, 2)]
    assert len({json.dumps(one) for one in seen}) == len(seen)


def test_a_large_file_is_known_by_blocks_over_all_of_it(tmp_path):
    size = SMALL + 12345
    places = pieces(size)
    assert places[0] == (0, BLOCK_BYTES) and places[-1] == (size - BLOCK_BYTES, BLOCK_BYTES)
    assert len(set(places)) == BLOCKS
    assert max(b - a for (a, _), (b, _) in itertools.pairwise(places)) <= size // (BLOCKS - 1) + 1
    assert pieces(SMALL) == [(0, SMALL)] and pieces(0) == [(0, 0)]
    path = write_cube(tmp_path / "s.hdr", np.zeros((1000, 200, 20), np.uint8))
    before = identity_of(open_cube(path))
    with open(path.with_suffix(".img"), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    assert identity_of(open_cube(path)) != before


def test_a_correction_beside_the_blocks_is_named_by_its_time(tmp_path, caplog):
    random = np.random.default_rng(0)
    E = random.uniform(0.1, 0.9, (20, 3))
    path = write_cube(tmp_path / "s.hdr", (random.dirichlet(np.ones(3), (200, 100)) @ E.T).astype(np.float32))
    how = {"endmembers": write_csv(tmp_path / "e.csv", E), "method": "fcls", "device": "cpu", "out_dir": tmp_path / "o"}
    unmix.run(path, **how)
    os.utime(path.with_suffix(".img"), (2e9, 2e9))
    assert unmix.run(path, skip_existing=True, **how)["skipped"]
    assert "was written after its run began" in caplog.text


def masked(here):
    """How a run with a library and a mask is done, in a few blocks."""
    words = {"endmembers": here / "lib.csv", "mask": str(here / "m.hdr"), "device": "cpu", "memory": "60K"}
    return words | {"out_dir": here / "o"}


CHANGES = {
    "input mask data digest": ("m.img", lambda raw: bytes(len(raw) // 2) + raw[len(raw) // 2 :]),
    "input mask header": ("m.hdr", lambda raw: raw + b"data ignore value = 7\n"),
    "asked endmembers": ("lib.csv", lambda raw: raw.replace(b"0.", b"0.1")),
    "input header": ("s.hdr", lambda raw: raw.replace(b"10000", b"9000")),
    "input data digest": ("s.img", lambda raw: raw[: len(raw) // 2] + raw[: len(raw) - len(raw) // 2]),
}


@pytest.mark.parametrize(("what", "spelled"), [*((what, "m.hdr") for what in CHANGES), ("input mask header", "m.img")])
def test_an_input_that_changed_between_cut_off_and_resume(here, what, spelled):
    """Refused with one line that names it; nothing is mixed, and the same input as before goes on."""
    settings = masked(here) | {"mask": str(here / spelled)}
    unmix.run(here / "s.hdr", **settings | {"out_dir": here / "whole"})
    cut_off(here / "s.hdr", 10, **settings)
    name, change = CHANGES[what]
    before = (here / name).read_bytes()
    (here / name).write_bytes(change(before))
    kept = contents(here / "o")
    error = refused(unmix.OutputError, f"an unfinished run differs in .*{what}", unmix.run, here / "s.hdr", **settings)
    assert error.value.exit_code == 1 and contents(here / "o") == kept
    (here / name).write_bytes(before)
    settings["mask"] = str(here / ("m.img" if spelled == "m.hdr" else "m.hdr"))  # the same mask
    assert unmix.run(here / "s.hdr", **settings)["resumed_from"] >= 10
    for path in (here / "whole").glob("*.img"):
        assert path.read_bytes() == (here / "o" / path.name).read_bytes()


@pytest.mark.parametrize("what", ["input mask data digest", "input mask header", "input header", "input data digest"])
def test_a_finished_run_of_another_input_is_not_done(here, what):
    settings = masked(here) | {"out_dir": here, "skip_existing": True}
    unmix.run(here / "s.hdr", **settings)
    assert unmix.run(here / "s.hdr", **settings)["skipped"]
    refused(unmix.OutputError, "input mask", unmix.run, here / "s.hdr", **settings | {"mask": None})
    name, change = CHANGES[what]
    (here / name).write_bytes(change((here / name).read_bytes()))
    refused(unmix.OutputError, f"is of another run: .*{what}", unmix.run, here / "s.hdr", **settings)
    faults = verify(here / "s").faults
    assert any("is not what the run read" in fault and what in fault for fault in faults)


def test_verify_takes_a_copy_for_the_cube(here):
    unmix.run(here / "s.hdr", **HOW, out_dir=here / "o")
    (here / "else").mkdir()
    for name in ("s.img", "s.hdr"):
        shutil.copy(here / name, here / "else" / name)
    assert verify(here / "o/s", cube=here / "else/s.hdr").faults == []
    header = here / "else/s.hdr"
    header.write_text(header.read_text().replace("description", "sensor type"))  # no pixel shows it
    assert any("input header" in fault for fault in verify(here / "o/s", cube=header).faults)
    assert command("verify", here / "o/s", "--cube", header)[0] == 1
    unmix.nmf_scene(here / "s.hdr", count=3, steps=2, device="cpu", out_dir=here / "n")
    assert any("input header" in fault for fault in verify(here / "n/s", cube=header).faults)


def test_the_record_of_an_older_unmix_is_no_riddle(here, caplog):
    unmix.run(here / "s.hdr", **HOW)
    record = here / "s_run.json"
    report = json.loads(record.read_text())
    report["identity"] = {"header": "0", "data": {"bytes": 1, "modified": 2, "begins": "3"}}
    del report["digest"]
    record.write_text(json.dumps(report))
    refused(unmix.OutputError, "older unmix", unmix.run, here / "s.hdr", **HOW, skip_existing=True)
    assert verify(here / "s").faults == [] and "older unmix" in caplog.text
    del report["identity"]
    record.write_text(json.dumps(report))
    assert unmix.run(here / "s.hdr", **HOW, skip_existing=True)["skipped"]


def rewrite(path):
    """Another scene in the same file, as a processor does that runs at the same time."""
    raw = bytes(byte ^ 1 for byte in path.read_bytes())
    with open(path, "r+b") as file:  # never shorter: who reads just then would say so instead
        file.write(raw)


def replace(path):
    """A new file in its place."""
    shutil.copy(path, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def restamp(path):
    """Other values, and the old time set again."""
    stamps = path.stat()
    rewrite(path)
    os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))


@pytest.mark.parametrize("change", [rewrite, replace, restamp])
@pytest.mark.parametrize("name", ["s.img", "s.hdr", "m.img", "m.hdr"])
def test_an_input_that_changes_while_it_is_read(here, name, change):
    """One line, nothing under a final name, and nothing for a later run to mix with."""
    done = []

    def half_way(step):
        if step.done >= 20 and not done:
            done.append(step.done)
            change(here / name)

    settings = masked(here)
    with pytest.raises(unmix.CubeError, match=rf"{name}: changed while it was read"):
        unmix.run(here / "s.hdr", method="fcls", progress=half_way, **settings)
    left = {path.name for path in here.glob("o/*")}
    if name.endswith(".hdr") or change is replace:  # what was opened is still known by the same things
        assert left == set()
        return
    assert left == {"s_run.journal.part", "s_abundance.img.part", "s_rmse.img.part"}
    assert read_resume_state(here / "o/s_run.journal.part").lines == done[0]  # all of them read before
    with pytest.raises(unmix.OutputError, match="an unfinished run differs in input"):
        unmix.run(here / "s.hdr", method="fcls", **settings)


def test_a_change_that_the_identity_does_not_show_leaves_nothing(tmp_path):
    """Between the blocks that a large file is known by: no later run could tell, so there is nothing to go on from."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(400, 60, 40, 3, seed=1))
    image = tmp_path / "s.img"

    def half_way(step):
        if 200 <= step.done < 300:
            with open(image, "r+b") as file:
                file.seek(pieces(image.stat().st_size)[40][0] + BLOCK_BYTES + 50)
                file.write(bytes(200))

    before = identity_of(open_cube(image))
    with pytest.raises(unmix.CubeError, match="changed while it was read"):
        unmix.run(tmp_path / "s.hdr", **HOW, memory="200K", out_dir=tmp_path / "o", progress=half_way)
    assert identity_of(open_cube(image)) == before and list(tmp_path.glob("o/*")) == []


def test_other_commands_look_again_too(here, monkeypatch):
    import unmix.endmembers

    def touched(function, /, *arguments, **more):
        rewrite(here / "s.img")
        return function(*arguments, **more)

    for place in ("unmix.features.nmf.scene", "unmix.commands.extract"):
        change = functools.partial(touched, unmix.endmembers.extract_from)
        monkeypatch.setattr(importlib.import_module(place), "extract_from", change)
    before = set(contents(here))
    for words in (
        ["nmf", here / "s.hdr", "-n", 3, "--steps", 2, "--device", "cpu"],
        ["endmembers", here / "s.hdr", "-n", 3, "--extract", "vca"],
    ):
        code, said = command(*words)
        assert code == 3 and "changed while it was read" in said and set(contents(here)) == before


FOREIGN = (
    {"finishing": ["../s_rmse.img", "s_run.json"]},
    {"finishing": ["s_run.json"], "replaced": ["../x"]},
    {"finishing": ["s.img", "s_run.json"]},
    {"finishing": []},
    {"finishing": ["s_run.json", "s_rmse.img"]},
    {"about": {"rasters": {"../abundance": [1, 1, 1]}}},
)


@pytest.mark.parametrize("entry", FOREIGN)
def test_a_journal_that_names_other_files_is_damaged(here, entry, caplog):
    """Names are plain: nothing outside the folder, and nothing that no run writes, is renamed or removed."""
    cut_off(here / "s.hdr", 10, **HOW, memory="60K", out_dir=here / "o")
    (here / "s_rmse.img.part").write_bytes(b"mine")
    with Outputs(here / "o", "s") as outputs:
        past = read_resume_state(outputs.journal.path)
        outputs.journal.go_on(past)
        outputs.journal.append(entry)
        outputs.resume = past
        outputs.journal.close()
    with pytest.raises(ValueError, match=r"which is no output of s|not that of the record"):
        read_resume_state(here / "o/s_run.journal.part")
    assert unmix.run(here / "s.hdr", **HOW, memory="60K", out_dir=here / "o")["resumed_from"] == 0
    assert "is damaged" in caplog.text and (here / "s_rmse.img.part").read_bytes() == b"mine"
    assert not (here / "s_rmse.img").exists()


def test_a_record_that_names_other_files_takes_none_away(here):
    unmix.run(here / "s.hdr", **HOW, out_dir=here / "o")
    record = here / "o/s_run.json"
    report = json.loads(record.read_text())
    for names in ("digests", "sizes"):
        report[names] |= {"../m.img": report[names]["s_rmse.img"], "s.img": report[names]["s_rmse.img"]}
    record.write_text(json.dumps(report))
    with pytest.raises(unmix.OutputError, match="cannot be read"):
        unmix.run(here / "s.hdr", **HOW, out_dir=here / "o", skip_existing=True)
    (here / "o/s.img").write_bytes(b"mine")
    unmix.run(here / "s.hdr", **HOW, out_dir=here / "o", overwrite=True)
    assert (here / "m.img").exists() and (here / "o/s.img").read_bytes() == b"mine"


def test_a_scene_that_is_an_output_of_another(here):
    """Of two scenes of one command, the first would replace the second; elsewhere it does not."""
    for ending in (".hdr", ".img"):  # a cube of the user's own, whose name the first scene's map would have
        shutil.copy(here / f"s{ending}", here / f"s_abundance{ending}")
    before = contents(here)
    words = ["run", here / "s.hdr", here / "s_abundance.hdr", "-n", 2, "--overwrite", "--device", "cpu"]
    code, said = command(*words)
    assert code == 2 and "s_abundance.hdr: has the name of an output of" in said and contents(here) == before
    assert command(*words, "-o", here / "o")[0] == 0 and contents(here) == before
