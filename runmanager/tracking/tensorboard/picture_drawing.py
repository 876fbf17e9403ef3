"""Drawing of evaluation pictures with Pillow: a confusion matrix and a grid of predicted samples.

Pillow because a run has loaded it already: matplotlib takes ten times as long to draw these, and 0.8 s to import.
"""

import io
from collections.abc import Sequence
from functools import cache

import torch
from PIL import Image, ImageDraw, ImageFont

from runmanager.tracking.epoch_metrics.predictions import Prediction

__all__ = ["MAX_CLASSES", "as_png", "draw_confusion", "draw_predictions", "format_percent"]

Colour = tuple[int, int, int]
Position = tuple[int, int]
"""Pixels from the left and from the top."""

MAX_CLASSES = 100
"""Classes that a confusion matrix has room for: names of more would be unreadable."""

WHITE: Colour = (255, 255, 255)
BLACK: Colour = (32, 33, 36)
GREY: Colour = (110, 114, 120)
"""Lines and secondary text."""
VERMILION: Colour = (190, 76, 0)
"""Wrong predictions. Distinct from black for colour-blind readers, and never the only sign."""
_LIGHT_GREY: Colour = (232, 234, 237)
_DARK_BLUE: Colour = (8, 48, 107)

_WIDTH = 350  # pixels that TensorBoard's cards show unscaled: scaled text is hard to read
_FONT_SIZE, _LINE_HEIGHT = 12, 15  # pixels

_COLUMNS = 3
_GAP = 8
_IMAGE_SIDE = (_WIDTH - _GAP) // _COLUMNS - _GAP
_TITLE_HEIGHT = 2 * _LINE_HEIGHT + _GAP
_TILE_WIDTH, _TILE_HEIGHT = _IMAGE_SIDE + _GAP, _IMAGE_SIDE + 2 * _LINE_HEIGHT + _GAP
_BADGE_SIDE = 18

_MARGIN = 12
_MAX_NUMBERED = 20  # classes at most whose cells have room for numbers
_MIN_SHADE = 0.08  # of a share above 0, to be distinct from 0
_WHITE_TEXT_ABOVE = 0.45  # shares whose cells are too dark for black numbers
_MAX_NAME_WIDTH = 110


