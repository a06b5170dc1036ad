"""Points, and layers of a file, name pixels of a library."""

import json

import numpy as np
import pytest
from test_cli import unmix as command
from test_regions import MAP, built, polygons, scene

import unmix

__all__ = ["scene"]  # the fixture


def points(folder, places, kind="Point"):
    """GeoJSON in UTM of points in pixels (line, sample), off their centres."""
    assert "500000, 4200000, 30, 30" in MAP
    spots = [[500000.0 + 30 * sample + 7, 4200000.0 - 30 * line - 22] for line, sample in places]
    if kind == "Point":
        shapes = [{"type": "Point", "coordinates": spot} for spot in spots]
    else:
        shapes = [{"type": "MultiPoint", "coordinates": spots}]
    features = [{"type": "Feature", "properties": {"kind": "a"}, "geometry": shape} for shape in shapes]
    crs = {"type": "name", "properties": {"name": "EPSG:32611"}}
    path = folder / "points.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features, "crs": crs}))
    return path


@pytest.mark.parametrize("kind", ["Point", "MultiPoint"])
def test_points(tmp_path, scene, kind):
    pytest.importorskip("rasterio")
    path, values = scene
    places = [(1, 1), (4, 0), (8, 6)]
    library = built(path, "polygons", points(tmp_path, places, kind), column="kind")
    assert list(library.pixels) == places and library.classes == ("a",) * 3
    np.testing.assert_allclose(library.matrix.T, [values[place] for place in places], rtol=1e-15)


def test_layers(tmp_path, scene):
    """A file of two layers says their names, and takes one of them, from the command line, too."""
    pytest.importorskip("rasterio")
    raw = pytest.importorskip("pyogrio").raw
    (tmp_path / "f").mkdir()
    other = tmp_path / "f/both.gpkg"
    own = {"areas": polygons(tmp_path), "plots": points(tmp_path, [(1, 1), (8, 6)])}
    for layer, file in own.items():
        about, _, shapes, values = raw.read(file)
        raw.write(
            other, shapes, values, about["fields"], geometry_type=about["geometry_type"], crs=about["crs"], driver="GPKG",
            layer=layer, append=other.exists(),
        )  # fmt: skip
    with pytest.raises(unmix.CubeError, match=r"has 2 layers; name one as .*both.gpkg:LAYER: areas, plots"):
        built(scene[0], "polygons", other, column="kind")
    with pytest.raises(unmix.CubeError, match="has no layer 'fields'; name one as"):
        built(scene[0], "polygons", f"{other}:fields", column="kind")
    for layer, file in own.items():
        found, same = (built(scene[0], "polygons", one, column="kind") for one in (f"{other}:{layer}", file))
        assert found.pixels == same.pixels and found.classes == same.classes
    command("library", "build", scene[0], tmp_path / "o.csv", "--polygons", f"{other}:plots", "--column", "kind")
    assert len(unmix.load_library(tmp_path / "o.csv").names) == 2
    with pytest.raises(unmix.LibraryError, match="is no file of layers"):
        built(scene[0], "polygons", f"{own['areas']}:areas", column="kind")
