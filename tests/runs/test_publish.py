"""How files get their final names: whole, of one command, and never in place of what unmix did not write."""

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import patience, rest_slow, wait_until
from together import COMMANDS, MINE, VCA, files, inputs, trials
from unmix_cli.main import cli

from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import OutputError
from unmix.io.formats.written_by import says_unmix
from unmix.outputs import atomic
from unmix.outputs.atomic import is_by_unmix, named_together, remove_abandoned
from unmix.outputs.digests import discard
from unmix.runs.files.output_set import Outputs

# A header that unmix wrote, and one that it did not.
OURS, THEIRS = b"ENVI\ndescription = {means by unmix 1}\n", b"ENVI\ndescription = {a cube to unmix}\n"


def command(*words):
    """Exit code and message of a command that must not hang."""
    with patience(words):
        error = CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False).exception
    return (0, "") if error is None else (getattr(error, "exit_code", 99), str(error))


def write_all(parts, content):
    for part in parts:
        part.write_bytes((OURS if part.suffix == ".hdr" else b"") + content)


@pytest.fixture
def pair(tmp_path):
    return [tmp_path / "s.img", tmp_path / "s.hdr"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """What the commands read."""
    return inputs(tmp_path_factory.mktemp("publish") / "in")


@pytest.mark.parametrize("there", [False, True])
def test_of_two_at_once_one_wins_whole(pair, there):
    """The second ends first; neither with --overwrite replaces what came after it began."""
    if there:
        with named_together(pair, False, "`out_dir`") as parts:
            write_all(parts, b"old")
    with (
        pytest.raises(OutputError, match=r"s\.(img|hdr): another file appeared"),
        named_together(pair, there, "`out_dir`") as first,
    ):
        write_all(first, b"first")
        with named_together(pair, there, "`out_dir`") as second:
            write_all(second, b"second")
        write_all(first, b"first again")
    assert [path.read_bytes() for path in pair] == [b"second", OURS + b"second"]
    assert sorted(path.name for path in pair[0].parent.iterdir()) == ["s.hdr", "s.img"]
    assert all(path.stat().st_nlink == 1 for path in pair)


@pytest.mark.parametrize("name", ["s.img", "s.hdr"])
@pytest.mark.parametrize("there", [False, True])
def test_what_appears_meanwhile_stays_and_what_was_there_too(pair, name, there):
    if there:
        write_all(pair, b"old")
    with (
        pytest.raises(OutputError, match=f"{name}: another file appeared"),
        named_together(pair, True, "`out_dir`") as parts,
    ):
        write_all(parts, b"new")
        (pair[0].parent / "x").write_bytes(MINE)
        os.replace(pair[0].parent / "x", pair[0].parent / name)
    kept = {path.name: path.read_bytes() for path in pair[0].parent.iterdir()}
    old = {"s.img": b"old", "s.hdr": OURS + b"old"} if there else {}
    assert kept == old | {name: MINE}


def test_the_inode_of_a_file_that_is_gone_is_no_excuse(pair):
    """ext4 gives a new file the number of one that was just removed."""
    write_all(pair, b"old")
    with pytest.raises(OutputError, match="another file appeared"), named_together(pair, True, "`out_dir`") as parts:
        write_all(parts, b"new")
        for path in pair:
            path.unlink()
            path.write_bytes(MINE)
    assert [path.read_bytes() for path in pair] == [MINE, MINE]


def test_an_error_of_the_last_close_is_none(pair, monkeypatch):
    """As network file systems tell of errors: all files have their names by then."""
    close = os.close

    def fails(descriptor):
        is_empty = stat.S_ISDIR(os.fstat(descriptor).st_mode) and not os.listdir(descriptor)
        close(descriptor)
        if is_empty:
            raise OSError(errno.EIO, "close")

    with named_together(pair, False, "`out_dir`") as parts:
        write_all(parts, b"new")
        monkeypatch.setattr(os, "close", fails)
    monkeypatch.undo()
    assert sorted(path.name for path in pair[0].parent.iterdir()) == ["s.hdr", "s.img"]


@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("how", ["dies", "fails"])
def test_stopped_between_two_names(pair, monkeypatch, call, how):
    """Killed, it leaves headers beside nothing or beside their own data; after an error all is as it was."""
    write_all(pair, b"old")
    calls = [0]

    def counted(function):
        def called(*words, **how_called):
            calls[0] += 1
            if calls[0] > call and how == "fails":
                raise PermissionError(1, "no", words[0])
            if calls[0] > call:
                os._exit(9)
            return function(*words, **how_called)

        return called

    child = os.fork() if how == "dies" else 0
    if not child:
        with monkeypatch.context() as patch:
            for name in ("link", "rename"):
                patch.setattr(os, name, counted(getattr(os, name)))
            with contextlib.suppress(OutputError), named_together(pair, True, "`out_dir`") as parts:
                write_all(parts, b"new")
        if how == "dies":
            os._exit(0)
    found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else None
    assert found in (None, 0, 9)
    kinds = [path.read_bytes().removeprefix(OURS) if path.exists() else None for path in pair]
    if how == "fails":  # the fifth call and later ones never come
        assert kinds in ([b"new", b"new"],) if call >= 4 else kinds.count(b"new") == 0
    assert kinds[0] is None or (kinds[1] == kinds[0] and kinds[0] in (b"old", b"new"))
    with named_together(pair, True, "`out_dir`") as parts:
        write_all(parts, b"again")
    expected = {"s.img": b"again", "s.hdr": OURS + b"again"}
    assert {path.name: path.read_bytes() for path in pair[0].parent.iterdir()} == expected


def test_a_file_system_without_links(pair, monkeypatch):
    def none(*words, **how):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    for content in (b"first", b"second"):
        with named_together(pair, True, "`out_dir`") as parts:
            write_all(parts, content)
        assert [path.read_bytes() for path in pair] == [content, OURS + content]
    pair[0].unlink()
    with (
        pytest.raises(OutputError, match=r"s\.img: another file appeared"),
        named_together(pair, True, "`out_dir`") as parts,
    ):
        write_all(parts, b"third")
        pair[0].write_bytes(MINE)
    assert [path.read_bytes() for path in pair] == [MINE, OURS + b"second"]


def test_only_what_the_dead_left_is_removed(tmp_path):
    """A process at work is left alone, and so is a folder of the user's."""
    both = []
    for count in (1, 2):
        both.append(os.fork())
        if not both[-1]:
            (atomic.Workplace(tmp_path).path / "x").write_text("x")
            signal.pause()
        wait_until(lambda count=count: len(list(tmp_path.glob("unmix-*.part/x"))) == count)
    (tmp_path / "unmix-mine.part").mkdir()
    for child, left in zip(both, (1, 0)):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(list(tmp_path.glob("unmix-*.part/x"))) == left + 1
        remove_abandoned(tmp_path)
        assert len(list(tmp_path.glob("unmix-*.part/x"))) == left
    assert [path.name for path in tmp_path.iterdir()] == ["unmix-mine.part"]


def other_inode(folder):
    (folder / atomic.MARK).write_bytes(b"1\n")


def second_name(folder):
    (folder.parent / "mark").write_bytes(mark_of(folder))
    os.link(folder.parent / "mark", folder / atomic.MARK)


def another_link(folder):
    (folder.parent / "mark").write_bytes(mark_of(folder))
    (folder / atomic.MARK).symlink_to(folder.parent / "mark")


def mark_of(folder):
    return f"{folder.stat().st_ino}\n".encode()


def store_of(title):
    return json.dumps({"attributes": {"title": title}}).encode()


def linked_document(folder):
    (folder.parent / "ours").write_bytes(store_of("abundances by unmix 1"))
    os.link(folder.parent / "ours", folder / "zarr.json")


@pytest.mark.parametrize("plant", [None, other_inode, second_name, another_link])
def test_a_folder_of_the_users_with_the_name_of_a_workplace_stays(tmp_path, plant):
    """docs/security.md: a folder is removed only if it carries a mark inside that this user's unmix made for this very
    folder.

    Whoever may write to the folder of the outputs may rename the user's own folders there, to have them deleted.
    """
    own = tmp_path / "o/unmix-deadbeef.part"
    (own / "sub").mkdir(parents=True)
    (own / "sub/a.raw").write_bytes(MINE)
    if plant is not None:
        plant(own)
    remove_abandoned(tmp_path / "o")
    assert (own / "sub/a.raw").read_bytes() == MINE
    (own / atomic.MARK).unlink(missing_ok=True)
    (own / atomic.MARK).write_bytes(mark_of(own))  # with its mark it is work that somebody left
    remove_abandoned(tmp_path / "o")
    assert not own.exists()


@pytest.mark.parametrize("document", [None, store_of("my photos"), b"[", linked_document])
@pytest.mark.parametrize("name", ["s_abundance.zarr", "s_abundance.zarr.part"])
def test_a_folder_of_the_users_with_the_name_of_a_store_stays(tmp_path, name, document):
    """Also where a stranger's record beside it lists it; a store that unmix wrote goes."""
    own = tmp_path / name
    (own / "sub").mkdir(parents=True)
    (own / "sub/a.raw").write_bytes(MINE)
    if callable(document):
        document(own)
    elif document is not None:
        (own / "zarr.json").write_bytes(document)
    with pytest.raises(OSError, match="unmix did not make"):
        discard(own)
    if not name.endswith(".part"):
        record = {"unmix": "1", "digests": {name: ""}, "sizes": {name: 1}}
        (tmp_path / "s_run.json").write_text(json.dumps(record))
        with pytest.raises(OutputError, match="unmix did not write it"):
            atomic.replaceable([own], True, "`out_dir`")
    assert (own / "sub/a.raw").read_bytes() == MINE
    (own / "zarr.json").unlink(missing_ok=True)
    (own / "zarr.json").write_bytes(store_of("abundances by unmix 1"))
    if not name.endswith(".part"):
        assert own in atomic.replaceable([own], True, "`out_dir`")
    discard(own)
    assert not own.exists()


@pytest.mark.parametrize(
    "words",
    [
        "validate {r} {d}/plots.csv -o {o}.csv",
        "validate {r} {d}/plots.csv -o {o}.html",
        *rest_slow([f"plot {{e}} -o {{o}}.{ending}" for ending in ("png", "svg", "pdf", "tif")], "plot {e} -o {o}.png"),
        "library convert {e} {o}.csv",
        "report {r} -o {o}.html",
        "compare {r} {r} -o {o}.html",
        "zonal {r} -o {o}.csv",
        "zonal {r} --wide -o {o}.csv",
    ],
)
def test_overwrite_knows_its_own_files_by_what_is_in_them(tmp_path, here, words):
    """docs/reliability.md: `--overwrite` replaces what unmix wrote, and nothing else: not a table or picture of the user's."""
    (tmp_path / "plots.csv").write_text("plot,line,sample,endmember 1\np1,1,1,0.1\np2,2,2,0.5\np3,3,3,0.2\n")
    given = words.format(r=here / "run/s", d=tmp_path, e=here / "s_truth_endmembers.csv", o=tmp_path / "out").split()
    out = tmp_path / given[-1]
    for mine in (MINE, b"name,400,410\nmy work,0.1,0.2 \n"):
        out.write_bytes(mine)
        code, said = command(*given, "--overwrite")
        assert code == 1 and "unmix did not write it" in said and out.read_bytes() == mine, said
    out.unlink()
    assert command(*given)[0] == 0
    first = out.read_bytes()
    assert command(*given, "--overwrite")[0] == 0 and out.read_bytes() == first


def test_another_folder_under_the_name_of_ours_is_not_written_to(tmp_path, pair):
    """Whoever may write to the folder of the outputs may exchange ours for a link to a folder of the user's."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "s.img").write_bytes(MINE)
    with named_together(pair, False, "`out_dir`") as parts:
        (place,) = tmp_path.glob("unmix-*.part")
        place.rename(tmp_path / "away")
        place.symlink_to(victim)
        write_all(parts, b"new")
    assert files(victim) == {"s.img": MINE} and pair[0].read_bytes() == b"new"


def test_permissions_are_those_of_the_umask(pair):
    before = os.umask(0o027)
    try:
        with named_together(pair, False, "`out_dir`") as parts:
            write_all(parts, b"")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in pair] == [0o640, 0o640]


def test_a_run_does_not_replace_what_is_the_users(tmp_path):
    """A library beside the cube under the name that a run gives its endmembers; and what to do is said, --overwrite not at all."""
    synthesise(tmp_path / "cube.hdr", SyntheticScene(12, 20, 30, 3, seed=1))
    mine = tmp_path / "cube_endmembers.csv"
    mine.write_text("name,400,500\nkaolinite,0.5,0.6\n")
    before = files(tmp_path)
    cases = [["run"], ["run", "--overwrite"], ["endmembers", "--overwrite"], ["nmf", "--overwrite", "--steps", "1"]]
    for words in cases:
        code, said = command(*words[:1], tmp_path / "cube.hdr", "-n", 3, *words[1:])
        assert code == 1 and "unmix did not write it; use `out_dir`, or move it away" in said, (words, said)
        assert files(tmp_path) == before
    assert (
        command("run", tmp_path / "cube.hdr", "-n", 3, "--extract", "vca", "--device", "cpu", "-o", tmp_path / "maps")[
            0
        ]
        == 0
    )
    mine.unlink()
    for _ in range(2):
        assert (
            command("run", tmp_path / "cube.hdr", "-n", 3, "--extract", "vca", "--device", "cpu", "--overwrite")[0] == 0
        )
    written = mine.read_bytes()
    mine.write_bytes(written + b"\n")  # which is work of the user's by now
    assert "unmix did not write it" in command("run", tmp_path / "cube.hdr", "-n", 3, "--overwrite")[1]
    mine.write_bytes(written)
    (tmp_path / "cube_run.json").unlink()  # each file says of itself whose it is
    assert command("run", tmp_path / "cube.hdr", "-n", 4, "--extract", "vca", "--device", "cpu", "--overwrite")[0] == 0


def test_who_wrote_it(tmp_path, here):
    """Of all that unmix writes something says so, and of nothing else."""
    run = here / "run"
    assert all(is_by_unmix(path) for path in run.iterdir() if path.is_file())
    for name in ("s.hdr", "s.img", "s_truth_endmembers.sli"):
        assert is_by_unmix(here / name)
    for name in ("a.npy", "c.csv", "p.csv"):
        assert not is_by_unmix(here / name)
    foreign = {"x.hdr": THEIRS, "x.json": b'{"a": 1}', "y.json": b"[", "x.png": b"\x89PNG unmix", "x.html": b"unmix"}
    foreign |= {"x.tif": b"II*\0", "x.h5": b"\x89HDF", "x.nc": b"", "s_run.json": b"{}", "s_rmse.img": b""}
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
        assert not is_by_unmix(tmp_path / name) and not says_unmix(tmp_path / name), name


def mixed(out, *wholes):
    """Headers in a folder beside data of another run, or of none."""
    found, wrong = files(out), []
    for name in found:
        for data in (name[:-4] + ".img", name[:-4] + ".sli"):
            if name.endswith(".hdr") and data in found:
                same = [whole.get(name) == found[name] and whole.get(data) == found[data] for whole in wholes]
                wrong += [] if any(same) else [name]
    return wrong


def dying(function, left):
    """A function that ends the process when it is called for the last time."""

    def called(*given, **how):
        left[0] -= 1
        return os._exit(9) if left[0] < 0 else function(*given, **how)

    return called


def arm(where, method, call):
    """Let the process die at that call of those that remove and give names, once a method has begun."""
    publish = getattr(where, method)

    def armed(*given):
        left = [call]
        os.link, os.rename, os.unlink = (dying(function, left) for function in (os.link, os.rename, os.unlink))
        return publish(*given)

    setattr(where, method, armed)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--device", "cpu"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (["nmf", "--device", "cpu", "--steps", "2"], ["endmembers"])
        ),
    ],
)
@pytest.mark.slow
def test_killed_while_it_replaces_an_older_run(tmp_path, words):
    """At each third of the calls that remove and give names; the same command then does it all."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(12, 20, 30, 3, seed=1))

    def ask(out, count):
        return command(*words, tmp_path / "s.hdr", "-n", count, "-o", out, "--overwrite")

    wholes = []
    for count in (3, 4):
        assert ask(tmp_path / f"{count}", count)[0] == 0
        wholes.append(files(tmp_path / f"{count}"))
    for call in range(0, 40, 3):
        out = tmp_path / f"o{call}"
        shutil.copytree(tmp_path / "3", out)
        child = os.fork()
        if not child:
            arm(Outputs, "publish", call)
            arm(atomic.Workplace, "publish", call)
            os._exit(min(ask(out, 4)[0], 1))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9) and mixed(out, *wholes) == []
        assert ask(out, 4) == (0, "") and mixed(out, wholes[1]) == [] and set(files(out)) == set(wholes[1])
        assert not list(out.glob("*.part")) or call == 0
        if code == 0:
            break
    else:
        raise AssertionError("there are more calls than that")


