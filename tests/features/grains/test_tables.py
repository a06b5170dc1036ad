"""Tables of grains: decimal commas, and rows of another length. (Runs with grains: tests/runs/test_albedo.py.)"""

import pytest

from unmix import LibraryError
from unmix.features.grains.mass import mass_of


def test_tables_of_text_and_numbers(tmp_path):
    (tmp_path / "g.csv").write_text("name;density;diameter\nsoil;2,5;100\n")
    assert mass_of(tmp_path / "g.csv", ["soil"]).tolist() == [250.0]
    (tmp_path / "h.csv").write_text("name,density,diameter\nsoil,2,5,100\n")
    with pytest.raises(LibraryError, match="row 2 has 4 cells, the first row 3"):
        mass_of(tmp_path / "h.csv", ["soil"])
