"""A small transformer language model, trained by steps instead of epochs: tokens per second, perplexity and MFU.

python examples/language_model.py
runmanager table outputs/<sweep> --work
"""

import argparse
import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import runmanager

VOCABULARY, CONTEXT, WIDTH, LAYERS = 64, 64, 64, 2


class LanguageModel(nn.Module):
    """Next-token logits (batch, time, vocabulary) of tokens (batch, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.blocks(hidden, mask=self.mask, is_causal=True))


def batches(batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """Endless token sequences (batch, CONTEXT + 1): each token is its predecessor plus 0, 1 or 2."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        steps = torch.randint(3, (batch_size, CONTEXT + 1), generator=generator)
        steps[:, 0] = torch.randint(VOCABULARY, (batch_size,), generator=generator)
        yield steps.cumsum(dim=1) % VOCABULARY


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(lr: float, batch_size: int, steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    params = {"lr": lr, "batch_size": batch_size, "steps": steps, "seed": seed}
    with runmanager.start_run(model, params=params, optimizer=optimizer, record_every=20) as run:
        held_out = next(batches(64, seed=10_000)).to(run.device)
        for step, tokens in zip(range(1, steps + 1), run.batches(batches(batch_size, seed=seed)), strict=False):
            loss = next_token_loss(model, tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.track(loss, samples=batch_size, tokens=batch_size * CONTEXT)
            if step % 20 == 0:
                with run.evaluating(), torch.no_grad():
                    val_loss = next_token_loss(model, held_out).item()
                    runmanager.log(val_loss=val_loss, val_ppl=math.exp(val_loss))
        run.summary["final_ppl"] = math.exp(val_loss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
