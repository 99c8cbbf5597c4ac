"""Colours of reports: text that can be read, and lines that the colour-blind can tell."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

CSS = files("topoopt.report").joinpath("report.css").read_text()

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SEEN = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip

KINDS = {"tensor": "blue", "context": "ink", "expert": "pink", "data": "green", "pipeline": "red"}

# These share the colour of a kind that is near to them, in another pattern.
LIKE = {"copies": "data", "expert-data": "expert"}


def themes():
    """Return the colours of the light and of the dark page, by name."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.S)
    light, dark = (dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", b)) for b in blocks[:2])
    return {"light": light, "dark": {**light, **dark}}


def linear(colour):
    """Return linear RGB of a colour in hexadecimal (sRGB, IEC 61966-2-1)."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(linear(colour) @ (0.2126, 0.7152, 0.0722))


def contrast(one, other):
    """Return the contrast ratio of WCAG 2.2, section 1.4.3."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    """Return CIE L*a*b* (D65) of linear RGB."""
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
         [0.0193339, 0.1191920, 0.9503041]]
    )  # fmt: skip
    ratio = np.clip(to_xyz @ np.clip(rgb, 0, 1) / (0.95047, 1.0, 1.08883), 0, None)
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks(theme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = themes()[theme]
    pairs = [(text, ground) for text in ("ink", "soft", "accent") for ground in ("page", "panel")]
    pairs += [("page", "ink")]  # tips
    # Numbers of ranks on the shades of stages.
    pairs += [("ink", "l0"), ("ink", "l1"), ("on2", "l2"), ("on", "l3"), ("on", "l4"), ("on", "l5")]
    # Pieces of a bar: their class names a ground, and a text if it is not "on".
    rules = re.findall(
        r"\.p-[a-z]+(?:, \.p-[a-z]+)* \{ background: var\(--(\w+)\);( color: #\w+;)?", CSS
    )
    assert len(rules) >= 5
    failed = [
        (text, ground) for text, ground in pairs if contrast(colours[text], colours[ground]) < 4.5
    ]
    for ground, own in rules:
        text = own.split()[1].rstrip(";") if own else colours["on"]
        if contrast(text, colours[ground]) < 4.5:
            failed.append((own or "on", ground))
    assert not failed


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_kinds_of_groups_can_be_told_by_all_eyes(theme, seen):
    colours = themes()[theme]
    for kind, colour in KINDS.items():
        assert f"path.g-{kind} {{ stroke: var(--{colour}) !important; }}" in CSS
        # Graphics need 3:1 (WCAG 1.4.11).
        assert contrast(colours[colour], colours["panel"]) >= 3.0, kind
    shades = {name: lab(SEEN[seen] @ linear(colours[name])) for name in KINDS.values()}
    for one, other in combinations(shades, 2):
        # 2.3 is a just noticeable difference; lines are thin.
        assert np.linalg.norm(shades[one] - shades[other]) > 15, (one, other)


def test_every_kind_of_groups_has_a_line_and_a_switch():
    lines = {}
    for kind in (*KINDS, *LIKE):
        colour = re.search(rf"path\.g-{kind} \{{ stroke: var\(--(\w+)\)", CSS)[1]
        pattern = re.search(rf"\.g-{kind} \{{ stroke-dasharray: ([\d ]+);", CSS)
        lines[kind] = colour, pattern[1] if pattern else ""
        assert f"[value={kind}]:not(:checked)) .layout-map .g-{kind}" in CSS
    assert len(set(lines.values())) == len(lines)
    assert all(lines[kind][0] == lines[near][0] for kind, near in LIKE.items())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shades_of_stages_go_one_way(theme):
    colours = themes()[theme]
    steps = np.diff([lab(linear(colours[f"l{i}"]))[0] for i in range(6)])
    assert (np.abs(steps) > 7).all() and len(set(np.sign(steps))) == 1
