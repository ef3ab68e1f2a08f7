"""What PyTorch itself draws and deals, for the tests to compare with.

    torch_peer.py draws FILE      weights, inputs and targets of the models below, as raw bytes, one after the other
    torch_peer.py sampler FILE    DistributedSampler's indices for the cases below, as raw int64
"""
import itertools
import pathlib
import sys

try:
    import torch
    from torch import nn
    from torch.utils.data import DistributedSampler
except ImportError:
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oracles"))
from transformer import tokens, transformer  # noqa: E402: from that folder


def raw(tensor):
    """Its bytes. Not tensor.numpy(): a PyTorch need not have NumPy beside it."""
    return bytes(tensor.detach().flatten().view(torch.uint8).tolist())


def mlp(dim, depth, outputs):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(dim, dim), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(dim, outputs))


def cnn(channels, hidden, classes, side):
    layers, inputs = [], 1
    for count in channels:
        layers += [nn.Conv2d(inputs, count, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs, side = count, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * side * side, hidden), nn.ReLU(),
                         nn.Linear(hidden, classes))


def labelled(shape, classes):
    return torch.randn(*shape), torch.randint(0, classes, shape[:1])


def draws(file):
    cases = [
        (42, lambda: mlp(128, 16, 2), lambda: labelled((32, 128), 2)),
        (7, lambda: mlp(5, 1, 3), lambda: labelled((3, 5), 3)),
        (42, lambda: cnn([32, 64], 512, 10, 28), lambda: labelled((32, 1, 28, 28), 10)),
        (1, lambda: cnn([3, 5, 7], 11, 4, 20), lambda: labelled((6, 1, 20, 20), 4)),
        (42, lambda: transformer(64, 4, 4, 256, 32, False), lambda: tokens(32, 32, 256)),
        (3, lambda: transformer(12, 2, 3, 7, 5, True), lambda: tokens(4, 5, 7)),
        (3, lambda: transformer(2, 1, 1, 3, 1, False), lambda: tokens(1, 1, 3)),
    ]
    for seed, make, draw in cases:
        torch.manual_seed(seed)
        model = make()
        inputs, targets = draw()
        # Not parameters(), which lists a tied weight once.
        for tensor in [*model.state_dict().values(), inputs, model(inputs), targets]:
            file.write(raw(tensor))


def sampler(file):
    for samples, ranks, seed, epoch, drop, shuffle in itertools.product(
            [5, 64, 97], [1, 2, 3, 5], [0, 42], [0, 3], [False, True], [False, True]):
        for rank in range(ranks):
            dealt = DistributedSampler(range(samples), ranks, rank, shuffle=shuffle, seed=seed, drop_last=drop)
            dealt.set_epoch(epoch)
            file.write(raw(torch.tensor(list(dealt), dtype=torch.int64)))


with open(sys.argv[2], "wb") as out:
    {"draws": draws, "sampler": sampler}[sys.argv[1]](out)
