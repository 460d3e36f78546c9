"""Makes resnet20.npz: ten SGD steps of a CIFAR ResNet-20 as PyTorch computes them, for tests/python/test_golden.py.
Main entry: main(). Run `python make_golden.py` to write the file, `--check` to compare a new computation with it.

Needs torch and numpy; Anello and its tests never need torch. What the file holds, all readable by numpy.load:
  about                 JSON text: versions, net, formula of the input, hyperparameters, drift of PyTorch against itself
  mean, std             float64 [3], the normalisation of the images
  images, labels        uint8 [10, 32, 32, 32, 3] (step, image, y, x, channel) and uint8 [10, 32]
  weights/NAME          float32, parameters and buffers at the start; convolutions [out, kh, kw, in], Linear [out, in]
  gradients/NAME        float32, gradient of the first loss, computed in float64 and rounded once, in the same layout
  float64/losses        float64 [10], loss before each of the ten steps at lr 0.1, everything in float64
  float64/eval_logits   float64 [32, 10], logits of the first batch in eval mode after these ten steps
  float32/losses        float64 [10], the same as float64/losses at lr 0.001, everything in float32

All runs start from the same weights. The script fails when PyTorch against itself (threads, memory format) differs by
more than half a tolerance of the test: values so ill-conditioned would prove nothing. Two choices in make_model() make
them well conditioned. (1) One ReLU input that rounding moves over zero changes a gradient by 1e-3 to 1e-2 of its norm,
and six million of them always include a few within float32 rounding of zero; so batch norm biases are placed where a
gap in the values leaves zero free. (2) Batch norm makes a step count for 1 / |w|^2; larger weights keep ten float32
steps close together.
"""

