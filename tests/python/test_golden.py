"""Golden run: ten SGD steps of ResNet-20 against the values of PyTorch in tests/golden/resnet20.npz.
Main entry: the tests. How the values were made, and why they can be held to these tolerances: golden/make_golden.py.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

import anello
from anello.nn import functional as F

TESTS = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = TESTS.parent / "examples" / "cifar10"


def load_resnet20():
    """The constructor in the example: it is what people train."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import models
    finally:
        sys.path.remove(str(EXAMPLE))
    return models.resnet20


@pytest.fixture(scope="module")
def golden():
    with np.load(TESTS / "golden" / "resnet20.npz") as file:
        return {key: file[key] for key in file.files}


def section(golden, prefix):
    return {key.removeprefix(prefix): value for key, value in golden.items() if key.startswith(prefix)}


class Run:
    """A model with the golden weights in `dtype`, its optimizer and the normalised batches."""

    def __init__(self, golden, dtype):
        recipe = json.loads(str(golden["about"]))["optimizer"]
        self.model = load_resnet20()().to(getattr(anello, dtype))
        weights = section(golden, "weights/")
        state = {name: anello.tensor(value.astype(dtype)) for name, value in weights.items()}
        report = self.model.load_state_dict(state, strict=False)
        assert not report.unexpected_keys
        assert all(name.endswith("num_batches_tracked") for name in report.missing_keys)
        self.model.train()
        self.optimizer = anello.optim.SGD(
            self.model.parameters(),
            lr=recipe["lr"][dtype],
            momentum=recipe["momentum"],
            weight_decay=recipe["weight_decay"],
        )
        self.images = ((golden["images"] / 255.0 - golden["mean"]) / golden["std"]).astype(dtype)
        self.labels = golden["labels"].astype(np.int64)

    def backward(self, step):
        """Loss of one batch, gradients in the parameters."""
        self.optimizer.zero_grad()
        logits = self.model(anello.tensor(self.images[step]))
        loss = F.cross_entropy(logits, anello.tensor(self.labels[step]))
        loss.backward()
        return loss.item()

    def train(self):
        losses = []
        for step in range(len(self.images)):
            losses.append(self.backward(step))
            self.optimizer.step()
        return np.array(losses)


def test_float64_losses_of_ten_steps_and_the_logits_after_them(golden):
    run = Run(golden, "float64")
    np.testing.assert_allclose(run.train(), golden["float64/losses"], rtol=0, atol=1e-9)

    # The same weights in eval mode: running statistics, which no training loss depends on.
    run.model.eval()
    with anello.no_grad():
        logits = run.model(anello.tensor(run.images[0])).numpy()
    np.testing.assert_allclose(logits, golden["float64/eval_logits"], rtol=0, atol=1e-6)


def test_float32_first_loss_and_gradients(golden):
    run = Run(golden, "float32")
    assert run.backward(0) == pytest.approx(golden["float32/losses"][0], rel=0, abs=1e-6)

    expected = section(golden, "gradients/")
    gradients = {name: p.grad.numpy().astype(np.float64) for name, p in run.model.named_parameters()}
    assert sorted(gradients) == sorted(expected)
    errors = {n: np.linalg.norm(gradients[n] - g) / np.linalg.norm(g.astype(np.float64)) for n, g in expected.items()}
    # Not `error > 1e-3`: a NaN must fail.
    assert not {name: error for name, error in errors.items() if not error <= 1e-3}


def test_float32_losses_of_ten_steps(golden):
    np.testing.assert_allclose(Run(golden, "float32").train(), golden["float32/losses"], rtol=0, atol=1e-4)
