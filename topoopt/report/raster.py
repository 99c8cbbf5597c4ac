"""A matrix as a small picture, and its values as texts that many cells share."""

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats
from topoopt.problem.units import format_bytes

_RAMP = ((232, 241, 248), (158, 202, 225), (66, 146, 198), (8, 81, 156), (6, 32, 78))
_STEPS = 255

Levels = npt.NDArray[np.uint8]


def blocks(matrix: Floats, size: int) -> Floats:
    """Return sums over square blocks.

    Parameters
    ----------
    matrix : float64 array, shape (n, n)
    size : int
        Rows and columns of a block; the last ones may be smaller.

    Returns
    -------
    float64 array, shape (ceil(n / size), ceil(n / size))
    """
    edges = np.arange(0, matrix.shape[0], size)
    summed: Floats = np.add.reduceat(np.add.reduceat(matrix, edges, axis=0), edges, axis=1)
    return summed


def levels(matrix: Floats, low: float, high: float, logarithmic: bool) -> Levels:
    """Return the step of the colour ramp of every cell, 1 to 255; 0 where there is nothing."""
    value = np.where(matrix > 0.0, matrix, low)
    if logarithmic and high > low:
        share = np.log(value / low) / np.log(high / low)
    else:
        share = value / high if high > 0.0 else np.zeros_like(value)
    step = 1 + np.rint(np.clip(share, 0.0, 1.0) * (_STEPS - 1))
    return np.where(matrix > 0.0, step, 0).astype(np.uint8)


def png_uri(image: Levels) -> str:
    """Return a picture as a data URI: an indexed PNG whose step 0 is transparent.

    Source: Portable Network Graphics (ISO/IEC 15948), sections 5 and 11.
    """
    height, width = image.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), image), axis=1)
    palette = b"\0\0\0" + b"".join(bytes(colour(i / (_STEPS - 1))) for i in range(_STEPS))
    parts = (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", palette),
        _chunk(b"tRNS", b"\0"),
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        _chunk(b"IEND", b""),
    )
    return data_uri("image/png", b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def data_uri(kind: str, content: bytes) -> str:
    """Return bytes as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def colour(share: float) -> tuple[int, int, int]:
    """Return red, green and blue of the ramp at a share in 0..1."""
    place = share * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    part = place - low
    red, green, blue = (
        round(a + part * (b - a)) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True)
    )
    return red, green, blue


def cell_texts(matrix: Floats, texts: dict[str, int]) -> str:
    """Return, base64 of little-endian 16-bit numbers, which text each cell has.

    Parameters
    ----------
    matrix : float64 array
        Bytes, at most 65536 cells.
    texts : dict of str to int
        The texts met so far; new ones are added.
    """
    values, which = np.unique(matrix, return_inverse=True)
    known = [texts.setdefault(format_bytes(float(value)), len(texts)) for value in values]
    index = np.array(known, dtype="<u2")[which.ravel()]
    return base64.b64encode(index.tobytes()).decode()


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
