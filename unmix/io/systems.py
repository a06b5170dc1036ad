"""Coordinate systems that are told by a text alone: GDAL asks a server for any other name, or takes it for that of a file."""

import re

# Codes of authorities whose tables come with PROJ, as they stand, in URNs and in the URLs of OGC, which PROJ reads without asking.
CODED = re.compile(
    r"(EPSG|ESRI|IGNF|NKG|OGC|CRS|IAU_\d{4}):[\w.+-]+|\+init=epsg:\d+( \+type=crs)?"
    r"|urn:(x-)?ogc:def:crs[\w.:,+-]+|https?://(www\.)?opengis\.net/(def/crs/\w+/[\w.]+/\w+|gml/srs/epsg\.xml#\d+)",
    re.ASCII | re.IGNORECASE,
)
# How WKT, PROJJSON and PROJ's strings begin, and how these name files with shifts of a datum in a folder.
DEFINED = re.compile(r"[A-Za-z]\w+\s*[\[(]|\{|\+?(proj|type)=", re.ASCII)
WITH_FILES = re.compile(r"(grids|parameterfile|init|\"value\"|file\")[^\]}+]*[/\\~]", re.ASCII | re.IGNORECASE)


def self_contained(system: str) -> str:
    """Return a text that tells a coordinate system without a server or another file, as GDAL reads it; empty for any other.

    It is a code, its URN or URL of OGC, WKT, PROJJSON or a string of PROJ.
    """
    text = system.strip()
    if CODED.fullmatch(text):
        return re.sub(r".*epsg\.xml#", "EPSG:", text)
    return text if DEFINED.match(text) and not WITH_FILES.search(text) else ""
