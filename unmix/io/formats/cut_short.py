"""Find truncated TIFF files by the positions that they state: the directory and the last block."""

import struct
from pathlib import Path
from typing import Any

from ...errors import CubeError
from ..opening import open_plain

# Bytes below which a file with a TIFF's first letters is rubbish, and no TIFF that was cut short.
SHORTEST = 256


def refuse_short(path: Path, needed: int) -> None:
    """Raise `CubeError` where a file ends before the byte that it names itself."""
    size = path.stat().st_size
    if size < needed:
        raise CubeError(f"{path}: is cut short: it has {size} bytes and should have {needed} or more; copy it again")


def directory_of(path: Path) -> int:
    """Return the least end of a TIFF's first directory, by its first bytes (TIFF 6.0, BigTIFF); 0 for other files."""
    try:
        with open_plain(path) as file:
            head = file.read(16)
        size = path.stat().st_size
    except OSError:
        return 0
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or size < SHORTEST:
        return 0
    kind, first = struct.unpack(order + "HL", head[2:8])
    return int(first) + 2 if kind == 42 else int(struct.unpack(order + "Q", head[8:16])[0]) + 8 if kind == 43 else 0


def end_of(source: Any, together: bool) -> int:
    """Return the end of an open TIFF's last block, 0 if never written; ``together`` is for pixel-interleaved bands."""
    height, width = source.block_shapes[0]
    name = f"{(source.width - 1) // width}_{(source.height - 1) // height}"
    band = 1 if together else source.count
    where = [source.get_tag_item(f"BLOCK_{what}_{name}", "TIFF", bidx=band) for what in ("OFFSET", "SIZE")]
    return 0 if None in where else sum(map(int, where))
