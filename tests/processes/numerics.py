"""How close two computations of the same losses or weights must come: tests/numerics.h, which derives the bound, in Python.

Losses are compared after any optimizer, but weights only after one without Adam's division: Adam divides each gradient by
its own size, and so turns the rounding of a gradient that is nearly zero into a difference of up to the learning rate in that
one weight. To the loss such a weight matters as little as its gradient does.
"""

CLOSE = 1e-5  # kClose
LOSS_FLOOR = 0.1  # kLossFloor
OPTIMIZER = ("--optimizer", "momentum", "--lr", 0.01)  # of runs whose weights are compared


def close(got, want):
    """Whether a loss is the one that it should be."""
    return abs(got - want) <= CLOSE * max(abs(want), LOSS_FLOOR)  # not so for NaN


def assert_losses(test, got, want):
    """The same losses, step by step."""
    test.assertEqual(len(got), len(want))
    for step, (one, other) in enumerate(zip(got, want)):
        test.assertTrue(close(one, other), f"step {step}: {one} is not close to {other}\n{got}\n{want}")


def assert_weights(test, got, want, name):
    """One tensor: the largest difference relative to the largest weight."""
    test.assertEqual(len(got), len(want), name)
    bound = CLOSE * max(map(abs, want))
    for one, other in zip(got, want):
        test.assertTrue(abs(one - other) <= bound, f"{name}: {one} is not close to {other}")  # not so for NaN
