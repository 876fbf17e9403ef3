"""The picture of a confusion matrix: a row for each true class, shaded by what its samples were taken for."""

from collections.abc import Sequence

import torch
from PIL import Image, ImageDraw

from runmanager.tracking.tensorboard.pictures.drawing import (
    INK,
    LINE,
    PAPER,
    PEN,
    TEXT,
    WIDTH,
    Colour,
    canvas,
    font,
    in_percent,
    shortened,
    width_of,
    write_title,
)

__all__ = ["MAX_CLASSES", "draw_confusion"]

MAX_CLASSES = 100
"""Of more than these no name could be read."""
_NUMBERED = 20  # classes at most whose cells hold numbers
_DARKEST = (8, 48, 107)
_LEAST_SHADE = 0.08  # of a share that is not nothing: it is to be told from nothing
_WHITE_ON = 0.45  # shares above are so dark that numbers on them are white
_MARGIN = 12
_LONGEST_NAME = 110  # pixels


def draw_confusion(counts: torch.Tensor, names: Sequence[str], *, title: Sequence[str]) -> Image.Image:
    """`counts` (true classes, predicted classes), each row shaded by its shares: white for none, dark blue for all.

    Up to 20 classes the cells say the share in per cent; right of a row stands how many samples the class has. `names`
    are those of the classes, `title` the lines above. Raises `ValueError` for more than 100 classes.
    """
    if len(names) > MAX_CLASSES:
        raise ValueError(f"A confusion matrix must have at most {MAX_CLASSES} classes to be drawn, got {len(names)}.")
    is_numbered = len(names) <= _NUMBERED
    cell, size = (24, TEXT) if is_numbered else (12, 9)
    names = [shortened(name, size, _LONGEST_NAME) for name in names]
    widest = max(round(width_of(name, size)) for name in names)
    left, top = _MARGIN + LINE + widest + 6, _MARGIN + (len(title) + 1) * LINE + max(widest, size) + 10
    side = cell * len(names)
    title_width = max((round(width_of(line, TEXT)) for line in title), default=0)
    picture, draw = canvas(max(WIDTH, left + side + 60, title_width + 2 * _MARGIN), top + side + _MARGIN)
    write_title(draw, title, (_MARGIN, _MARGIN))
    _write_names(picture, draw, names, (left, top), cell, size)
    totals = counts.sum(dim=1)
    shares = counts / totals.clamp(min=1)[:, None]
    picture.paste(_shaded(shares, cell), (left, top))
    if is_numbered:
        _write_numbers(draw, shares, (left, top), cell)
    for row, total in enumerate(totals.tolist()):
        place = (left + side + 6, top + row * cell + cell // 2)
        draw.text(place, f"{total:,}", fill=PEN, font=font(size), anchor="lm")
    draw.rectangle((left - 1, top - 1, left + side, top + side), outline=PEN)
    return picture


def _shaded(shares: torch.Tensor, cell: int) -> Image.Image:
    """The cells, (classes, classes) shares in [0, 1], each a square of so many pixels."""
    strength = torch.where(shares > 0, _LEAST_SHADE + (1 - _LEAST_SHADE) * shares, 0.0)[:, :, None]
    colours = torch.tensor(PAPER) + strength * (torch.tensor(_DARKEST) - torch.tensor(PAPER))
    squares = Image.fromarray(colours.round().to(torch.uint8).numpy())
    return squares.resize((cell * squares.width, cell * squares.height), Image.Resampling.NEAREST)


def _write_numbers(draw: ImageDraw.ImageDraw, shares: torch.Tensor, corner: tuple[int, int], cell: int) -> None:
    left, top = corner
    for row, column in shares.nonzero().tolist():
        share = float(shares[row, column])
        place = (left + column * cell + cell // 2, top + row * cell + cell // 2)
        draw.text(place, in_percent(share), fill=PAPER if share > _WHITE_ON else INK, font=font(TEXT), anchor="mm")


def _write_names(
    picture: Image.Image,
    draw: ImageDraw.ImageDraw,
    names: Sequence[str],
    corner: tuple[int, int],
    cell: int,
    size: int,
) -> None:
    left, top = corner
    widest = max(round(width_of(name, size)) for name in names)
    lies = widest < cell - 4  # all of them have room beside each other
    for number, name in enumerate(names):
        middle = number * cell + cell // 2
        draw.text((left - 5, top + middle), name, fill=INK, font=font(size), anchor="rm")
        if lies:
            draw.text((left + middle, top - 6), name, fill=INK, font=font(size), anchor="ms")
        else:
            upright = _upright(name, size)
            picture.paste(upright, (left + middle - upright.width // 2, top - 5 - upright.height))
    half, above = cell * len(names) // 2, top - 10 - (size if lies else widest)
    draw.text((left + half, above), "predicted", fill=PEN, font=font(TEXT), anchor="ms")
    word = _upright("true", TEXT, PEN)
    picture.paste(word, (_MARGIN, top + half - word.height // 2))
    draw.text((left + 2 * half + 6, top - 6), "samples", fill=PEN, font=font(TEXT), anchor="ls")


def _upright(text: str, size: int, colour: Colour = INK) -> Image.Image:
    """Text that is read from below."""
    lying, draw = canvas(round(width_of(text, size)) + 1, size + 2)
    draw.text((0, size // 2 + 1), text, fill=colour, font=font(size), anchor="lm")
    return lying.transpose(Image.Transpose.ROTATE_90)
