"""Logins of web servers, each for its host alone: a bearer token, or a password from ``.netrc``.

They go into the headers of requests and nowhere else: no object that is stored, logged or sent to another process has
one.
"""

import base64
import functools
import ipaddress
import netrc
import os
import stat
from pathlib import Path

from ...errors import MethodError

# Variables of the environment: a token, or a private file with nothing else; the hosts that it is for; another file
# than ``~/.netrc``.
TOKEN, TOKEN_FILE, HOSTS, NETRC = "UNMIX_TOKEN", "UNMIX_TOKEN_FILE", "UNMIX_TOKEN_HOST", "NETRC"
# The longest file of a token, in bytes: those of Earthdata have 1 KiB.
LONGEST_TOKEN = 2**16
HOW = f"set {TOKEN} (or {TOKEN_FILE}, a file of mode 600) and {HOSTS}, or write it into ~/.netrc"
# Secrets that were sent, which `less_secrets` removes from messages.
SENT: set[str] = set()


def login_for(place: str) -> str:
    """Return the header ``Authorization`` for ``https://host``, "" without a login or where the way is not secret."""
    return found(place, *(os.environ.get(name, "") for name in (TOKEN, TOKEN_FILE, HOSTS, NETRC)))


@functools.cache
def found(place: str, *environment: str) -> str:
    """Return the header of `login_for`, cached for each place and each ``environment`` (values of the variables)."""
    scheme, _, host = place.partition("://")
    host = host.lower().removesuffix(":443" if scheme == "https" else ":80")
    if scheme not in ("https", "http"):
        return ""
    header = (f"Bearer {token}" if (token := token_for(host)) else "") or password_for(host)
    if not header or not (scheme == "https" or stays_here(host)):
        return ""
    SENT.update({header.partition(" ")[2], *filter(None, [token])})
    return header


def stays_here(host: str) -> bool:
    """Return whether requests by http do not leave this machine: its own address, and no proxy for it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        is_own = ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        is_own = name == "localhost"
    import urllib.request  # which imports Python's own client of web servers and its messages: 15 ms

    proxies = urllib.request.getproxies()
    return is_own and (not {"http", "all"} & set(proxies) or bool(urllib.request.proxy_bypass(host)))


def token_for(host: str) -> str:
    """Return the token of a host; empty where there is none for it."""
    named = os.environ.get(TOKEN_FILE)
    token = os.environ.get(TOKEN, "").strip()
    if not (token or named):
        return ""
    source = TOKEN if token else TOKEN_FILE
    hosts = os.environ.get(HOSTS, "").lower().replace(",", " ").split()
    if not hosts:
        raise MethodError(f"{source} is set, but not {HOSTS}: name the host that the token is for")
    if not any(host == one or (one.startswith(".") and host.endswith(one)) for one in hosts):
        return ""
    token = token or private(Path(str(named))).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise MethodError(f"{source}: holds no token, which is one word of plain letters")
    return token


def private(path: Path) -> str:
    """Return the text of a file that only this user may read; `MethodError` for any other, without its content."""
    try:
        # Without O_NONBLOCK opening a pipe would wait for somebody to write to it.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise MethodError(f"{path}: cannot be read: {error.strerror}") from None
    with os.fdopen(file, "rb") as opened:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_uid not in (0, os.geteuid()) or state.st_mode & 0o077:
            raise MethodError(f"{path}: holds a login, but is no file that you alone may read: chmod 600 it")
        return opened.read(LONGEST_TOKEN).decode("utf-8", "replace")


def password_for(host: str) -> str:
    """Return the header for a host's user and password in ``$NETRC`` or ``~/.netrc``; "" where it is not named."""
    path = Path(os.environ.get(NETRC) or os.path.expanduser("~/.netrc"))
    try:
        entries = netrc.netrc(path).hosts if path.is_file() else {}  # a pipe would be waited for
    except OSError:
        return ""
    except (netrc.NetrcParseError, UnicodeDecodeError):  # the error's text may have a part of a password
        entries = {host: ("", "", "")} if host in private(path) else {}
    if host not in entries:
        return ""
    user, _, password = entries[host]
    if not private(path) or not password:
        raise MethodError(
            f"{path}: its entry of {host} cannot be read; it is `machine {host} login USER password WORD`"
        )
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def less_secrets(text: str) -> str:
    """Return a text without anything that was sent as a login."""
    for secret in SENT:
        text = text.replace(secret, "…")
    return text


def wanted(place: str) -> str:
    """Return the advice for a server that asks for a login, or refused the one that it was sent."""
    scheme, _, host = place.partition("://")
    if login_for(place):
        return f"{host} refuses the login that it was sent; it may have expired"
    if scheme == "http" and (token_for(host) or password_for(host)):
        return f"{host} wants a login, which is sent by https alone"
    return f"{host} wants a login: {HOW}"
