"""The version of the package, and a build number made of a digest of its sources."""

import functools

VERSION = "0.2.0"


@functools.cache
def build() -> str:
    """Return the version with twelve digits of a digest over all sources of the package, such as 0.2.0+0123456789ab.

    All commits share one version, but a run must not resume the journal of other code, nor use workers that run other code. The digest
    takes some milliseconds, so it is computed at the first call. Git is not needed.
    """
    import hashlib  # at the first call, too: with OpenSSL it is a sixth of the time of `unmix --help`
    from pathlib import Path

    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(source)}\n".encode())
        digest.update(source)
    return f"{VERSION}+{digest.hexdigest()[:12]}"
