"""What a run shows of its evaluations, and when: pictures of predictions and the confusion matrix.

| picture | what |
| --- | --- |
| `predictions` | the 15 samples whose true class was given the least probability, with class names and probabilities |
| `confusion_matrix` | the share of each true class that was taken for which, with class names; up to 100 classes |

A picture takes longer to draw than an epoch of a second may spend on its tracking. So the last evaluation is drawn when
the epochs are over, which is on no epoch's clock, and before the run reads as finished, so that a kill takes no picture
from a run that nobody will go on with; and on the way only the 1st, 2nd, 4th, 8th … epoch, where it took ten seconds or
more.
"""

from collections.abc import Callable, Sequence

import torch
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.records.run.record import EpochRecord
from runmanager.text import error_line, pluralize
from runmanager.tracking.introspect.first_batch import images_of
from runmanager.tracking.introspect.loader_samples import class_names, samples_at
from runmanager.tracking.metrics.evaluation import Evaluation, Scores
from runmanager.tracking.metrics.predictions import Prediction, confusion_matrix, count_correct, least_confident
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.tensorboard.pictures.confusion_picture import MAX_CLASSES, draw_confusion
from runmanager.tracking.tensorboard.pictures.drawing import as_png
from runmanager.tracking.tensorboard.pictures.prediction_grid import draw_predictions

__all__ = ["EvaluationPictures"]

_SHOWN = 15
_LONG_SECONDS = 10.0  # a picture takes some hundredths of a second, of which this is the thousandfold


class _CannotBeShownError(Exception):
    """Why there is a picture of no evaluation of this run."""


class EvaluationPictures:
    """Draws the evaluations of one run; what cannot be drawn is a note of its first evaluation, and left."""

    def __init__(self, options: TensorBoardOptions) -> None:
        self._chosen = {tag: kind for tag, kind in _KINDS.items() if getattr(options, tag)}
        self._is_tried = False

    def epoch(self, record: EpochRecord, evaluation: Evaluation | None) -> tuple[Summary, Sequence[str]]:
        """What is to be shown of this epoch, empty for nothing, and notes on what could not be drawn."""
        if evaluation is None or not self._chosen:
            return Summary(), ()
        evaluation.scores()  # brought home now, so that the device's memory has none of it while it trains
        return self._shown(record.epoch, evaluation, is_due=_is_worth_it(record))

    def last(self, record: EpochRecord, evaluation: Evaluation) -> tuple[Summary, Sequence[str]]:
        """What is to be shown of the last evaluation at the end, nothing where `epoch` showed it, and notes."""
        return self._shown(record.epoch, evaluation, is_due=not _is_worth_it(record))

    def _shown(self, epoch: int, evaluation: Evaluation, *, is_due: bool) -> tuple[Summary, Sequence[str]]:
        notes = [] if self._is_tried else self._try(evaluation)
        self._is_tried = True
        if not is_due:
            return Summary(), notes
        shown, failed = self._drawn(epoch, evaluation)
        return shown, [*notes, *failed]

    def _drawn(self, epoch: int, evaluation: Evaluation) -> tuple[Summary, Sequence[str]]:
        summary, notes = Summary(), []
        for tag, (_check, draw) in self._chosen.items():
            try:
                summary.value.append(_as_value(tag, draw(epoch, _kept(evaluation.scores()), evaluation)))
            except Exception as error:  # reading somebody's dataset may fail in any way; the run must not
                notes.append(f"no {tag} of epoch {epoch}: {_said(error)}")
        return summary, notes

    def _try(self, evaluation: Evaluation) -> list[str]:
        """See whether there are pictures of this run's evaluations, and give up those that there are not."""
        notes = []
        for tag, (check, _draw) in list(self._chosen.items()):
            try:
                check(_kept(evaluation.scores()), evaluation)
            except Exception as error:
                del self._chosen[tag]
                notes.append(f"no {tag}: {_said(error)}")
        return notes


def _said(error: Exception) -> str:
    if isinstance(error, _CannotBeShownError):
        return str(error)
    return error_line(error)


def _is_worth_it(record: EpochRecord) -> bool:
    is_power_of_two = record.epoch > 0 and record.epoch & (record.epoch - 1) == 0
    return is_power_of_two and (record.epoch_seconds or 0.0) + (record.eval_seconds or 0.0) >= _LONG_SECONDS


def _as_value(tag: str, picture: Image.Image) -> Summary.Value:
    image = Summary.Image(
        height=picture.height, width=picture.width, colorspace=3, encoded_image_string=as_png(picture)
    )
    return Summary.Value(tag=tag, image=image)


def _kept(scores: Scores | None) -> Scores:
    if scores is None or not len(scores.labels):
        raise _CannotBeShownError("the evaluation's predictions are no scores (batch, classes)")
    return scores


def _few_classes(scores: Scores, _evaluation: Evaluation) -> None:
    if (count := scores.scores.shape[1]) > MAX_CLASSES:
        raise _CannotBeShownError(f"{count:,} classes are more than the {MAX_CLASSES} that a picture has room for")


def _samples_of_first(scores: Scores, evaluation: Evaluation) -> None:
    _images(evaluation, least_confident(Scores(scores.scores[:_SHOWN], scores.labels[:_SHOWN], _SHOWN), _SHOWN))


def _images(evaluation: Evaluation, predictions: Sequence[Prediction]) -> torch.Tensor:
    """The images that were evaluated, (samples, 1 or 3, height, width), in the order of the predictions."""
    if evaluation.loader is None:
        raise _CannotBeShownError("the evaluated batches must come from one loader, through epoch.eval_batches")
    found = samples_at(evaluation.loader, [each.index for each in predictions])
    if found is None:
        raise _CannotBeShownError("the evaluation's loader shuffles, or cannot be looked into")
    if found[1].tolist() != [each.label for each in predictions]:
        raise _CannotBeShownError("the evaluation's loader does not give the samples again that it gave before")
    images = images_of(found, len(predictions))
    if images is None:
        raise _CannotBeShownError("the evaluated samples are no images (channels, height, width)")
    return images


def _predictions(epoch: int, scores: Scores, evaluation: Evaluation) -> Image.Image:
    chosen = least_confident(scores, _SHOWN)
    names = class_names(evaluation.loader, scores.scores.shape[1])
    title = [f"Epoch {epoch}: the {len(chosen)} whose class got the least probability", _account(scores)]
    return draw_predictions(_images(evaluation, chosen), chosen, names, title=title)


def _confusion_matrix(epoch: int, scores: Scores, evaluation: Evaluation) -> Image.Image:
    names = class_names(evaluation.loader, scores.scores.shape[1])
    title = [f"Epoch {epoch}: what each class was taken for, in per cent", _account(scores)]
    return draw_confusion(confusion_matrix(scores), names, title=title)


def _account(scores: Scores) -> str:
    """Of which samples a picture is, and how many were predicted right."""
    known, right = count_correct(scores)  # not by the matrix, which is huge where there are many classes
    said = f"{right:,} of {pluralize(known, 'sample')} right"
    left_out = scores.num_evaluated - known
    return f"{said}; {left_out:,} more not looked at" if left_out else said


_KINDS: dict[str, tuple[Callable[[Scores, Evaluation], None], Callable[[int, Scores, Evaluation], Image.Image]]] = {
    "predictions": (_samples_of_first, _predictions),
    "confusion_matrix": (_few_classes, _confusion_matrix),
}
"""The pictures by tag: what raises where there can be none in this run, and what draws one."""
