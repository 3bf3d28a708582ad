"""The figures that a report draws: what is on them, and that they are the same every time."""

import re
from base64 import b64decode
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from evaluation.reporting.figures import curve_figure, embedded, is_wide

POINTS = [{"samples": 10**power, "lower": 3.0 - power / 10, "upper": 3.5} for power in range(1, 4)]
PLACES = [{"position": place, "base": 4.0, "lower": 2.0, "upper": 3.0} for place in range(120, 125)]


def svg_of(source: str) -> str:
    found = re.fullmatch(r"data:image/svg\+xml;base64,(.+)", source)
    assert found is not None
    return b64decode(found[1]).decode()


def test_an_embedded_figure_is_the_file_itself():
    assert svg_of(embedded(b"<svg>\xc3\xa9</svg>")) == "<svg>é</svg>"


@pytest.mark.parametrize(("width", "wide"), [("360pt", False), ("500pt", False), ("500.5pt", True), ("1e3", False)])
def test_a_figure_is_wide_beyond_what_a_phone_can_show(width, wide):
    assert is_wide(f'<?xml version="1.0"?><svg height="1pt" width="{width}" viewBox="0 0 1 1">'.encode()) == wide
    assert not is_wide(b"no figure")


@pytest.mark.parametrize(
    "figure",
    [
        lambda: curve_figure(POINTS, "samples", 4.0),
        lambda: curve_figure(PLACES, "position", None),
        lambda: curve_figure(PLACES, "position", None, {"exact": 2.5}),
    ],
)
def test_a_curve_is_sound_and_the_same_every_time(figure):
    drawn = svg_of(figure())
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert not is_wide(drawn.encode())
    assert svg_of(figure()) == drawn


def test_the_exact_value_is_one_more_mark():
    marks = [svg_of(curve_figure(PLACES, "position", None, last)).count("<use ") for last in (None, {"exact": 2.5})]
    assert marks[1] > marks[0]


def test_samples_are_on_a_logarithmic_axis_and_positions_on_whole_numbers():
    labels = [
        svg_of(curve_figure(points, across, 4.0)) for points, across in ((POINTS, "samples"), (PLACES, "position"))
    ]
    xs = [line_xs(svg) for svg in labels]
    for places in xs:  # powers of ten, like neighbouring positions, are equally far apart
        gaps = [second - first for first, second in pairwise(places)]
        assert gaps == pytest.approx([gaps[0]] * len(gaps), abs=0.01)


def line_xs(svg: str) -> list[float]:
    """Where the points of the lower bound's line, the last that is drawn through several, are."""
    paths = re.findall(r'<path d="([^"]+)" clip-path="[^"]+" style="fill: none; stroke: [^"]+"', svg)
    lines = [[float(x) for x in re.findall(r"[ML] (-?[\d.]+) ", path)] for path in paths]
    return [line for line in lines if len(line) > 2][-1]
