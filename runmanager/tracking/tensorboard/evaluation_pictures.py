"""Image summaries of a run's evaluations: what they show, and which evaluations have them.

| picture | what |
| --- | --- |
| `predictions` | the 15 samples with the lowest probability of their true class, with class names and probabilities |
| `confusion_matrix` | the share of each true class by predicted class, with class names; up to 100 classes |

Drawing takes longer than the tracking of a one-second epoch may. The last evaluation is therefore drawn after the
epochs, outside every epoch's time, and before the run's status becomes finished: if the process is killed before,
the run is resumed and draws it then. Of the other evaluations only those of epochs 1, 2, 4, 8, … are drawn, if the
epoch took ten seconds or more.
"""

from collections.abc import Callable, Sequence

import torch
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.records.run.run_record import EpochRecord
from runmanager.text import error_line, pluralize
from runmanager.tracking.epoch_metrics.evaluation import Evaluation, Scores
from runmanager.tracking.epoch_metrics.predictions import Prediction, confusion_matrix, count_correct, least_confident
from runmanager.tracking.introspect.loader_inspection import batch_images, class_names, read_samples
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.tensorboard.picture_drawing import MAX_CLASSES, as_png, draw_confusion, draw_predictions

__all__ = ["EvaluationPictures"]

_NUM_SAMPLES = 15
_MIN_EPOCH_SECONDS = 10.0  # a thousand times what a picture takes


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