def draw_confusion(counts: torch.Tensor, names: Sequence[str], *, title: Sequence[str]) -> Image.Image:
    """Draw a confusion matrix from `counts` (true classes, predicted classes), with the `title` lines above.

    Cells are shaded by their share of the row, from white for 0 to dark blue for 1, and hold it in per cent for up to
    20 classes. The number of samples is at the right of each row. `names` are the class names. Raises `ValueError` for
    more than 100 classes.
    """
    if len(names) > MAX_CLASSES:
        raise ValueError(f"A confusion matrix must have at most {MAX_CLASSES} classes to be drawn, got {len(names)}.")
    is_numbered = len(names) <= _MAX_NUMBERED
    cell, size = (24, _FONT_SIZE) if is_numbered else (12, 9)
    names = [_shorten(name, size, _MAX_NAME_WIDTH) for name in names]
    widest = max(round(_text_width(name, size)) for name in names)
    left = _MARGIN + _LINE_HEIGHT + widest + 6
    top = _MARGIN + (len(title) + 1) * _LINE_HEIGHT + max(widest, size) + 10
    side = cell * len(names)
    title_width = max((round(_text_width(line, _FONT_SIZE)) for line in title), default=0)
    picture, draw = _canvas(max(_WIDTH, left + side + 60, title_width + 2 * _MARGIN), top + side + _MARGIN)
    _draw_title(draw, title, (_MARGIN, _MARGIN))
    _draw_axes(picture, draw, names, (left, top), cell, size)
    totals = counts.sum(dim=1)
    shares = counts / totals.clamp(min=1)[:, None]
    picture.paste(_shade_cells(shares, cell), (left, top))
    if is_numbered:
        _draw_numbers(draw, shares, (left, top), cell)
    for row, total in enumerate(totals.tolist()):
        position = (left + side + 6, top + row * cell + cell // 2)
        draw.text(position, f"{total:,}", fill=GREY, font=_font(size), anchor="lm")
    draw.rectangle((left - 1, top - 1, left + side, top + side), outline=GREY)
    return picture


def _shade_cells(shares: torch.Tensor, cell: int) -> Image.Image:
    """Draw the shares (classes, classes), each in [0, 1], as squares of `cell` pixels."""
    strength = torch.where(shares > 0, _MIN_SHADE + (1 - _MIN_SHADE) * shares, 0.0)[:, :, None]
    colours = torch.tensor(WHITE) + strength * (torch.tensor(_DARK_BLUE) - torch.tensor(WHITE))
    squares = Image.fromarray(colours.round().to(torch.uint8).numpy())
    return squares.resize((cell * squares.width, cell * squares.height), Image.Resampling.NEAREST)


def _draw_numbers(draw: ImageDraw.ImageDraw, shares: torch.Tensor, corner: Position, cell: int) -> None:
    left, top = corner
    for row, column in shares.nonzero().tolist():
        share = float(shares[row, column])
        position = (left + column * cell + cell // 2, top + row * cell + cell // 2)
        colour = WHITE if share > _WHITE_TEXT_ABOVE else BLACK
        draw.text(position, format_percent(share), fill=colour, font=_font(_FONT_SIZE), anchor="mm")


def _draw_axes(
    picture: Image.Image, draw: ImageDraw.ImageDraw, names: Sequence[str], corner: Position, cell: int, size: int
) -> None:
    left, top = corner
    widest = max(round(_text_width(name, size)) for name in names)
    is_horizontal = widest < cell - 4  # then column names fit next to each other
    for index, name in enumerate(names):
        middle = index * cell + cell // 2
        draw.text((left - 5, top + middle), name, fill=BLACK, font=_font(size), anchor="rm")
        if is_horizontal:
            draw.text((left + middle, top - 6), name, fill=BLACK, font=_font(size), anchor="ms")
        else:
            vertical = _vertical_text(name, size)
            picture.paste(vertical, (left + middle - vertical.width // 2, top - 5 - vertical.height))
    half, above = cell * len(names) // 2, top - 10 - (size if is_horizontal else widest)
    draw.text((left + half, above), "predicted", fill=GREY, font=_font(_FONT_SIZE), anchor="ms")
    label = _vertical_text("true", _FONT_SIZE, GREY)
    picture.paste(label, (_MARGIN, top + half - label.height // 2))
    draw.text((left + 2 * half + 6, top - 6), "samples", fill=GREY, font=_font(_FONT_SIZE), anchor="ls")


def draw_predictions(
    images: torch.Tensor, predictions: Sequence[Prediction], names: Sequence[str], *, title: Sequence[str]
) -> Image.Image:
    """Draw `images` (samples, 1 or 3, height, width), uint8 or float32 in [0, 1], in rows of three.

    True and predicted class are below each image, with their probabilities. A wrong prediction has a thick frame and a
    cross, a right one a thin frame and a tick. `names` are the class names, `title` the lines above.
    """
    rows = -(-len(predictions) // _COLUMNS)
    picture, draw = _canvas(_WIDTH, _GAP + _TITLE_HEIGHT + rows * _TILE_HEIGHT)
    _draw_title(draw, title, (_GAP, _GAP))
    for index, (image, prediction) in enumerate(zip(images, predictions, strict=True)):
        left = _GAP + index % _COLUMNS * _TILE_WIDTH
        top = _GAP + _TITLE_HEIGHT + index // _COLUMNS * _TILE_HEIGHT
        picture.paste(_fit_image(image), (left, top))
        _draw_frame(draw, (left, top), is_right=prediction.is_right)
        _draw_caption(draw, (left, top + _IMAGE_SIDE + 4), prediction, names)
    return picture


def _draw_frame(draw: ImageDraw.ImageDraw, corner: Position, *, is_right: bool) -> None:
    left, top = corner
    right, bottom = left + _IMAGE_SIDE - 1, top + _IMAGE_SIDE - 1
    colour = BLACK if is_right else VERMILION
    draw.rectangle((left, top, right, bottom), outline=colour, width=1 if is_right else 4)
    draw.rectangle((right - _BADGE_SIDE, top, right, top + _BADGE_SIDE), fill=colour)
    x, y = right - _BADGE_SIDE, top
    if is_right:
        draw.line([(x + 4, y + 10), (x + 8, y + 14), (x + 15, y + 5)], fill="white", width=2)
    else:
        draw.line([(x + 4, y + 4), (x + 14, y + 14)], fill="white", width=3)
        draw.line([(x + 4, y + 14), (x + 14, y + 4)], fill="white", width=3)


def _draw_caption(draw: ImageDraw.ImageDraw, corner: Position, prediction: Prediction, names: Sequence[str]) -> None:
    left, top = corner
    lines = [
        ("true", names[prediction.label], prediction.label_probability),
        ("pred.", names[prediction.predicted], prediction.probability),
    ]
    for index, (label, name, probability) in enumerate(lines):
        tail = f" ({format_percent(probability)}%)"
        room = _TILE_WIDTH - 2 - _text_width(tail, _FONT_SIZE)
        text = _shorten(f"{label} {name}", _FONT_SIZE, room) + tail
        draw.text((left, top + index * _LINE_HEIGHT), text, fill=BLACK, font=_font(_FONT_SIZE))


def _fit_image(image: torch.Tensor) -> Image.Image:
    """Centre an image (channels, height, width) on a square, enlarged without interpolation."""
    stored = image if image.dtype == torch.uint8 else (image * 255).round().to(torch.uint8)
    picture = Image.fromarray(stored.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
    scale = _IMAGE_SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    square = Image.new("RGB", (_IMAGE_SIDE, _IMAGE_SIDE), _LIGHT_GREY)
    resized = picture.resize(size, Image.Resampling.NEAREST)
    square.paste(resized, ((_IMAGE_SIDE - size[0]) // 2, (_IMAGE_SIDE - size[1]) // 2))
    return square


def as_png(picture: Image.Image) -> bytes:
    """Encode as PNG, fast rather than small."""
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def format_percent(share: float) -> str:
    """Format a share in [0, 1] as whole per cent: `0` and `100` stand for exact values only."""
    if 0 < share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def _canvas(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGB", (width, height), WHITE)
    return picture, ImageDraw.Draw(picture)


def _draw_title(draw: ImageDraw.ImageDraw, lines: Sequence[str], corner: Position) -> None:
    """Write what the picture shows in black, then how it was made in grey."""
    left, top = corner
    for index, line in enumerate(lines):
        colour = GREY if index else BLACK
        draw.text((left, top + index * _LINE_HEIGHT), line, fill=colour, font=_font(_FONT_SIZE))


def _vertical_text(text: str, size: int, colour: Colour = BLACK) -> Image.Image:
    """Draw text that reads upwards."""
    picture, draw = _canvas(round(_text_width(text, size)) + 1, size + 2)
    draw.text((0, size // 2 + 1), text, fill=colour, font=_font(size), anchor="lm")
    return picture.transpose(Image.Transpose.ROTATE_90)


def _shorten(text: str, size: int, width: float) -> str:
    """Cut text to `width` pixels, with an ellipsis where something was cut."""
    if _text_width(text, size) <= width:
        return text
    length = len(text)
    while length and _text_width(text[:length] + "…", size) > width:
        length -= 1
    return text[:length] + "…"


def _text_width(text: str, size: int) -> float:
    return _font(size).getlength(text)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # comes with Pillow: pictures are the same on every machine
