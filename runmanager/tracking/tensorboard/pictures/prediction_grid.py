"""The picture of an evaluation's samples: each with its class, what was predicted, and how sure the network was."""

from collections.abc import Sequence

import torch
from PIL import Image, ImageDraw

from runmanager.tracking.metrics.predictions import Prediction
from runmanager.tracking.tensorboard.pictures.drawing import (
    INK,
    LINE,
    TEXT,
    WIDTH,
    WRONG,
    canvas,
    font,
    in_percent,
    shortened,
    width_of,
    write_title,
)

__all__ = ["draw_predictions"]

_COLUMNS = 3
_GAP = 8
_IMAGE = (WIDTH - _GAP) // _COLUMNS - _GAP  # pixels on a side
_HEAD = 2 * LINE + _GAP
_TILE_WIDTH, _TILE_HEIGHT = _IMAGE + _GAP, _IMAGE + 2 * LINE + _GAP
_BADGE = 18


def draw_predictions(
    images: torch.Tensor, predictions: Sequence[Prediction], names: Sequence[str], *, title: Sequence[str]
) -> Image.Image:
    """`images` (samples, 1 or 3, height, width), uint8 or float32 in [0, 1], three in a row.

    Below each stand its class and the predicted one, with the probability of each. A wrong one has a thick frame and a
    cross, a right one a thin frame and a tick. `names` are those of the classes, `title` the lines above.
    """
    rows = -(-len(predictions) // _COLUMNS)
    picture, draw = canvas(WIDTH, _GAP + _HEAD + rows * _TILE_HEIGHT)
    write_title(draw, title, (_GAP, _GAP))
    for number, (image, prediction) in enumerate(zip(images, predictions, strict=True)):
        left = _GAP + number % _COLUMNS * _TILE_WIDTH
        top = _GAP + _HEAD + number // _COLUMNS * _TILE_HEIGHT
        picture.paste(_enlarged(image), (left, top))
        _draw_mark(draw, left, top, is_right=prediction.is_right)
        _draw_words(draw, left, top + _IMAGE + 4, prediction, names)
    return picture


def _draw_mark(draw: ImageDraw.ImageDraw, left: int, top: int, *, is_right: bool) -> None:
    right, bottom = left + _IMAGE - 1, top + _IMAGE - 1
    colour = INK if is_right else WRONG
    draw.rectangle((left, top, right, bottom), outline=colour, width=1 if is_right else 4)
    draw.rectangle((right - _BADGE, top, right, top + _BADGE), fill=colour)
    x, y = right - _BADGE, top
    if is_right:
        draw.line([(x + 4, y + 10), (x + 8, y + 14), (x + 15, y + 5)], fill="white", width=2)
    else:
        draw.line([(x + 4, y + 4), (x + 14, y + 14)], fill="white", width=3)
        draw.line([(x + 4, y + 14), (x + 14, y + 4)], fill="white", width=3)


def _draw_words(draw: ImageDraw.ImageDraw, left: int, top: int, prediction: Prediction, names: Sequence[str]) -> None:
    lines = [
        ("is", names[prediction.label], prediction.label_probability),
        ("said", names[prediction.predicted], prediction.probability),
    ]
    for number, (word, name, share) in enumerate(lines):
        tail = f" ({in_percent(share)}%)"
        text = shortened(f"{word} {name}", TEXT, _TILE_WIDTH - 2 - width_of(tail, TEXT)) + tail
        draw.text((left, top + number * LINE), text, fill=INK, font=font(TEXT))


def _enlarged(image: torch.Tensor) -> Image.Image:
    """An image (channels, height, width) on a square of its own, in the middle, its pixels as they are."""
    stored = image if image.dtype == torch.uint8 else (image * 255).round().to(torch.uint8)
    pixels = stored.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    found = Image.fromarray(pixels)
    scale = _IMAGE / max(found.size)
    size = (max(1, round(found.width * scale)), max(1, round(found.height * scale)))
    square = Image.new("RGB", (_IMAGE, _IMAGE), (232, 234, 237))
    square.paste(found.resize(size, Image.Resampling.NEAREST), ((_IMAGE - size[0]) // 2, (_IMAGE - size[1]) // 2))
    return square
