"""The version of the package, and a build number made of a digest of its sources."""

import functools
import os

VERSION = "0.3.0"


@functools.cache
def source_of(path: str) -> tuple[bytes, os.stat_result]:
    """Return the content and status of a source, read once a process."""
    # A build number and the keys of compiled code need the same; to open 450 files takes 60 ms on some machines.
    with open(path, "rb") as file:
        return file.read(), os.fstat(file.fileno())


@functools.cache
def build() -> str:
    """Return the version with twelve digits of a digest over the package's sources: 0.2.0+0123456789ab."""
    import hashlib  # at the first call, too: with OpenSSL it is a sixth of the time of `unmix --help`

    package = os.path.dirname(__file__)
    found = (os.path.join(folder, name) for folder, _, names in os.walk(package) for name in names)
    # All commits share one version, but a run must not resume the journal of other code, nor use its workers.
    digest = hashlib.sha256()
    for path in sorted(path for path in found if path.endswith(".py")):
        source = source_of(path)[0]
        digest.update(f"{path[len(package) + 1 :].replace(os.sep, '/')} {len(source)}\n".encode())
        digest.update(source)
    return f"{VERSION}+{digest.hexdigest()[:12]}"
