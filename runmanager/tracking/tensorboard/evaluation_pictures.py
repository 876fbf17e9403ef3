"""The pictures of an evaluation: a confusion matrix and a grid of predicted samples, drawn with Pillow.

| picture | what |
| --- | --- |
| `predictions` | the 15 samples with the lowest probability of their true class, with class names and probabilities |
| `confusion_matrix` | the share of each true class by predicted class, with class names; up to 100 classes |

Drawing takes longer than the tracking of a one-second epoch may. The last evaluation is therefore drawn after the
epochs, outside every epoch's time, and before the run's status becomes finished: if the process is killed before,
the run is resumed and draws it then. Of the other evaluations only those of epochs 1, 2, 4, 8, … are drawn, if the
epoch took ten seconds or more. Pillow draws them, as a run has loaded it already; matplotlib takes ten times as long.
"""

import io
from collections.abc import Callable, Sequence
from functools import cache

import torch
from PIL import Image, ImageDraw, ImageFont
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.records.run.run_record import EpochRecord
from runmanager.text import error_line, pluralize
from runmanager.tracking.epoch_metrics.evaluation import (
    Evaluation,
    Prediction,
    Scores,
    confusion_matrix,
    count_correct,
    least_confident,
)
from runmanager.tracking.introspect.loader_inspection import batch_images, class_names, read_samples
from runmanager.tracking.options import TensorBoardOptions

_NUM_SAMPLES = 15
_MIN_EPOCH_SECONDS = 10.0  # a thousand times what a picture takes


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


class _UnavailableError(Exception):
    """Reason why no evaluation of this run can have a picture."""


class EvaluationPictures:
    """Draws the evaluations of one run.

    The first evaluation decides which pictures are possible; a note names each one that is not.
    """

    def __init__(self, options: TensorBoardOptions) -> None:
        self._pictures = {tag: kind for tag, kind in _PICTURES.items() if getattr(options, tag)}
        self._is_checked = False

    def epoch(self, record: EpochRecord, evaluation: Evaluation | None) -> tuple[Summary, Sequence[str]]:
        """Return the summary for this epoch, empty if none is due, and notes on what could not be drawn."""
        if evaluation is None or not self._pictures:
            return Summary(), ()
        evaluation.scores()  # copied to the host now, so that they take no device memory during training
        return self._draw_if_due(record.epoch, evaluation, is_due=_is_due(record))

    def last(self, record: EpochRecord, evaluation: Evaluation) -> tuple[Summary, Sequence[str]]:
        """Return the summary for the last evaluation, empty if `epoch` returned it already, and notes."""
        return self._draw_if_due(record.epoch, evaluation, is_due=not _is_due(record))

    def _draw_if_due(self, epoch: int, evaluation: Evaluation, *, is_due: bool) -> tuple[Summary, Sequence[str]]:
        notes = [] if self._is_checked else self._drop_impossible(evaluation)
        self._is_checked = True
        if not is_due:
            return Summary(), notes
        summary, failures = self._draw(epoch, evaluation)
        return summary, [*notes, *failures]

    def _draw(self, epoch: int, evaluation: Evaluation) -> tuple[Summary, Sequence[str]]:
        summary, notes = Summary(), []
        for tag, (_check, draw) in self._pictures.items():
            try:
                summary.value.append(_as_value(tag, draw(epoch, _require(evaluation.scores()), evaluation)))
            except Exception as error:  # a user's dataset may raise anything when it is read: the run must continue
                notes.append(f"no {tag} of epoch {epoch}: {_reason(error)}")
        return summary, notes

    def _drop_impossible(self, evaluation: Evaluation) -> list[str]:
        notes = []
        for tag, (check, _draw) in list(self._pictures.items()):
            try:
                check(_require(evaluation.scores()), evaluation)
            except Exception as error:
                del self._pictures[tag]
                notes.append(f"no {tag}: {_reason(error)}")
        return notes


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, _UnavailableError) else error_line(error)


def _is_due(record: EpochRecord) -> bool:
    is_power_of_two = record.epoch > 0 and record.epoch & (record.epoch - 1) == 0
    return is_power_of_two and (record.epoch_seconds or 0.0) + (record.eval_seconds or 0.0) >= _MIN_EPOCH_SECONDS


def _as_value(tag: str, picture: Image.Image) -> Summary.Value:
    image = Summary.Image(
        height=picture.height, width=picture.width, colorspace=3, encoded_image_string=as_png(picture)
    )
    return Summary.Value(tag=tag, image=image)


def _require(scores: Scores | None) -> Scores:
    if scores is None or not len(scores.labels):
        raise _UnavailableError("the evaluation's predictions are not scores (batch, classes)")
    return scores


def _check_class_count(scores: Scores, _evaluation: Evaluation) -> None:
    if (count := scores.scores.shape[1]) > MAX_CLASSES:
        raise _UnavailableError(f"{count:,} classes are more than the {MAX_CLASSES} that a picture has room for")


def _check_samples(scores: Scores, evaluation: Evaluation) -> None:
    first = Scores(scores.scores[:_NUM_SAMPLES], scores.labels[:_NUM_SAMPLES], _NUM_SAMPLES)
    _find_images(evaluation, least_confident(first, _NUM_SAMPLES))


def _find_images(evaluation: Evaluation, predictions: Sequence[Prediction]) -> torch.Tensor:
    """Return the evaluated images (samples, 1 or 3, height, width) in the order of the predictions."""
    if evaluation.loader is None:
        raise _UnavailableError("the evaluated batches must come from one loader, through epoch.eval_batches")
    found = read_samples(evaluation.loader, [each.index for each in predictions])
    if found is None:
        raise _UnavailableError("the evaluation's loader shuffles, or its samples cannot be read again")
    if found[1].tolist() != [each.label for each in predictions]:
        raise _UnavailableError("the evaluation's loader gives other samples when it is read again")
    images = batch_images(found, len(predictions))
    if images is None:
        raise _UnavailableError("the evaluated samples are not images (channels, height, width)")
    return images


def _draw_predictions(epoch: int, scores: Scores, evaluation: Evaluation) -> Image.Image:
    chosen = least_confident(scores, _NUM_SAMPLES)
    names = class_names(evaluation.loader, scores.scores.shape[1])
    title = [f"Epoch {epoch}: {len(chosen)} samples, lowest true-class probability", _describe(scores)]
    return draw_predictions(_find_images(evaluation, chosen), chosen, names, title=title)


def _draw_confusion(epoch: int, scores: Scores, evaluation: Evaluation) -> Image.Image:
    names = class_names(evaluation.loader, scores.scores.shape[1])
    title = [f"Epoch {epoch}: per cent of each true class", _describe(scores)]
    return draw_confusion(confusion_matrix(scores), names, title=title)


def _describe(scores: Scores) -> str:
    """Describe how many samples the picture covers and how many predictions are correct."""
    known, right = count_correct(scores)  # not from the matrix, which is huge for many classes
    line = f"{right:,} of {pluralize(known, 'sample')} correct"
    left_out = scores.num_evaluated - known
    return f"{line}; {left_out:,} more not included" if left_out else line


_PICTURES: dict[str, tuple[Callable[[Scores, Evaluation], None], Callable[[int, Scores, Evaluation], Image.Image]]] = {
    "predictions": (_check_samples, _draw_predictions),
    "confusion_matrix": (_check_class_count, _draw_confusion),
}
"""By tag: a check that raises if the run cannot have the picture, and the function that draws it."""
