"""The nets of the CIFAR-10 example: resnet20, resnet18 (the CIFAR variants) and airbench. Images are [n, 32, 32, 3].
Main entry: MODELS, build(name)."""

import numpy as np

import anello
from anello import nn
from anello.nn import functional as F


def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which projects where the shape changes."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(cin, cout, stride), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = conv3x3(cout, cout), nn.BatchNorm2d(cout)
        self.projects = stride != 1 or cin != cout
        if self.projects:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.shortcut(x) if self.projects else x))


class ResNet(nn.Module):
    """A residual net for 32x32 images (arXiv 1512.03385, section 4.2, with projection shortcuts): [n, 32, 32, 3] to
    logits [n, classes]. `widths`: channels of each stage; `blocks`: blocks a stage."""

    def __init__(self, widths, blocks, classes=10):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(3, widths[0]), nn.BatchNorm2d(widths[0])
        self.stages, cin = [], widths[0]
        for i, width in enumerate(widths):
            stage = [Block(cin, width, 2 if i > 0 else 1)] + [Block(width, width, 1) for _ in range(blocks - 1)]
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
            self.stages.append(f"layer{i + 1}")
            cin = width
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = getattr(self, stage)(x)
        return self.fc(F.global_avg_pool2d(x))


def resnet20():
    return ResNet([16, 32, 64], 3)


def resnet18():
    return ResNet([64, 128, 256, 512], 2)


def airbench_norm(channels):
    """Batch norm without a scale, with statistics that follow fast: running = 0.6 old + 0.4 new."""
    norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    norm.weight.requires_grad_(False)
    return norm


def airbench_conv(cin, cout):
    """A 3x3 convolution whose first `cin` filters start as the identity."""
    conv = conv3x3(cin, cout)
    with anello.no_grad():
        for channel in range(cin):
            conv.weight[channel] = 0.0
            conv.weight[channel, 1, 1, channel] = 1.0
    return conv


class Group(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.norm1 = airbench_conv(cin, cout), airbench_norm(cout)
        self.conv2, self.norm2 = airbench_conv(cout, cout), airbench_norm(cout)

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Airbench(nn.Module):
    """The net of airbench94 (arXiv 2404.00498): a frozen whitening layer, three groups, a linear head."""

    def __init__(self, widths=(64, 256, 256), classes=10):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2, padding=0, bias=True)
        self.whiten.weight.requires_grad_(False)
        self.group1 = Group(24, widths[0])
        self.group2 = Group(widths[0], widths[1])
        self.group3 = Group(widths[1], widths[2])
        self.head = nn.Linear(widths[2], classes, bias=False)
        with anello.no_grad():
            self.whiten.bias.zero_()
            self.head.weight.mul_(1.0 / self.head.weight.var(correction=1).sqrt().item())

    def whiten_from(self, images):
        """Sets the first layer to the eigenvectors of the 2x2-patch covariance of normalised images [n, h, w, 3], each
        divided by sqrt(eigenvalue + 5e-4), and their negatives."""
        x = images.numpy().astype(np.float64)
        corners = [x[:, i : x.shape[1] - 1 + i, j : x.shape[2] - 1 + j, :] for i in (0, 1) for j in (0, 1)]
        patches = np.concatenate(corners, axis=3).reshape(-1, 12)  # the order of a weight's [kh, kw, c]
        values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors / np.sqrt(values + 5e-4)).T[::-1]  # the largest first
        weight = np.concatenate([filters, -filters]).reshape(24, 2, 2, 3)
        with anello.no_grad():
            self.whiten.weight.copy_(anello.tensor(weight.astype(np.float32)))

    def forward(self, x):
        x = F.gelu(self.whiten(x))
        x = self.group3(self.group2(self.group1(x)))
        x = F.max_pool2d(x, 3).flatten(1)
        return self.head(x) / x.shape[1]


def airbench():
    return Airbench()


MODELS = {"airbench": airbench, "resnet18": resnet18, "resnet20": resnet20}


def build(name):
    return MODELS[name]()
