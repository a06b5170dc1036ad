"""Which build of the package this is: its version, and a digest of its own sources."""

import functools
import hashlib
from pathlib import Path

VERSION = "0.1.0"


@functools.cache
def build() -> str:
    """Return the version with twelve digits of a digest over all sources of the package, such as 0.1.0+0123456789ab.

    Every commit has the same version, but journals of other code must not pass as this one's, nor workers that run other code. It takes
    some milliseconds, so it is computed when it is first asked for; it needs no git.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(source)}\n".encode())
        digest.update(source)
    return f"{VERSION}+{digest.hexdigest()[:12]}"