QUICK = ("run", "mnf", "match", "synth", "export", "export --split", "bands", "build", "compare", "stac")
NEEDS = {"stac": "pystac", "export": "rasterio", "run -f": "rasterio"}
PLANTS = {
    "file": lambda victim, path: path.write_bytes(MINE),
    "link": lambda victim, path: path.symlink_to(victim),
    "hard link": lambda victim, path: os.link(victim, path),
    "link to nothing": lambda victim, path: path.symlink_to(victim.with_name("nothing")),
    "pipe": lambda victim, path: os.mkfifo(path),
    "folder": lambda victim, path: path.mkdir(),
}


def words_of(name, here, out):
    return COMMANDS[name][0].format(i=here, o=out, v=VCA).split()


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("name", rest_slow(COMMANDS, *QUICK))
def test_every_command_leaves_what_it_did_not_write(tmp_path, here, name):
    """Under each final name and each name on the way; what is its own it replaces with --overwrite, and only with it."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    out, victim = tmp_path / "o", tmp_path / "victim"
    out.mkdir()
    if name == "stac":
        assert command(*words_of("run", here, out))[0] == 0
    before = set(files(out))
    words = words_of(name, here, out)
    assert command(*words)[0] == 0
    written = sorted(set(files(out)) - before)
    code, said = command(*words)
    page_again = name in ("compare", "report")
    assert (code, page_again) == (0, True) or (code == 1 and "exists already" in said), said
    first = files(out)
    assert command(*words, "--overwrite")[0] == 0 and set(files(out)) == set(first)
    few = itertools.cycle(written[:: max(1, len(written) // 2)])  # each plant once, and all of them by all commands
    for one, kind in itertools.product(written, PLANTS) if os.environ.get("UNMIX_ALL_PLANTS") else zip(few, PLANTS):
        for path in set(files(out)) - before:
            (out / path).unlink()
        victim.write_bytes(MINE)
        PLANTS[kind](victim, out / one)
        code, said = command(*words, "--overwrite")
        assert victim.read_bytes() == MINE and not victim.with_name("nothing").exists()
        refused = code == 1 and f"{one}: exists already, and unmix did not write it; use " in said
        assert "overwrite" not in said and (refused or (kind == "folder" and "is a directory" in said)), (one, said)
        assert {path.name for path in out.iterdir()} == before | {one}
        (out / one).rmdir() if kind == "folder" else (out / one).unlink()
        assert not list(out.glob("unmix-*.part"))
    # Names that files have on the way, also those of the work files of maps in other formats.
    parts = [f"{one}.part" for one in written]
    parts += [
        f"{Path(one).stem}{end}.part" for one in written if one.endswith((".tif", ".h5")) for end in (".img", ".hdr")
    ]
    for kind in ("link", "hard link", "pipe"):
        for path in set(files(out)) - before:
            (out / path).unlink()
        for part in parts:
            PLANTS[kind](victim, out / part)
        assert command(*words, "--overwrite")[0] == 0 and victim.read_bytes() == MINE
        finals = [path for path in out.iterdir() if path.name in written]
        assert len(finals) == len(written) and not any(one.is_symlink() or one.stat().st_nlink > 1 for one in finals)
        for part in parts:
            (out / part).unlink(missing_ok=True)


def test_two_commands_that_are_slow(tmp_path, monkeypatch):
    """Two commands that write one map, one in the middle of the other: the second one's is whole."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(12, 20, 30, 3, seed=1))
    words = ("match", tmp_path / "s.hdr", "-e", tmp_path / "s_truth_endmembers.csv", "-o", tmp_path / "o")
    publish, codes = atomic.Workplace.publish, []

    def late(place, finals, old):
        monkeypatch.setattr(atomic.Workplace, "publish", publish)
        codes.append(command(*words, "--distance", "sid")[0])
        publish(place, finals, old)

    monkeypatch.setattr(atomic.Workplace, "publish", late)
    code, said = command(*words)
    assert codes == [0] and code == 1 and "another file appeared" in said
    assert b"(sid)" in (tmp_path / "o/s_match.hdr").read_bytes() and len(files(tmp_path / "o")) == 3


@pytest.mark.slow
def test_pairs_of_commands_that_are_killed(tmp_path):
    wrong, tally = trials(
        12, int(os.environ.get("UNMIX_SEED", "7")), tmp_path, ("match", "mnf", "run", "endmembers", "export --split")
    )
    assert wrong == [] and sum(tally.values()) == 24
