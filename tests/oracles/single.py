"""The training run that `lockstep train --strategy single` must repeat, in plain PyTorch: prints its losses as JSON.

    python3 single.py [--model cnn] [--dim 128] [--depth 16] [--batch 32] [--steps 50] [--optimizer adam] ...
"""
import argparse
import json

import torch
import torch.nn as nn

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
              "adagrad": torch.optim.Adagrad, "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)}


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--channels", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


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
    if o.model == "mlp":
        return mlp(o.dim, o.depth), torch.randn(o.batch, o.dim), torch.randint(0, 2, (o.batch,))
    return cnn(o.channels, o.hidden), torch.randn(o.batch, 1, 28, 28), torch.randint(0, 10, (o.batch,))


def main():
    o = options()
    model, inputs, targets = draw(o)
    optimizer = OPTIMIZERS[o.optimizer](model.parameters(), lr=o.lr)
    losses = []
    for _ in range(o.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps({"losses": losses}))


if __name__ == "__main__":
    main()
