"""Random tables of spectra, as other programs write them: each is read as it was meant, or refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmix.errors import LibraryError
from unmix.library.files import load

# Units by the factors k or the reciprocals k/x that make nanometres of their numbers.
UNITS = {
    "nm": ("nm", 1, 1.0),
    "Nanometers": ("nm", 1, 1.0),
    "µm": ("um", 1, 1000.0),
    "micrometers": ("um", 1, 1000.0),
    "Angstrom": ("a", 1, 0.1),
    "cm-1": ("wn", -1, 1e7),
    "eV": ("ev", -1, 1239.8419843320026),
    "GHz": ("ghz", -1, 299792458.0),
    "": ("nm", 1, 1.0),
}
COLUMN = ("Wavelength ({})", "Wavelength/{}", "wavelength [{}]", "Wavelength_{}", "Wave {}")


@st.composite
def tables(draw):
    """Draw a table: its text, its wavelengths in nm (None: counted), its values (L, p), whether all in it is plain."""
    unit = draw(st.sampled_from(list(UNITS)))
    separator, decimal = draw(st.sampled_from([",", ";", "\t"])), draw(st.sampled_from([".", "."] + [","]))
    thousands = draw(st.sampled_from(["", "", ",", ".", " ", "\u202f", "'"]))
    # Points group thousands where commas are decimal; commas do not separate cells then.
    thousands = "" if thousands == decimal or (thousands == "." and separator == ",") else thousands
    size, p = draw(st.integers(4, 12)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    nm = np.sort(random.choice(np.arange(400, 2500), size, replace=False) + random.choice([0.0, 0.25, 0.5], size))
    _, power, k = UNITS[unit]
    axis = nm / k if power > 0 else k / nm
    axis = axis[:: draw(st.sampled_from([1, -1]))]
    places = draw(st.integers(0, 2)) if abs(axis).min() > 100 else 5
    top, digits = draw(st.sampled_from([(1, 4), (100, 2), (10_000, 0), (9000, 2)]))
    values = random.uniform(0, top, (size, p))

    def written(value, digits):
        text = f"{value:.{digits}f}"
        truth = float(text)
        text = f"{value:,.{digits}f}".replace(",", "\0").replace(".", decimal).replace("\0", thousands)
        return (f'"{text}"' if separator in text else text), truth

    counts = draw(st.integers(0, 9)) == 0
    cells = [written(one, places) for one in axis]
    if counts:
        first = draw(st.integers(0, 30))
        cells = [(str(n), None) for n in range(first, first + size)]
    heads, waves = [cell for cell, _ in cells], [value for _, value in cells]
    body = [[written(values[b, j], digits) for j in range(p)] for b in range(size)]
    lacking = draw(st.sampled_from([None, None, "NA", "", "nan", "-9999"]))
    if lacking is not None and p > 1:
        body[random.integers(size)][random.integers(p)] = lacking, np.nan
    names = [f"{draw(st.sampled_from(['soil', 'oak leaf', 'tree', 's.', 'plot 1.']))}{j}" for j in range(p)]
    if draw(st.booleans()) or unit not in ("", "nm"):  # spectra in columns, below a heading that names the unit
        heading = "wavelength" if counts or not unit else draw(st.sampled_from(COLUMN)).format(unit)
        rows = [[heading, *names], *([head, *(cell for cell, _ in row)] for head, row in zip(heads, body))]
    else:
        forms = [("", ""), ("", ""), ("X", ""), ("Band ", "")]
        forms += [] if counts else [("", " nm"), ("b#_", ""), ("Band # (", " nm)")]
        before, after = draw(st.sampled_from(forms))
        index = draw(st.booleans())
        rows = [
            ["name", *(f"{before.replace('#', str(n))}{head.strip(chr(34))}{after}" for n, head in enumerate(heads, 1))]
        ]
        rows[0] = [f'"{cell}"' if separator in cell else cell for cell in rows[0]]
        rows += [[name, *(body[b][j][0] for b in range(size))] for j, name in enumerate(names)]
        if index:  # of pandas, whose heading is empty
            rows = [[str(n - 1) if n else "", *row] for n, row in enumerate(rows)]
    text = "\n".join(separator.join(row) for row in rows) + "\n"
    k_of = (lambda x: x * k) if power > 0 else (lambda x: k / x)
    truth = None if counts else np.array([k_of(one) for one in waves])
    is_plain = decimal == "." and not thousands and separator == "," and lacking in (None, "nan")
    return text, truth, np.array([[value for _, value in row] for row in body]), names, is_plain


@given(tables())
@settings(max_examples=200)
def test_tables_are_read_as_they_were_meant_or_refused(tmp_path_factory, table):
    check(tmp_path_factory, *table)


def test_points_above_values_with_points_settle_them(tmp_path):
    """A row for each spectrum, in per cent with three decimals, below wavelengths with points."""
    (tmp_path / "t.csv").write_text("name;400.5;420.5\na;26.205;25.052\nb;34.581;31.112\n")
    np.testing.assert_array_equal(load(tmp_path / "t.csv").matrix, [[26.205, 34.581], [25.052, 31.112]])


@pytest.mark.parametrize("name", ["s.1", "plot 1.2", "soil0.asd", "a.b"])
def test_points_in_names_settle_no_sign(tmp_path, name):
    (tmp_path / "t.csv").write_text(f"wavelength;{name};x\n500;1,107;1,663\n510;1,123;1,700\n")
    with pytest.raises(LibraryError, match=r"may be 1107 or 1\.107"):
        load(tmp_path / "t.csv")


@pytest.mark.night
@pytest.mark.slow
@given(tables())
@settings(max_examples=2000)
def test_many_tables(tmp_path_factory, table):
    check(tmp_path_factory, *table)


def check(tmp_path_factory, text, waves, values, names, is_plain):
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_text(text, encoding="utf-8")
    try:
        library = load(path)
    except LibraryError as error:
        assert not is_plain, error
        return
    assert library.matrix.shape == values.shape
    order = np.argsort(library.wavelengths) if waves is not None and library.wavelengths is not None else slice(None)
    expected = np.argsort(waves) if waves is not None and library.wavelengths is not None else slice(None)
    np.testing.assert_array_equal(library.matrix[order], values[expected])
    if waves is None:
        assert library.wavelengths is None
    else:
        np.testing.assert_allclose(library.wavelengths[order], waves[expected], rtol=1e-12)
