"""Steps of one net in PyTorch, the peer. Main entry: train_torch.py '{"net": "resnet18", "batch": 64, ...}'."""

import json
import sys

import torch
from timed import resident_bytes, serve
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, projected where the shape changes (arXiv 1512.03385)."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(c_out), nn.BatchNorm2d(c_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


def build(widths, blocks):
    parts = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
    c_in = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            parts.append(Block(c_in, width, 2 if stage > 0 and block == 0 else 1))
            c_in = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, 10))


NETS = {"resnet18": ([64, 128, 256, 512], 2), "resnet20": ([16, 32, 64], 3)}


def main():
    after_import = resident_bytes()
    a = json.loads(sys.argv[1])
    torch.set_num_threads(a["threads"])
    torch.manual_seed(0)
    model, x = build(*NETS[a["net"]]), torch.randn(a["batch"], 3, 32, 32)
    labels = torch.randint(0, 10, (a["batch"],))
    if a.get("channels_last", True):
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    run = torch.compile(model) if a.get("compile") else model
    low = a["precision"] == "bfloat16"

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            return run(x).float()

    if a["mode"] == "inference":
        model.eval()

        def step():
            with torch.inference_mode():
                forward()
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(forward(), labels)
            loss.backward()
            optimizer.step()
            loss.item()

    for _ in range(3):
        step()
    serve(step, {"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability()}, after_import)


main()
