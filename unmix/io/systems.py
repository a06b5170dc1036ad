"""Recognise coordinate systems given by text alone: GDAL takes other names for files, or asks a server for them."""

import re

# Codes of authorities whose tables come with PROJ, as they stand, in URNs and in the URLs of OGC, which PROJ reads
# without asking.
CODED = re.compile(
    r"(EPSG|ESRI|IGNF|NKG|OGC|CRS|IAU_\d{4}):[\w.+-]+|\+init=epsg:\d+( \+type=crs)?"
    r"|urn:(x-)?ogc:def:crs[\w.:,+-]+|https?://(www\.)?opengis\.net/(def/crs/\w+/[\w.]+/\w+)",
    re.ASCII | re.IGNORECASE,
)
# How WKT, PROJJSON and PROJ's strings begin.
DEFINED = re.compile(r"[A-Za-z]\w+\s*[\[(]|\{|\+?(proj|type)=", re.ASCII)
# What always reads a file, and what may, with shifts of a datum: then no word may be a path. (A name has blanks around
# its /.)
READS_FILE = re.compile(r"tinshift|defmodel|pipeline|(file|model|init)\s*=", re.ASCII | re.IGNORECASE)
MAY_READ_FILE = re.compile(r"grids|file", re.ASCII | re.IGNORECASE)
PATH = re.compile(r"""[^\s"'=,\[\](){}+]*[/\\~][^\s"'=,\[\](){}+]+|[^\s"'=,\[\](){}+]+[/\\~]|~""", re.ASCII)
# The name of the form of PROJJSON, which is not asked for.
SCHEMA = re.compile(r"https://proj\.org/schemas/[\w./]*", re.ASCII)


def self_contained(system: str) -> str:
    """Return a coordinate system that a text alone defines (code, URN, WKT, PROJJSON, PROJ); "" for any other."""
    text = system.strip()
    if CODED.fullmatch(text):
        return text
    words = SCHEMA.sub("", text)
    leads_to_file = READS_FILE.search(words) or (MAY_READ_FILE.search(words) and PATH.search(words))
    return text if DEFINED.match(text) and not leads_to_file else ""
