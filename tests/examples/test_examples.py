"""Each example runs as a user runs it, and what it records is recomputed by a loop without the package."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, r2_score
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset, random_split

from .conftest import EXAMPLES, Example

CLOSE = 1e-5


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True)


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}

    assert len(lengths) == 6
    assert max(lengths.values()) <= 80


@of("gan")
def test_two_losses_and_the_modes_found_of_a_gan(example: Example) -> None:
    run = example.run("--epochs", "2")

    gan = example.module
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(gan.ring(2048, torch.Generator().manual_seed(0))), batch_size=256, shuffle=True)
    networks = gan.build_networks()
    generator, discriminator = networks["generator"], networks["discriminator"]
    optimizers = {
        name: torch.optim.Adam(networks[name].parameters(), lr=1e-3, betas=(0.5, 0.999))
        for name in ("discriminator", "generator")
    }
    d_losses, g_losses, modes = [], [], []
    for _ in range(2):
        of_steps = []
        for (real,) in loader:
            fake = generator(torch.randn(len(real), 8))
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            d_loss = binary_cross_entropy_with_logits(discriminator(real), ones)
            d_loss = d_loss + binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros)
            optimizers["discriminator"].zero_grad()
            d_loss.backward()
            optimizers["discriminator"].step()
            g_loss = binary_cross_entropy_with_logits(discriminator(fake), ones)
            optimizers["generator"].zero_grad()
            g_loss.backward()
            optimizers["generator"].step()
            of_steps.append((d_loss.item(), g_loss.item()))
        d_losses.append(np.mean([step[0] for step in of_steps]))
        g_losses.append(np.mean([step[1] for step in of_steps]))
        with torch.no_grad():
            points = generator(torch.randn(1000, 8)).numpy()
        angles = np.arange(8) * math.pi / 4
        distances = np.hypot(*(points[:, None, axis] - f(angles) for axis, f in enumerate((np.cos, np.sin))))
        modes.append(float(((distances < 0.2).mean(axis=0) >= 0.01).sum()))
    assert run.column("loss") == pytest.approx(d_losses, rel=CLOSE)
    assert run.column("g_loss") == pytest.approx(g_losses, rel=CLOSE)
    assert run.column("val_modes") == modes
    assert run.column("samples") == [2048, 2048]
    # A step of each network: three forward and backward passes of the discriminator's products, or what autograd needs.
    of_generator, of_discriminator = 8 * 64 + 64 * 64 + 64 * 2, 2 * 64 + 64 * 64 + 64
    first_g, first_d = 8 * 64, 2 * 64  # the first layers' inputs need no gradient …
    forward = of_generator + 3 * of_discriminator
    backward = 2 * (
        2 * of_discriminator - first_d
    )  # … of the discriminator's loss, of which no part reaches the generator
    backward += 2 * of_discriminator + 2 * of_generator - first_g
    assert run.record["measurements"]["flop_per_step"] == pytest.approx(2 * 256 * (forward + backward), rel=0.02)


@of("language_model")
def test_a_language_model_by_steps_with_tokens_and_the_work_of_a_step(example: Example) -> None:
    run = example.run("--steps", "50")

    lm = example.module
    torch.manual_seed(0)
    model = lm.LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    held_out, batches = next(lm.batches(64, seed=10_000)), lm.batches(16, seed=0)
    losses, val_losses = [], []
    for step in range(1, 51):
        tokens = next(batches)
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            with torch.no_grad():
                logits = model(held_out[:, :-1])
            val_losses.append(cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten()).item())
    assert run.record["interval"] == "steps"
    assert run.column("loss") == pytest.approx([np.mean(losses[i : i + 20]) for i in (0, 20, 40)], rel=CLOSE)
    assert [each["samples"] for each in run.epochs] == [20 * 16, 20 * 16, 10 * 16]
    assert [each["units"]["tokens"] for each in run.epochs] == [20 * 16 * 64, 20 * 16 * 64, 10 * 16 * 64]
    logged = [value for value in run.column("val_ppl") if value is not None]
    assert logged == pytest.approx([math.exp(each) for each in val_losses], rel=CLOSE)
    assert not run.record.get("notes"), "the graph is that of the model's call, not of its batch"
    assert run.record["summary"]["final_ppl"] == pytest.approx(math.exp(val_losses[-1]), rel=CLOSE)
    # 6 FLOP a token and a weight of the products, and 12 x layers x time x width of the attention, mask unused.
    weights = 2 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 64
    by_hand = 16 * 64 * (6 * weights + 12 * 2 * 64 * 64)
    assert run.record["measurements"]["flop_per_step"] == pytest.approx(by_hand, rel=0.02)


@of("segmentation")
def test_the_mean_iou_of_a_segmentation(example: Example) -> None:
    run = example.run("--epochs", "2")

    seg = example.module
    torch.manual_seed(0)
    loader = DataLoader(seg.shapes(256, seed=0), batch_size=32, shuffle=True)
    test_loader = DataLoader(seg.shapes(64, seed=1), batch_size=64)  # iterating it draws a random number
    model = seg.build_model(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    accuracies, mious, val_losses = [], [], []
    for _ in range(2):
        correct = 0
        for inputs, targets in loader:
            logits = model(inputs)
            optimizer.zero_grad()
            cross_entropy(logits, targets).backward()
            optimizer.step()
            correct += int((logits.argmax(dim=1) == targets).sum())
        accuracies.append(correct / (256 * 32 * 32))
        ((images, labels),) = test_loader
        with torch.no_grad():
            logits = model(images)
        val_losses.append(cross_entropy(logits, labels).item())
        counts = confusion_matrix(labels.flatten(), logits.argmax(dim=1).flatten(), labels=range(3))
        overlap = counts.diagonal()
        mious.append((overlap / (counts.sum(axis=0) + counts.sum(axis=1) - overlap)).mean())
    assert run.column("accuracy") == pytest.approx(accuracies, rel=CLOSE)
    assert run.column("val_loss") == pytest.approx(val_losses, rel=CLOSE)
    assert run.column("val_miou") == pytest.approx(mious, rel=1e-4)


@of("regression")
def test_a_regression_has_no_accuracy_and_is_kept_once_finished(example: Example) -> None:
    run = example.run("--epochs", "3")

    reg = example.module
    torch.manual_seed(0)
    train_set, test_set = random_split(reg.diabetes(), [342, 100], torch.Generator().manual_seed(0))
    loader = DataLoader(train_set, batch_size=32, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100)  # iterating it draws a random number
    model = reg.build_model(32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    losses, scores = [], []
    for _ in range(3):
        total = 0.0
        model.train()
        for x, y in loader:
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        scheduler.step()
        losses.append(total / 342)
        ((inputs, targets),) = test_loader
        with torch.no_grad():
            scores.append(r2_score(targets, model.eval()(inputs)))
    assert run.column("loss") == pytest.approx(losses, rel=CLOSE)
    assert run.column("val_r2") == pytest.approx(scores, rel=1e-4)
    assert run.column("accuracy") == [None, None, None]
    stored = (run.folder / "epochs.jsonl").read_bytes()
    assert "kept" in example.run("--epochs", "3").printed
    assert (run.folder / "epochs.jsonl").read_bytes() == stored


@of("contrastive")
def test_a_contrastive_loss_with_accumulation_under_bf16(example: Example) -> None:
    run = example.run("--epochs", "2")

    con = example.module
    torch.manual_seed(0)
    loader = DataLoader(con.TwoViews(1024), batch_size=64, shuffle=True)
    encoder = con.build_encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    losses, hits = [], []
    for _ in range(2):
        of_epoch = []
        for number, batch in enumerate(loader, start=1):
            with torch.autocast("cpu", torch.bfloat16):
                first, second = (encoder(batch[view]) for view in ("first", "second"))
                cosines = (first / first.norm(dim=1, keepdim=True)) @ (second / second.norm(dim=1, keepdim=True)).T
            pairs = torch.arange(64)
            loss = cross_entropy(cosines.float() / 0.2, pairs)
            (loss / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            of_epoch.append((loss.item(), (cosines.argmax(dim=1) == pairs).float().mean().item()))
        losses.append(np.mean([each[0] for each in of_epoch]))
        hits.append(np.mean([each[1] for each in of_epoch]))
    assert run.column("loss") == pytest.approx(losses, rel=1e-3)  # the normalization rounds differently in bf16
    assert run.column("top1") == pytest.approx(hits, abs=0.01)
    assert [each["units"]["pairs"] for each in run.epochs] == [16 * 64**2] * 2
    products = 64 * 128 + 128 * 32
    by_hand = 2 * 64 * 2 * (3 * products - 64 * 128)  # two views; the first layer's input needs no gradient
    assert run.record["measurements"]["flop_per_step"] == pytest.approx(by_hand, rel=0.02)
    assert run.record["measurements"]["precision"] == "bf16"


def test_the_examples_are_in_the_readme() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()

    assert all(f"examples/{path.name}" in readme for path in EXAMPLES.glob("*.py"))
