"""The training run that `lockstep train --strategy single` must repeat, in plain PyTorch: prints its losses as JSON.

    python3 single.py [--model cnn|transformer] [--dim 128] [--depth 16] [--batch 32] [--steps 50] [--optimizer adam] ...
"""
import argparse
import json

import torch
import torch.nn as nn

from transformer import tokens, transformer

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
              "adagrad": torch.optim.Adagrad, "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)}


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--dim", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--channels", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    o = parser.parse_args()
    o.dim = o.dim or (64 if o.model == "transformer" else 128)
    o.depth = o.depth or (4 if o.model == "transformer" else 16)
    return o


def mlp(dim, depth):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(dim, dim), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(dim, 2))


def cnn(channels, hidden):
    layers, before, side = [], 1, 28
    for count in channels:
        layers += [nn.Conv2d(before, count, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before, side = count, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * side * side, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def draw(o):
    """Weights, then inputs, then targets."""
    torch.manual_seed(o.seed)
    if o.model == "transformer":
        model = transformer(o.dim, o.depth, o.heads, o.vocabulary, o.sequence, o.tied)
        return model, *tokens(o.batch, o.sequence, o.vocabulary)
    if o.model == "mlp":
        return mlp(o.dim, o.depth), torch.randn(o.batch, o.dim), torch.randint(0, 2, (o.batch,))
    return cnn(o.channels, o.hidden), torch.randn(o.batch, 1, 28, 28), torch.randint(0, 10, (o.batch,))


def mean_loss(output, targets):
    """Over the samples, and over the positions of each sample if it has several."""
    return nn.functional.cross_entropy(output.flatten(0, targets.dim() - 1), targets.flatten())


def main():
    o = options()
    model, inputs, targets = draw(o)
    optimizer = OPTIMIZERS[o.optimizer](model.parameters(), lr=o.lr)
    losses = []
    for _ in range(o.steps):
        optimizer.zero_grad()
        loss = mean_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps({"losses": losses}))


if __name__ == "__main__":
    main()
