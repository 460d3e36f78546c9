"""The CIFAR ResNet-20 of the golden run, written against the public API as a user would.
Main entry: resnet20()."""

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


def stage(cin, cout, stride):
    return nn.Sequential(Block(cin, cout, stride), Block(cout, cout, 1), Block(cout, cout, 1))


class ResNet20(nn.Module):
    """Images [n, 32, 32, 3] to logits [n, 10] (arXiv 1512.03385, section 4.2, projections for shortcuts)."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(3, 16), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(1, 2)))


def resnet20():
    return ResNet20()
