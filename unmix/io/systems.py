"""Coordinate systems that are told by a text alone: GDAL asks a server for any other name, or takes it for that of a file."""

import re

# Codes of authorities whose tables come with PROJ, as they stand, in URNs and in the URLs of OGC, which PROJ reads
# without asking.
CODED = re.compile(
    r"(EPSG|ESRI|IGNF|NKG|OGC|CRS|IAU_\d{4}):[\w.+-]+|\+init=epsg:\d+( \+type=crs)?"
    r"|urn:(x-)?ogc:def:crs[\w.:,+-]+|https?://(www\.)?opengis\.net/(def/crs/\w+/[\w.]+/\w+|gml/srs/epsg\.xml#\d+)",
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
    """Return a text that tells a coordinate system without a server or another file, as GDAL reads it; empty for any
    other.

    It is a code, its URN or URL of OGC, WKT, PROJJSON or a string of PROJ.
    """
    text = system.strip()
    if CODED.fullmatch(text):
        return re.sub(r".*epsg\.xml#", "EPSG:", text)
    words = SCHEMA.sub("", text)
    leads_to_file = READS_FILE.search(words) or (MAY_READ_FILE.search(words) and PATH.search(words))
    return text if DEFINED.match(text) and not leads_to_file else ""
