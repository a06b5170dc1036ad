"""Who may talk to a cluster: nobody but us to one of our own; and what is said of one that a site runs."""

import http.client
import importlib
import logging
import os
import subprocess
import sys

import pytest
from conftest import PATIENCE, refused
from test_cli import unmix as command

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import DeviceError, MethodError

distributed = pytest.importorskip("distributed")
pytest.importorskip("cryptography")
psutil = pytest.importorskip("psutil")
dask = pytest.importorskip("dask")
from distributed import LocalCluster, Security  # noqa: E402

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="workers are processes of their own"
)
HOW = {"count": 3, "device": "cpu"}


def listening():
    """The addresses that this process and those that it started listen at, besides those of before."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = set()
    for process in processes:
        try:
            connections = process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        found |= {tuple(one.laddr) for one in connections if one.status == psutil.CONN_LISTEN}
    return found


# A stranger without keys and one with keys of their own, at all these places; where this is run by root, as another
# user.
STRANGER = """
import asyncio, os, sys
from distributed import Security
from distributed.comm import connect

async def let_in(address, security):
    try:
        comm = await connect(address, timeout=1.5, **security.get_connection_args("client"))
        comm.abort()
    except Exception:  # whatever is said of it, it is a no
        return False
    return True

async def who(tries):
    found = await asyncio.gather(*(let_in(*each) for each in tries))
    return [address for (address, _), entered in zip(tries, found) if entered]

keys = {"tcp": Security(require_encryption=False), "tls": Security.temporary()}
asyncio.run(who([(f"{kind}://127.0.0.1:1", own) for kind, own in keys.items()]))  # imports what it needs
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(*asyncio.run(who([(f"{kind}://{place}", own) for kind, own in keys.items() for place in sys.argv[1:]])))
"""


def who_is_let_in(places):
    """Of these strangers: who is let in, and where."""
    words = [sys.executable, "-c", STRANGER, *(f"{host}:{port}" for host, port in places)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | {"TMPDIR": "/tmp"})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def speaks_http(place):
    connection = http.client.HTTPConnection(*place, timeout=1.5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Look:
    """Looks around while a batch is under way."""

    def __init__(self):
        self.before, self.seen, self.http, self.entered = listening(), set(), set(), []

    def scene(self, path):
        def report(step):
            if not self.seen:
                self.seen = listening() - self.before
                self.http = {place for place in self.seen if speaks_http(place)}
                self.entered = who_is_let_in(self.seen - self.http)

        return report


def said_by_us(caplog):
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "unmix")


@pytest.fixture
def cube(tmp_path):
    synthesise(tmp_path / "s.hdr", SyntheticScene(20, 20, 30, 3, seed=1))
    return tmp_path / "s.hdr"


@pytest.mark.slow
def test_nobody_else_may_talk_to_a_cluster_of_our_own(tmp_path, cube, caplog):
    """Neither scheduler nor worker nor the process that keeps the worker; and nothing listens for HTTP."""
    look = Look()
    with caplog.at_level(logging.INFO, "unmix"):
        ((_, report),) = unmix.batch([cube], workers=1, watch=look, out_dir=tmp_path / "o", **HOW)
    assert report["certified"]
    assert {host for host, _ in look.seen} == {"127.0.0.1"}
    assert len(look.seen) == 3  # scheduler, worker, and who keeps it
    assert look.entered == [] and look.http == set()
    assert "dashboard" not in said_by_us(caplog)


@pytest.mark.night
@pytest.mark.slow
def test_the_strangers_of_that_test_enter_an_open_cluster():
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as open_one:
        address = open_one.scheduler_address
        host, port = address.removeprefix("tcp://").split(":")
        assert who_is_let_in([(host, int(port))]) == [address]


@pytest.mark.night
@pytest.mark.slow
def test_a_dashboard_is_on_the_loopback_interface_alone(tmp_path, cube, caplog):
    look = Look()
    with caplog.at_level(logging.INFO, "unmix"):
        list(unmix.batch([cube], workers=1, dashboard=0, watch=look, out_dir=tmp_path / "o", **HOW))
    assert {host for host, _ in look.seen} == {"127.0.0.1"} and look.entered == []
    host, port = said_by_us(caplog).split("dashboard: http://")[1].split("/status")[0].split(":")
    assert look.http == {(host, int(port))}


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A cluster with TLS, and the options for it."""
    folder, keys = tmp_path_factory.mktemp("keys"), Security.temporary()
    files = {"tls_ca": keys.tls_ca_file, "tls_cert": keys.tls_client_cert, "tls_key": keys.tls_client_key}
    for name, text in files.items():
        (folder / name).write_text(text)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        protocol="tls://",
        security=keys,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=50,
    ) as cluster:
        yield cluster.scheduler_address, {name: str(folder / name) for name in files}