import argparse
import copy
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FILE = pathlib.Path(__file__).with_name("resnet20.npz")
SEED, STEPS, BATCH = 20, 10, 32
MEAN = np.array([0.4914, 0.4822, 0.4465])
STD = np.array([0.2470, 0.2435, 0.2616])
WEIGHT_SCALE = 4.0
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
LR = {"float64": 0.1, "float32": 1e-3}
TOLERANCE = {
    "float64_losses": 1e-9,
    "float64_eval_logits": 1e-6,
    "float32_losses": 1e-4,
    "float32_first_loss": 1e-6,
    "gradients": 1e-3,
}


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which projects (1x1 convolution, batch norm) where the shape changes."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet20(nn.Module):
    """ResNet-20 for 32x32 images (arXiv 1512.03385, section 4.2), with projections for shortcuts (option B)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def make_model(first_batch):
    """Weights that suit a comparison (see the top); batch norms not at (1, 0, 0, 1), where a mix-up would go unnoticed.

    `first_batch` is float64 [n, 3, 32, 32]. Returns the model and the least distance of a ReLU input from zero.
    """
    torch.manual_seed(SEED)
    model = ResNet20()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            module.weight.data.mul_(WEIGHT_SCALE)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    biases, margin = biases_that_clear_zero(model, first_batch)
    model.load_state_dict(biases, strict=False)
    return model, margin


@torch.no_grad()
def biases_that_clear_zero(model, x):
    """Walks the net in float64 and shifts each bias before a ReLU: (biases by name, least distance from zero)."""
    model = copy.deepcopy(model).double().train()
    margins = []

    def clear(values, bias):
        """Shifts each channel of `values` [n, c, h, w] and its bias to the widest gap within 0.3 of zero."""
        for channel in range(len(bias)):
            near = values[:, channel].flatten().sort().values
            near = near[near.abs() < 0.3]
            gaps = near.diff()
            widest = int(gaps.argmax())
            # A coarse grid, so that the last bits of another machine do not change the weights.
            shift = round(float(near[widest] + gaps[widest] / 2) * 2**16) / 2**16
            bias[channel] -= shift
            values[:, channel] -= shift
            margins.append(float(values[:, channel].abs().min()))
        return values.relu()

    x = clear(model.bn1(model.conv1(x)), model.bn1.bias)
    for block in [*model.layer1, *model.layer2, *model.layer3]:
        y = clear(block.bn1(block.conv1(x)), block.bn1.bias)
        x = clear(block.bn2(block.conv2(y)) + block.shortcut(x), block.bn2.bias)
    return {name: p.float() for name, p in model.named_parameters() if name.endswith("bias")}, min(margins)


def make_batches():
    """Smooth random fields, tinted and striped by class, so that the nets see edges, colours and something to learn."""
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, 10, (STEPS, BATCH), dtype=np.uint8)
    field = rng.normal(size=(STEPS, BATCH, 8, 8, 3)).repeat(4, axis=2).repeat(4, axis=3)
    for axis in (2, 3):
        for _ in range(3):
            field = (np.roll(field, 1, axis) + 2 * field + np.roll(field, -1, axis)) / 4
    tint = rng.uniform(-1, 1, (10, 3))[labels][:, :, None, None, :]
    angle = (labels * (np.pi / 10))[:, :, None, None]
    y, x = np.mgrid[:32, :32]
    phase = rng.uniform(0, 2 * np.pi, (STEPS, BATCH, 1, 1))
    stripes = np.sin(0.8 * (x * np.cos(angle) + y * np.sin(angle)) + phase)[..., None]
    grain = rng.normal(size=field.shape)
    pixels = 120 + 40 * field + 25 * tint + 20 * stripes + 4 * grain
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8), labels


def normalize(images):
    """uint8 [..., h, w, c] to float64 [..., c, h, w]."""
    return torch.from_numpy((images / 255.0 - MEAN) / STD).movedim(-1, -3).contiguous()


def to_channels_last(value):
    """A parameter or gradient as NumPy, convolution weights [out, in, kh, kw] turned to [out, kh, kw, in]."""
    array = value.detach().contiguous().numpy()
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array


def train(start, images, labels, dtype, threads=1, memory_format=torch.contiguous_format):
    """Ten steps from a copy of `start`: (losses, first gradients by name, eval logits of the first batch after)."""
    torch.set_num_threads(threads)
    model = copy.deepcopy(start).to(dtype).to(memory_format=memory_format).train()
    name = str(dtype).removeprefix("torch.")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[name], momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    inputs = normalize(images).to(dtype)
    targets = torch.from_numpy(labels.astype(np.int64))
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[step].contiguous(memory_format=memory_format)), targets[step])
        loss.backward()
        if step == 0:
            gradients = {key: to_channels_last(p.grad).copy() for key, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = model(inputs[0]).numpy()
    return np.array(losses), gradients, logits


def relative_errors(gradients, reference):
    return [np.linalg.norm(gradients[k] - reference[k]) / np.linalg.norm(reference[k]) for k in reference]


def measure_drift(model, images, labels, run64, run32):
    """How far PyTorch is from itself with other threads and another memory format: the noise in the values."""
    again64 = train(model, images, labels, torch.float64, 2, torch.channels_last)
    again32 = train(model, images, labels, torch.float32, 2, torch.channels_last)
    return {
        "float64_losses": float(np.abs(again64[0] - run64[0]).max()),
        "float64_eval_logits": float(np.abs(again64[2] - run64[2]).max()),
        "float32_losses": float(np.abs(again32[0] - run32[0]).max()),
        "float32_first_loss": float(max(abs(r[0][0] - run64[0][0]) for r in (run32, again32))),
        "gradients": float(max(relative_errors(run32[1], run64[1]) + relative_errors(again32[1], run64[1]))),
    }


def make_golden():
    torch.use_deterministic_algorithms(True)
    images, labels = make_batches()
    model, margin = make_model(normalize(images[0]))
    run64 = train(model, images, labels, torch.float64)
    run32 = train(model, images, labels, torch.float32)
    drift = measure_drift(model, images, labels, run64, run32)
    for key, tolerance in TOLERANCE.items():
        if not drift[key] < 0.5 * tolerance:
            raise SystemExit(f"{key}: PyTorch is {drift[key]:.1e} from itself, too much to test to {tolerance:.0e}")
    about = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "net": "CIFAR ResNet-20: widths 16, 32, 64, three blocks each; 1x1 conv + batch norm where the shape changes",
        "input": "x = (images / 255 - mean) / std in float64; the float32 run rounds x once",
        "loss": "cross-entropy, mean over the batch",
        "optimizer": {"name": "SGD", "lr": LR, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY},
        "batch_norm": {"eps": 1e-5, "momentum": 0.1},
        "seed": SEED,
        "relu_margin": margin,
        "drift": drift,
    }
    golden = {
        "about": np.array(json.dumps(about, indent=1)),
        "mean": MEAN,
        "std": STD,
        "images": images,
        "labels": labels,
    }
    for key, value in model.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            golden["weights/" + key] = to_channels_last(value)
    for key, value in run64[1].items():
        golden["gradients/" + key] = value.astype(np.float32)
    golden["float64/losses"], golden["float64/eval_logits"], golden["float32/losses"] = run64[0], run64[2], run32[0]
    return golden


def check(golden):
    """Compares a new computation with the file: inputs and weights exactly, values as closely as the test asks."""
    with np.load(FILE) as old:
        if set(old.files) != set(golden):
            raise SystemExit(f"{FILE.name} holds other entries: {sorted(set(old.files) ^ set(golden))}")
        for key in sorted(set(golden) - {"about"}):
            new, kept = golden[key], old[key]
            error = float(np.abs(new.astype(np.float64) - kept.astype(np.float64)).max())
            limit = 0.0
            if key.startswith(("float32/", "float64/")):
                limit = TOLERANCE[key.replace("/", "_")]
            elif key.startswith("gradients/"):
                limit = TOLERANCE["gradients"] * float(np.linalg.norm(kept))
            if new.dtype != kept.dtype or error > limit:
                raise SystemExit(f"{key}: differs by {error:.1e}, more than {limit:.1e}")
    print(f"{FILE.name} agrees with torch {torch.__version__}")


def main():
    parser = argparse.ArgumentParser(description="Make resnet20.npz with PyTorch.")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    only_check = parser.parse_args().check
    golden = make_golden()
    print(str(golden["about"]))
    for key in ("float64/losses", "float32/losses"):
        print(key, golden[key].tolist())
    if only_check:
        check(golden)
    else:
        np.savez_compressed(FILE, **golden)
        print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
