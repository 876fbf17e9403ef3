"""Text, colours and PNG for the pictures that a run draws: by Pillow, which a run has loaded, in milliseconds."""

import io
from collections.abc import Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont

__all__ = [
    *("INK", "LINE", "PAPER", "PEN", "TEXT", "WIDTH", "WRONG", "Colour"),
    *("as_png", "canvas", "font", "in_percent", "shortened", "width_of", "write_title"),
]

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
INK: Colour = (32, 33, 36)
PEN: Colour = (110, 114, 120)
"""For lines, and words that say less."""
WRONG: Colour = (190, 76, 0)
"""Vermilion, which those who see no red or no green tell from ink; never the only sign of something."""

WIDTH = 350
"""Pixels that TensorBoard's cards show as they are; they stretch or shrink all else, and text suffers."""
TEXT, LINE = 12, 15
"""The size of text, and how far its lines are apart, in pixels."""


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font, so that pictures are the same everywhere."""
    return ImageFont.load_default(size)


def width_of(text: str, size: int) -> float:
    """How many pixels a line of text takes."""
    return font(size).getlength(text)


def shortened(text: str, size: int, width: float) -> str:
    """The text, or as much of its beginning as leaves room for dots within `width` pixels."""
    if width_of(text, size) <= width:
        return text
    kept = len(text)
    while kept and width_of(text[:kept] + "…", size) > width:
        kept -= 1
    return text[:kept] + "…"


def in_percent(share: float) -> str:
    """A share as a whole number of hundredths; what is not nothing never reads as 0, nor what is not all as 100."""
    if 0 < share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def as_png(picture: Image.Image) -> bytes:
    """The picture as a file; encoded fast rather than small."""
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def canvas(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """An empty picture, and what draws on it."""
    picture = Image.new("RGB", (width, height), PAPER)
    return picture, ImageDraw.Draw(picture)


def write_title(draw: ImageDraw.ImageDraw, lines: Sequence[str], corner: tuple[int, int]) -> None:
    """What a picture shows, in its first line, and how it came about, in the others."""
    x, y = corner
    for number, line in enumerate(lines):
        draw.text((x, y + number * LINE), line, fill=PEN if number else INK, font=font(TEXT))
