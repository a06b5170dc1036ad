"""Write PNG images (ISO/IEC 15948): colours with transparency, or numbers of a palette."""

import struct
import zlib

import numpy as np

from ..io.formats.written_by import PNG_SOFTWARE

# Of compression: 4 takes half the time of 6, and pictures are 1 % larger.
LEVEL = 4


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(image: np.ndarray, palette: np.ndarray | None = None) -> bytes:
    """Return an image as the bytes of a PNG file.

    It is (h, w, 4), uint8: red, green, blue and opacity; or with a palette (n, 4) of such colours the number of each pixel's, (h, w).
    """
    height, width = image.shape[:2]
    indexed = palette is not None
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3 if indexed else 6, 0, 0, 0))]
    parts += [chunk(b"tEXt", PNG_SOFTWARE)]
    if palette is not None:
        parts += [chunk(b"PLTE", palette[:, :3].tobytes()), chunk(b"tRNS", palette[:, 3].tobytes())]
    rows = np.zeros((height, 1 + image.reshape(height, -1).shape[1]), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    if not indexed and height > 1:  # less the row above: natural images shrink by a fifth
        rows[1:, 0] = 2
        rows[1:, 1:] -= image.reshape(height, -1)[:-1]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [*parts, chunk(b"IDAT", zlib.compress(rows.tobytes(), LEVEL)), chunk(b"IEND", b"")]
    )
