"""Tell from a file's bytes whether unmix wrote it."""

import os
import re
from pathlib import Path

from ...errors import UnmixError
from ..opening import open_plain

# Begin of every page.
PAGE_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="generator" content="unmix">'
)
# The chunk of a PNG for the software that made it.
PNG_SOFTWARE = b"Software\0unmix"
# Bytes at the beginning, and at the end, of a file that are searched: PDF and ZIP have their tables at the end.
SEARCHED = 2**18
# The ending of a Zarr store that is a folder, and the document of its group.
STORE, DOCUMENT = ".zarr", "zarr.json"
# Words of our descriptions and titles; others may speak of unmixing, too.
WORDS = rb"\bby unmix\b|\bunmix synth\b"
RECORD, PAGE = rb'"unmix"\s*:', re.escape(PAGE_HEAD.encode())
TITLE = rb'"title"\s*:\s*"[^"]*(' + WORDS + rb")"
# How each kind of file names its author, by its ending.
MARKS = {
    ".hdr": rb"(?m)^unmix version\s*=|" + WORDS,
    ".json": RECORD,
    ".html": rb"\A" + PAGE,
    ".htm": rb"\A" + PAGE,
    ".png": rb"\A\x89PNG[\s\S]{,1024}tEXt" + PNG_SOFTWARE,
    ".svg": rb"\A<\?xml[\s\S]{,2048}<cc:Agent>\n      <dc:title>unmix</dc:title>",
    ".pdf": rb"\A%PDF[\s\S]*/Creator \(unmix\)",
    ".tif": rb"\A(II|MM)[\s\S]*\bunmix\0",
    ".tiff": rb"\A(II|MM)[\s\S]*\bunmix\0",
    ".h5": rb"\A\x89HDF[\s\S]*(" + WORDS + rb")",
    ".nc": rb"\A\x89HDF[\s\S]*(" + WORDS + rb")",
    STORE: TITLE,
}


def says_unmix(path: Path) -> bool:
    """Return whether a file states that unmix wrote it; False where it is unreadable, or its format has no place."""
    suffix = path.suffix.lower()
    try:
        with open_plain(path / DOCUMENT if suffix == STORE else path) as file:
            searched = file.read(SEARCHED)
            file.seek(max(len(searched), os.fstat(file.fileno()).st_size - SEARCHED))
            searched += file.read()
    except (UnmixError, OSError):
        return False
    return suffix in MARKS and re.search(MARKS[suffix], searched) is not None
