"""What is captured unasked from logs of many shapes: each log is made up, and each last value is known."""

import math
from pathlib import Path

import pytest

from runmanager.app.programs.script.output.named_numbers import NamedNumbers
from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.records.files.paths import RunPaths

NAN = math.nan


def captured(folder: Path, log: str, *, settings: tuple[str, ...] = ()) -> dict[str, float]:
    """The last values of what a script that prints `log` is found to have printed."""
    printed = PrintedMetrics([], RunPaths(folder), settings=settings)
    printed.scanners["stdout"](log.encode())
    printed.close()
    assert not printed.metrics()
    return {name: NAN if value is None else value for name, value in printed.unasked().items()}


SHAPES = {
    "bars between fields": (
        "epoch 1 | train loss: 0.52 | val_acc 0.81\nepoch 2 | train loss: 0.31 | val_acc 0.92\n",
        {"train loss": 0.31, "val_acc": 0.92},
    ),
    "commas between fields": (
        "Epoch 1/2, loss=1.25, acc=0.5, lr=0.001, time=3.2s\nEpoch 2/2, loss=0.75, acc=0.625, lr=0.0005, time=3.1s\n",
        {"loss": 0.75, "acc": 0.625},
    ),
    "an example of MNIST": (
        "Train Epoch: 1 [0/600 (0%)]\tLoss: 2.30\nTrain Epoch: 1 [320/600 (53%)]\tLoss: 1.10\n\n"
        "Test set: Average loss: 0.0489, Accuracy: 98/100 (98%)\n",
        {"Train Loss": 1.10, "Test Average loss": 0.0489, "Test Accuracy": 0.98},
    ),
    "an example of ImageNet": (
        "Epoch: [0][ 1/20]\tTime  0.31 ( 0.40)\tData  0.01 ( 0.02)\tLoss 6.91e+00 (6.95e+00)\tAcc@1   1.00 (  0.75)\n"
        "Test: [ 5/5]\tTime  0.10 ( 0.11)\tLoss 5.11e+00 (5.25e+00)\tAcc@1   9.00 (  8.50)\tAcc@5  20.00 ( 21.50)\n"
        " *   Acc@1 8.625 Acc@5 21.750\n",
        {"Loss": 6.95, "Acc@1": 8.625, "Test Loss": 5.25, "Test Acc@1": 8.5, "Test Acc@5": 21.5, "Acc@5": 21.75},
    ),
    "timm": (
        "Train: 3 [ 50/100 ( 50%)]  Loss: 3.21 (3.35)  Time: 0.5s,  512.10/s  (0.5s,  509.00/s)  LR: 1.0e-03  "
        "Data: 0.01 (0.02)\nTest: [  48/48]  Time: 0.12 (0.20)  Loss:   1.201 ( 1.402)  Acc@1:  60.00 ( 65.10)\n"
        "*** Best metric: 70.1 (epoch 2)\n",
        {"Train Loss": 3.35, "Test Loss": 1.402, "Test Acc@1": 65.1},
    ),
    "tqdm": (
        "Epoch 0:  50%|█████     | 5/10 [00:01<00:01,  4.80it/s, loss=0.9, v_num=0]\r"
        "Epoch 0: 100%|██████████| 10/10 [00:02<00:00,  4.90it/s, loss=0.7, v_num=0]\n",
        {"loss": 0.7},
    ),
    "tqdm of ASCII signs": (
        " 50%|#####     | 5/10 [00:01<00:01,  4.80batch/s, train_loss=0.9, acc=0.25]\r"
        "100%|##########| 10/10 [00:02<00:00,  4.90batch/s, train_loss=0.7, acc=0.5]\n",
        {"train_loss": 0.7, "acc": 0.5},
    ),
    "tqdm with a description": (
        "loss 0.8125:  10%|█         | 1/10 [00:01<00:09,  1.00it/s]\r"
        "loss 0.4375: 100%|██████████| 10/10 [00:09<00:00,  1.10it/s]\n",
        {"loss": 0.4375},
    ),
    "rich": (
        "\x1b[2KTraining \x1b[35m━━━━━━━━━\x1b[0m\x1b[90m╺━━━━━━━\x1b[0m 50% 0:00:05 loss: 0.66\r"
        "\x1b[2KTraining \x1b[35m━━━━━━━━━━━━━━━━━\x1b[0m 100% 0:00:00 loss: 0.33\n",
        {"Training loss": 0.33},
    ),
    "Lightning": (
        "Epoch 1: 100%|██████████| 8/8 [00:01<00:00,  7.10it/s, v_num=3, train_loss=0.51, val_loss=0.62, val_acc=0.7]\n"
        "`Trainer.fit` stopped: `max_epochs=2` reached.\n",
        {"train_loss": 0.51, "val_loss": 0.62, "val_acc": 0.7},
    ),
    "a table of Lightning": (
        "┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓\n┃   Test metric   ┃  DataLoader 0   ┃\n"
        "│    test_acc     │     0.9125      │\n│    test_loss    │     0.2875      │\n",
        {"test_acc": 0.9125, "test_loss": 0.2875},
    ),
    "early stopping of Lightning": (
        "Metric val_loss improved. New best score: 0.455\nMetric val_loss improved by 0.03 >= min_delta = 0.0. "
        "New best score: 0.425\nMonitored metric val_loss did not improve in the last 3 records. Best score: 0.425.\n",
        {},
    ),
    "Keras": (
        "Epoch 1/2\n10/10 [==============================] - 1s 5ms/step - loss: 0.9 - accuracy: 0.5 - val_loss: 0.8 "
        "- val_accuracy: 0.6\nEpoch 2/2\n 5/10 [==============>...............] - ETA: 0s - loss: 0.7 - accuracy: 0.7"
        "\b\b\r10/10 [==============================] - 1s 5ms/step - loss: 0.6 - accuracy: 0.75 - val_loss: 0.7 "
        "- val_accuracy: 0.65\n",
        {"loss": 0.6, "accuracy": 0.75, "val_loss": 0.7, "val_accuracy": 0.65},
    ),
    "Keras 3": (
        "\x1b[1m10/10\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 4ms/step - "
        "accuracy: 0.75 - loss: 0.5 - val_accuracy: 0.7 - val_loss: 0.55 - learning_rate: 0.001\n",
        {"accuracy": 0.75, "loss": 0.5, "val_accuracy": 0.7, "val_loss": 0.55},
    ),
    "a checkpoint of Keras": (
        "Epoch 1: val_loss improved from inf to 0.81, saving model to best.keras\n"
        "Epoch 2: val_loss did not improve from 0.81\n",
        {},
    ),
    "Trainer": (
        "{'loss': 0.61, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 1.0}\n"
        "{'eval_loss': 0.52, 'eval_f1': 0.83, 'eval_runtime': 1.23, 'eval_samples_per_second': 81.2, 'epoch': 1.0}\n"
        "{'train_runtime': 9.8, 'train_samples_per_second': 20.4, 'train_steps_per_second': 2.5, 'train_loss': 0.48, "
        "'epoch': 2.0}\n",
        {"loss": 0.61, "eval_loss": 0.52, "eval_f1": 0.83, "train_loss": 0.48},
    ),
    "the end of a Trainer's example": (
        "***** eval metrics *****\n  epoch                   =        3.0\n  eval_accuracy           =     0.8625\n"
        "  eval_loss               =     0.4375\n  eval_runtime            = 0:00:01.23\n"
        "  eval_samples_per_second =     81.301\n",
        {"eval_accuracy": 0.8625, "eval_loss": 0.4375},
    ),
    "accelerate": (
        "epoch 0: {'accuracy': 0.68, 'f1': 0.81}\nepoch 1: {'accuracy': 0.84, 'f1': 0.88}\n",
        {"accuracy": 0.84, "f1": 0.88},
    ),
    "one JSON a line": (
        '{"epoch": 1, "train": {"loss": 0.9}, "val": {"acc": 0.5, "loss": 1.0}, "lr": 0.1, "seconds": 3.5}\n'
        '{"epoch": 2, "train": {"loss": 0.7}, "val": {"acc": 0.6, "loss": NaN}, "lr": 0.1, "seconds": 3.6}\n',
        {"train/loss": 0.7, "val/acc": 0.6, "val/loss": NAN},
    ),
    "JSON with the samples as a value": (
        '{"split": "train", "step": 20, "loss": 0.9}\n{"split": "val", "step": 20, "loss": 1.1}\n',
        {"train loss": 0.9, "val loss": 1.1},
    ),
    "timm's log of statistics": (
        'json_stats: {"_type": "test_epoch", "epoch": "3/10", "lr": 0.01, "top1_err": 25.5, "min_top1_err": 24.0}\n',
        {"top1_err": 25.5},
    ),
    "an object over several lines, as timm's list of its best epochs": (
        'Test: loss 0.5 top5 90.5\n[\n    {\n        "epoch": 3,\n        "validation": {\n            "loss": 0.25,\n'
        '            "top1": 70.5,\n            "top5": 95.5\n        }\n    }\n]\n',
        {"Test loss": 0.5, "Test top5": 90.5},
    ),
    "an OrderedDict": (
        "OrderedDict([('train_loss', 0.9), ('eval_loss', 0.8), ('eval_top1', 60.5)])\n",
        {"train_loss": 0.9, "eval_loss": 0.8, "eval_top1": 60.5},
    ),
    "logging": (
        "2026-03-01 10:00:01,250 - INFO - trainer - Epoch 3: val_loss 0.41, val_acc 91.5%\n"
        "2026-03-01 10:00:09,500 - INFO - trainer - Epoch 4: val_loss 0.39, val_acc 92.5%\n",
        {"val_loss": 0.39, "val_acc": 0.925},
    ),
    "logging without a format": ("INFO:root:loss 0.75\nINFO:root:loss 0.5\n", {"loss": 0.5}),
    "loguru": (
        "2026-03-01 10:00:01.250 | INFO     | __main__:main:42 - step 10 loss 0.75 (12.5 it/s)\n"
        "2026-03-01 10:00:02.250 | INFO     | __main__:main:42 - step 20 loss 0.5 (12.7 it/s)\n",
        {"loss": 0.5},
    ),
    "glog": ("I0301 10:00:01.250000 12345 train.py:57] step 10: loss = 0.75, seconds = 1.5\n", {"loss": 0.75}),
    "detectron2": (
        "[03/01 10:00:01 d2.utils.events]:  eta: 0:01:10  iter: 19  total_loss: 1.25  loss_cls: 0.5  "
        "loss_box_reg: 0.25    time: 0.25  data_time: 0.01  lr: 0.0002  max_mem: 1200M\n"
        "[03/01 10:00:09 d2.evaluation.testing]: copypaste: AP,AP50,AP75\n",
        {"total_loss": 1.25, "loss_cls": 0.5, "loss_box_reg": 0.25},
    ),
    "COCO": (" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.412\n", {}),
    "mmengine": (
        "2026/03/01 10:00:00 - mmengine - INFO - Epoch(train) [1][10/20]  lr: 1.0e-02  eta: 0:01:00  time: 0.1  "
        "data_time: 0.01  memory: 900  loss: 0.75\n"
        "2026/03/01 10:00:09 - mmengine - INFO - Epoch(val) [1][5/5]    accuracy/top1: 61.5  time: 0.2\n",
        {"train loss": 0.75, "val accuracy/top1": 61.5},
    ),
    "fairseq": (
        "2026-03-01 10:00:00 | INFO | train_inner | epoch 001:     100 / 500 loss=9.5, nll_loss=8.75, ppl=431.5, "
        "wps=1200.5, ups=3.1, lr=1e-05, gnorm=1.5, train_wall=30, wall=35\n",
        {"train loss": 9.5, "train nll_loss": 8.75, "train ppl": 431.5},
    ),
    "nanoGPT": (
        "step 0: train loss 4.25, val loss 4.5\niter 10: loss 3.75, time 90.10ms, mfu -100.00%\n"
        "step 20: train loss 3.25, val loss 3.5\n",
        {"train loss": 3.25, "val loss": 3.5, "loss": 3.75},
    ),
    "a GAN": (
        "[Epoch 1/3] [Batch 2/9] [D loss: 0.75] [G loss: 1.25]\n[Epoch 3/3] [Batch 8/9] [D loss: 0.5] [G loss: 1.5]\n",
        {"D loss": 0.5, "G loss": 1.5},
    ),
    "a phase before its numbers": (
        "Epoch 0/1\n----------\ntrain Loss: 0.75 Acc: 0.5\nval Loss: 0.5 Acc: 0.75\n\nTraining complete in 1m 5s\n"
        "Best val Acc: 0.875000\n",
        {"train Loss": 0.75, "train Acc": 0.5, "val Loss": 0.5, "val Acc": 0.75},
    ),
    "phases in one line": (
        "Epoch 3 - train: loss=0.31 acc=0.90 | val: loss=0.41 acc=0.88\n",
        {"train loss": 0.31, "train acc": 0.9, "val loss": 0.41, "val acc": 0.88},
    ),
    "a heading over its numbers": (
        "Training:\n  loss: 0.5\n  accuracy: 0.75\nValidation:\n  samples: 500\n  loss: 0.625\n  accuracy: 0.7\n",
        {"Training loss": 0.5, "Training accuracy": 0.75, "Validation loss": 0.625, "Validation accuracy": 0.7},
    ),
    "reinforcement learning": (
        "-----------------------------\n| rollout/           |      |\n|    ep_rew_mean     | 21.5 |\n"
        "| time/              |      |\n|    fps             | 950  |\n|    total_timesteps | 2048 |\n"
        "| train/             |      |\n|    policy_loss     | 0.25 |\n|    learning_rate   | 0.01 |\n",
        {"policy_loss": 0.25},
    ),
    "CleanRL": (
        "global_step=120, episodic_return=21.5\nSPS: 1250\nglobal_step=250, episodic_return=30\n",
        {"episodic_return": 30.0},
    ),
    "tensors": (
        "loss = tensor(0.75, device='cuda:0', grad_fn=<NllLossBackward0>)\nacc: tensor(0.5)\n",
        {"loss": 0.75, "acc": 0.5},
    ),
    "a sentence": (
        "Training finished with accuracy 0.91.\nAccuracy of the network on the 10000 test images: 63 %\n",
        {"accuracy": 0.91},
    ),
    "a table of aligned columns": (
        "epoch  loss   acc\n    1  0.75  0.50\n    2  0.50  0.75\n",
        {"loss": 0.5, "acc": 0.75},
    ),
    "skorch": (
        "  epoch    train_loss    valid_acc    valid_loss    cp     dur\n"
        "-------  ------------  -----------  ------------  ----  ------\n"
        "      1        \x1b[36m0.7016\x1b[0m       \x1b[32m0.5000\x1b[0m        \x1b[35m0.6871\x1b[0m     +  0.0132\n"
        "      2        \x1b[36m0.6916\x1b[0m       0.4500        0.6971        0.0032\n",
        {"train_loss": 0.6916, "valid_acc": 0.45, "valid_loss": 0.6971},
    ),
    "fastai": (
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "0         0.375000    0.250000    0.912500  00:05     \n"
        "Epoch 2/2 : |████████--------| 50.00% [5/10 00:01<00:01 0.3125]\r"
        "1         0.312500    0.187500    0.937500  00:05     \n",
        {"train_loss": 0.3125, "valid_loss": 0.1875, "accuracy": 0.9375},
    ),
    "a table of rich": (
        "┏━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┓\n┃ Epoch ┃ Train loss ┃ Val acc ┃\n┡━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━┩\n"
        "│ 1/2   │ 0.75       │ 50.0 %  │\n│ 2/2   │ 0.5        │ 62.5 %  │\n└───────┴────────────┴─────────┘\n",
        {"Train loss": 0.5, "Val acc": 0.625},
    ),
    "numbers below a table": (
        "epoch  loss  precision  margin_loss\n    1  0.75  0.5  0.2\n"
        "label  precision  recall\n    0  0.25  0.5\n    7   12   15\n",
        {"loss": 0.75, "precision": 0.5},
    ),
    "results below a heading that calls them the best": (
        "epoch 1: val acc 0.875\nepoch 2: val acc 0.75\n=== Best result ===\n  val acc: 0.875\n  val loss: 0.25\n"
        "The best so far:\n  val acc: 0.875\n",
        {"val acc": 0.75},
    ),
    "results below a sentence about the best model": (
        "    epoch          : 1\n    val_loss       : 0.5\nSaving current best: model_best.pth ...\n"
        "    epoch          : 2\n    val_loss       : 0.25\n",
        {"val_loss": 0.25},
    ),
    "targets, thresholds and the best so far": (
        "target accuracy: 0.99\nloss_weight=0.5 score_threshold: 0.3\nprevious loss: 0.7\n"
        "epoch 1 val_acc 0.75 (best 0.80)\nBest val_acc so far: 0.80\nmax accuracy: 0.85\n",
        {"val_acc": 0.75},
    ),
    "a mark at the best epoch": (
        "epoch 1 val_acc 0.75 *best*\nepoch 2 val_acc 0.70\nepoch 3 val_acc 0.80 <- best\n",
        {"val_acc": 0.8},
    ),
    "a sentence at the best epoch alone": (
        "Epoch 1: val_loss 0.5 is the best so far\nEpoch 4: val_loss 0.41 is the best so far\n",
        {},
    ),
    "rates, times and counters": (
        "SPS: 1250\nTime 0.5 eval_steps_per_second: 3.1 v_num: 4 samples_per_second=12 seconds 3.25 throughput: 9.5\n"
        "it/s 3.1 latency 0.25 step_time: 0.1 gpu_mem: 3.5 eta 10.5 num_batches 7\n",
        {},
    ),
    "echoed settings": ("Namespace(lr=0.1, loss=0.5, batch_size=4)\nargs: loss_scale=2.0\nmargin_loss: 0.2\n", {}),
    "error numbers": ("CUDA error: 3\nerror 404\nprocess return code: 1\nexit with error 1\n", {}),
    "names of files": (
        "saved checkpoints/epoch=3-val_loss=0.41.ckpt\nimg_001.png loss 0.5\nimg_002.png loss 0.25\n",
        {"loss": 0.25},
    ),
    "a change in brackets": ("dev f1 = 0.79 (+0.05)\ndev f1 = 0.81 (+0.02)\ndelta 0.02 (-0.01)\n", {"dev f1": 0.81}),
    "what was loaded or came before": (
        "epoch 3 acc 0.81 val_loss 0.75\nLoaded checkpoint 'x.pth' (epoch 2, acc 0.93)\n"
        "Resumed from epoch 2 with val_loss 0.51\nacc 0.93 was the best\n",
        {"acc": 0.81, "val_loss": 0.75},
    ),
    "not finite": ("epoch 1 loss: 0.5\nepoch 2 loss: nan\n", {"loss": NAN}),
    "thousands": ("mean reward: -1,234.5 +/- 10.5\n", {"mean reward": -1234.5}),
    "two of one name": ("loss 0.5 loss 0.6\n", {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_last_value_that_is_captured_is_right(tmp_path: Path, shape: str) -> None:
    log, expected = SHAPES[shape]
    found = captured(tmp_path, log, settings=("margin-loss",))
    assert found == pytest.approx(expected, nan_ok=True)


def test_names_of_items_make_no_shapes_of_their_own(tmp_path: Path) -> None:
    """Nor does a number of many digits lose any of them."""
    log = "".join(f"sample {n * 0x9E3779B97F4A7C15 % 2**64:016x}.jpg loss {1 / n:.3f}\n" for n in range(1, 400))
    named = NamedNumbers()
    assert [value for line in log.splitlines() for _, value in named.find(line)][-1] == 0.003
    assert len(named._shapes) < 10
    assert captured(tmp_path, "reward: 12345678\nloss 1234567e-05\n") == {"reward": 12345678.0, "loss": 12.34567}


def test_a_line_may_be_repeated_with_any_numbers(tmp_path: Path) -> None:
    """From its second line on a shape is one expression: it must read what the first reading does."""
    log = "".join(
        f"id{n} step {n} loss_d1 {n / 7:.3f} loss_d2 {n}e-3 acc1: {n}% acc5: {n + 1}%\n" for n in range(1, 90)
    )
    last = {"loss_d1": 12.714, "loss_d2": 0.089, "acc1": 0.89, "acc5": 0.9}
    assert captured(tmp_path, log) == pytest.approx(last)