@pytest.mark.slow
def test_a_scheduler_with_tls(tmp_path, cube, closed):
    """By options, without naming the protocol too, and by Dask's own configuration."""
    address, files = closed
    for i, where in enumerate((address, address.removeprefix("tls://"))):
        ((_, report),) = unmix.batch([cube], scheduler=where, out_dir=tmp_path / str(i), **files, **HOW)
        assert report["certified"]
    own = {
        f"distributed.comm.tls.{key}": files[name]
        for key, name in (("ca-file", "tls_ca"), ("client.cert", "tls_cert"), ("client.key", "tls_key"))
    }
    with dask.config.set(own):
        ((_, report),) = unmix.batch([cube], scheduler=address, out_dir=tmp_path / "own", **HOW)
    assert report["certified"]


@pytest.mark.slow
def test_keys_of_a_stranger_do_not_serve(tmp_path, cube, closed, monkeypatch):
    monkeypatch.setattr(importlib.import_module("unmix.features.cluster.connection"), "CONNECTING", 2.0)
    keys = Security.temporary()
    files = {"tls_ca": keys.tls_ca_file, "tls_cert": keys.tls_client_cert, "tls_key": keys.tls_client_key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DeviceError, match="no scheduler answers"):
        list(unmix.batch([cube], scheduler=closed[0], **{name: tmp_path / name for name in files}, **HOW))


@pytest.mark.slow
def test_files_that_do_not_serve(tmp_path, cube, closed):
    address, files = closed
    (tmp_path / "text").write_text("no certificate\n")
    (tmp_path / "locked").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    other = tmp_path / "other"
    other.write_text(Security.temporary().tls_client_key)
    for change, words in (
        ({"tls_key": tmp_path / "none"}, "none: cannot be read: No such file"),
        ({"tls_cert": tmp_path / "text"}, "cannot be used for TLS"),
        ({"tls_key": other}, "cannot be used for TLS"),
        ({"tls_key": tmp_path / "locked"}, "has a pass phrase"),
    ):
        refused(MethodError, words, list, unmix.batch([cube], scheduler=address, **files | change, **HOW))


FILES = ["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"]


@pytest.mark.parametrize(
    "words, code, text",
    [
        (
            ["--scheduler", "tls://127.0.0.1:1"],
            2,
            "tls://127.0.0.1:1: needs certificates; give --tls-ca, --tls-cert and --tls-key",
        ),
        (["--scheduler", "tcp://127.0.0.1:1", *FILES], 2, "tcp://127.0.0.1:1: takes no certificates"),
        (["--scheduler", "tls://127.0.0.1:1", *FILES[:4]], 2, "go together; give all three"),
        (["--scheduler", "tls://127.0.0.1:1", *FILES], 2, "--tls-ca a: cannot be read"),
        (FILES, 2, "are for --scheduler"),
        (["--scheduler", "tcp://127.0.0.1:1", "--dashboard"], 2, "on this machine"),
        (["--dashboard", "70000"], 2, "--dashboard 70000: write a port"),
    ],
)
def test_command_lines_that_are_wrong(tmp_path, cube, words, code, text):
    _, told = command("batch", cube, *words, code=code, cwd=tmp_path)
    assert text in told and len(told.splitlines()) == 1


def test_without_cryptography(cube, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MethodError, match=r"needs cryptography: pip install 'unmix\[dask\]'"):
        list(unmix.batch([cube], workers=1, **HOW))


def test_an_open_scheduler_that_others_reach_is_warned_of_once(tmp_path, cube, monkeypatch, caplog):
    from unmix.features.cluster.connection import warn_without_tls

    for place, count in {"127.0.0.1": 0, "[::1]": 0, "localhost": 0, "192.0.2.1": 1}.items():
        caplog.clear()
        warn_without_tls(f"tcp://{place}:8786")
        assert len(caplog.records) == count
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as open_one:
        address = open_one.scheduler_address
        for i, reached in enumerate((False, True)):
            caplog.clear()
            connection = importlib.import_module("unmix.features.cluster.connection")
            monkeypatch.setattr(connection, "LOOPBACKS", () if reached else ("127.0.0.1",))
            with caplog.at_level(logging.INFO, "unmix"):  # a worker in this process says less from then on
                list(unmix.batch([cube], scheduler=address, out_dir=tmp_path / str(i), **HOW))
            assert said_by_us(caplog).count("can run programs as you") == reached
