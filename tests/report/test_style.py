"""Colours that a colour-blind reader can tell apart, on white and on dark."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from muster.report.style import MORE, OKABE_ITO, OKABE_ITO_ON_DARK, LineStyle, to_lab

# Machado, Oliveira and Fernandes (2009), severity 1: what is left of linear RGB.
SEEN = {
    "everyone": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip


def seen(colour, matrix):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    left = np.clip(matrix @ linear, 0, 1)
    return to_lab(np.where(left <= 0.0031308, 12.92 * left, 1.055 * left ** (1 / 2.4) - 0.055))


def luminance(colour):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("palette", [OKABE_ITO + MORE, OKABE_ITO_ON_DARK], ids=["light", "dark"])
@pytest.mark.parametrize("who", SEEN)
def test_no_two_methods_look_the_same(palette, who):
    labs = [seen(colour, SEEN[who]) for colour in palette]
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(labs, 2))
    assert nearest > 10, "a difference of 2 can just be seen"


def test_eleven_methods_have_colours_of_their_own():
    assert len({LineStyle.of(i).colour for i in range(11)}) == 11


def test_every_colour_stands_out_from_a_dark_page():
    paper = luminance("#14181d")
    for colour in OKABE_ITO_ON_DARK:
        assert (luminance(colour) + 0.05) / (paper + 0.05) > 4.5, colour
