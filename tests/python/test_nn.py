"""Modules from Python: attributes, subclasses, C++ calling Python, state, text, garbage collection.
Main entry: pytest."""

import gc
import weakref

import pytest

import anello
from anello import nn
from anello.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc1 = nn.Linear(3, width)
        self.fc2 = nn.Linear(width, 2, bias=False)
        self.scale = nn.Parameter(anello.ones(1))
        self.register_buffer("count", anello.tensor(0))
        self.note = "plain"

    def forward(self, x, shift=0):
        return self.fc2(F.relu(self.fc1(x))) * self.scale + shift


# --- Attributes ---


def test_attributes_register():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "fc1.weight", "fc1.bias", "fc2.weight"]
    assert [n for n, _ in net.named_buffers()] == ["count"]
    assert [n for n, _ in net.named_children()] == ["fc1", "fc2"]
    assert [n for n, _ in net.named_modules()] == ["", "fc1", "fc2"]
    assert net.num_parameters() == sum(p.numel() for p in net.parameters()) == 1 + 12 + 4 + 8
    assert net.note == "plain"
    assert {"fc1", "scale", "count", "note", "forward"} <= set(dir(net))
    assert next(net.parameters()) is net.scale
    assert next(net.modules()) is net


def test_identity_of_parts():
    net = Net()
    assert net.fc1 is net.fc1
    assert net.scale is net.scale
    assert type(net.fc1) is nn.Linear
    assert type(net.fc1.weight) is nn.Parameter
    assert isinstance(net.fc1.weight, anello.Tensor)
    net.fc1.tag = [1]
    gc.collect()
    assert net.fc1.tag == [1]
    assert net.fc2.bias is None


def test_replacing_and_tying():
    net = Net(width=3)
    shared = nn.Parameter(anello.zeros(3, 3))
    net.fc1.weight = shared
    assert net.fc1.weight is shared
    assert net.fc1(anello.ones(1, 3)).tolist() == net.fc1.bias.reshape(1, 3).tolist()
    net.fc3 = nn.Linear(3, 3)
    net.fc3.weight = shared
    assert [n for n, _ in net.named_parameters()].count("fc3.weight") == 0
    net.fc1 = nn.Linear(3, 3)
    assert net.fc1.weight is not shared
    net.fc1.bias = None
    assert net.fc1.bias is None
    assert net.fc1(anello.ones(1, 3)).shape == (1, 3)


def test_wrong_assignments():
    net = Net()
    with pytest.raises(TypeError, match=r"nn\.Parameter"):
        net.scale = anello.zeros(1)
    with pytest.raises(TypeError, match="buffer"):
        net.count = 3
    with pytest.raises(TypeError, match="module"):
        net.fc1 = 3
    with pytest.raises(ValueError, match="class"):
        net.forward = nn.Linear(1, 1)
    with pytest.raises(anello.ValueError, match="cycle"):
        net.loop = net
    with pytest.raises(AttributeError, match="nothing"):
        getattr(net, "nothing")  # noqa: B009
    with pytest.raises(AttributeError):
        net.training = False
    assert net.fc1.weight.shape == (4, 3)


def test_removing():
    net = Net()
    del net.fc2, net.scale, net.note, net.count
    assert [n for n, _ in net.named_parameters()] == ["fc1.weight", "fc1.bias"]
    with pytest.raises(AttributeError):
        getattr(net, "fc2")  # noqa: B009
    net.fc1 = None
    assert net.fc1 is None
    net.fc1 = nn.Linear(1, 1)
    assert net.fc1.weight.shape == (1, 1)
    with pytest.raises(anello.Error):
        del nn.Linear(1, 1).weight


def test_the_base_must_be_initialised():
    class Forgot(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with pytest.raises(anello.Error, match=r"super\(\).__init__"):
        Forgot()

    class Never(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match="__init__"):
        Never()


def test_forward_takes_what_it_likes():
    net = Net()
    x = anello.ones(5, 3)
    assert (abs(net(x, shift=1) - net(x) - 1) < 1e-6).all()
    assert net(x, 2).shape == (5, 2)
    with pytest.raises(anello.Error, match=r"\[Empty\] forward is not defined"):
        type("Empty", (nn.Module,), {})()(x)


# --- C++ calling Python ---


class Double(nn.Module):
    def forward(self, x):
        return x * 2


class Shout(nn.Linear):
    calls = 0

    def forward(self, x):
        Shout.calls += 1
        return super().forward(x) * 10


def test_sequential_calls_python_modules():
    net = nn.Sequential(Double(), nn.Sequential(Double(), nn.ReLU()))
    assert net(anello.tensor([1.0, -1.0])).tolist() == [4, 0]
    gc.collect()
    assert isinstance(net[0], Double)
    assert net(anello.tensor([1.0])).tolist() == [4]


def test_layers_can_be_subclassed():
    layer = Shout(2, 1, bias=False)
    layer.weight = nn.Parameter(anello.ones(1, 2))
    assert nn.Sequential(layer)(anello.ones(1, 2)).item() == 20
    assert layer(anello.ones(1, 2)).item() == 20
    assert Shout.calls == 2
    assert repr(layer).startswith("Shout(in_features=2")


def test_errors_pass_through_cpp():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        nn.Sequential(nn.ReLU(), Fails())(anello.ones(1))

    class Returns(nn.Module):
        def forward(self, x):
            return "text"

    with pytest.raises(TypeError, match=r"\[Sequential.forward\].*str"):
        nn.Sequential(Returns())(anello.ones(1))


def test_train_and_extra_repr_are_virtual():
    class Frozen(nn.Module):
        def train(self, mode=True):
            return super().train(False)

        def extra_repr(self):
            return "frozen=True"

        def forward(self, x):
            return x

    net = nn.Sequential(Frozen(), nn.Dropout())
    net.train()
    assert not net[0].training
    assert net[1].training
    assert "(0): Frozen(frozen=True)" in repr(net)
    assert net.eval() is net
    assert not net[1].training


# --- Containers ---


def test_containers():
    a, b = nn.Linear(2, 2), nn.ReLU()
    net = nn.Sequential(a, b)
    assert len(net) == 2
    assert net[0] is a
    assert net[-1] is b
    assert list(net) == [a, b]
    part = nn.Sequential(a, b, nn.Tanh())[1:]
    assert type(part) is nn.Sequential and part[0] is b and len(part) == 2
    assert [name for name, _ in part.named_children()] == ["1", "2"]  # PyTorch's: a state_dict still fits
    assert list(net[::-1]) == [b, a] and len(net[2:]) == 0
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh)
    net.append(b)
    assert len(net) == 3
    named = nn.Sequential({"first": a, "second": b})
    assert named.first is a
    assert nn.Sequential([a, b])[1] is b
    layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
    assert len(layers) == 3
    assert len(list(layers.parameters())) == 6
    assert type(layers[:2]) is nn.ModuleList and list(layers[:2]) == list(layers)[:2]
    with pytest.raises(IndexError):
        net[5]
    with pytest.raises(TypeError):
        nn.Sequential(a, F.relu)


def test_apply_and_walking():
    net, seen = nn.Sequential(Double(), nn.Sequential(nn.ReLU())), []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Double", "ReLU", "Sequential", "Sequential"]
    assert net.get_submodule("1.0") is net[1][0]
    with pytest.raises(IndexError, match="there is"):
        net.get_submodule("7")


# --- State ---


def test_state_dict_round_trip(tmp_path):
    a, b = Net(), Net()
    path = tmp_path / "net.safetensors"
    anello.save(a.state_dict(), path)
    report = b.load_state_dict(anello.load(path))
    assert report.missing_keys == report.unexpected_keys == []
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters()):
        assert p.tolist() == q.tolist(), name


def test_state_dict_mismatches_are_listed():
    net = Net()
    state = net.state_dict()
    before = net.fc1.weight.tolist()
    del state["scale"]
    state["extra"] = anello.zeros(1)
    state["fc1.weight"] = anello.zeros(4, 3)
    with pytest.raises(ValueError, match=r"(?s)missing.*scale.*unexpected.*extra"):
        net.load_state_dict(state)
    assert net.fc1.weight.tolist() == before
    report = net.load_state_dict(state, strict=False)
    assert report.missing_keys == ["scale"]
    assert report.unexpected_keys == ["extra"]
    assert net.fc1.weight.tolist() == [[0] * 3] * 4
    with pytest.raises(anello.ShapeError, match=r"fc2\.weight"):
        net.load_state_dict({**net.state_dict(), "fc2.weight": anello.zeros(1)})
    with pytest.raises(TypeError):
        net.load_state_dict({"scale": 3})


def test_to_keeps_identity():
    net = Net()
    weight = net.fc1.weight
    assert net.to(anello.float64) is net
    assert net.fc1.weight is weight
    assert weight.dtype is anello.float64
    assert net.count.dtype is anello.int64
    assert net.to("cpu") is net
    assert net.to(dtype="float32").fc1.weight.dtype is anello.float32
    with pytest.raises(TypeError):
        net.to(anello.int32)
    with pytest.raises(anello.DeviceError):
        net.to("cuda")


def test_zero_grad_and_freezing():
    net = Net()
    net(anello.ones(1, 3)).sum().backward()
    assert net.scale.grad is not None
    net.zero_grad()
    assert net.scale.grad is None
    net.requires_grad_(False)
    assert not net(anello.ones(1, 3)).requires_grad


# --- Layers ---


def test_layer_options_are_those_of_pytorch():
    conv = nn.Conv2d(4, 8, kernel_size=3, stride=2, padding=(1, 0), dilation=1, groups=2, bias=False)
    assert conv.weight.shape == (8, 3, 3, 2)
    assert conv.bias is None
    assert conv(anello.zeros(1, 9, 9, 4)).shape == (1, 5, 4, 8)
    assert nn.Conv2d(1, 1, 3, padding="same")(anello.zeros(1, 5, 5, 1)).shape == (1, 5, 5, 1)
    bn = nn.BatchNorm2d(3, eps=1e-3, momentum=None, affine=False)
    assert bn.weight is None
    assert nn.MaxPool2d(3, stride=2, padding=1)(anello.zeros(1, 7, 7, 1)).shape == (1, 4, 4, 1)
    assert nn.AvgPool2d((2, 1))(anello.zeros(1, 4, 4, 1)).shape == (1, 2, 4, 1)
    loss = nn.CrossEntropyLoss(weight=anello.tensor([1.0, 2.0]), ignore_index=-1, reduction="sum", label_smoothing=0.1)
    assert loss(anello.zeros(3, 2), anello.tensor([0, 1, -1])).dim() == 0
    for call in (
        lambda: nn.Linear(0, 1),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(3, 4, 3, padding="sme"),
        lambda: nn.Dropout(2),
        lambda: nn.MSELoss(reduction="men"),
    ):
        with pytest.raises(ValueError, match=r"\["):
            call()
    with pytest.raises(TypeError):
        nn.Linear(1)


def test_repr_counts_parameters():
    text = repr(Net())
    assert text.startswith("Net(\n")
    assert "(fc1): Linear(in_features=3, out_features=4, bias=True)  [16]" in text
    assert text.endswith("Parameters: 25")


def test_learning_works():
    anello.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    adam = anello.optim.Adam(net.parameters(), lr=0.05)
    x = anello.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = anello.tensor([[0.0], [1.0], [1.0], [0.0]])
    for _ in range(200):
        adam.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        loss.backward()
        adam.step()
    assert loss.item() < 0.05


# --- Life ---


class Ring(nn.Module):
    """Reaches itself through an attribute, through a child's attribute, and through a hook."""

    def __init__(self, inner):
        super().__init__()
        self.fc = nn.Linear(1, 1)
        self.inner = inner
        self.me = [self]

    def forward(self, x):
        return x


def make_ring(depth):
    inner = nn.ReLU() if depth == 0 else nn.Sequential(make_ring(depth - 1), nn.ReLU())
    ring = Ring(inner)
    for module in ring.modules():
        if isinstance(module, Ring):
            module.root = [ring]
    ring.fc.weight.on_grad_ready(lambda t, r=ring: r)
    return ring


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_cycles_are_collected(depth):
    ring = make_ring(depth)
    gone = [weakref.ref(m) for m in ring.modules() if isinstance(m, Ring)]
    assert len(gone) == depth + 1
    gc.collect()
    assert all(ref() is not None for ref in gone)
    assert ring(anello.ones(1)).item() == 1
    del ring
    gc.collect()
    assert all(ref() is None for ref in gone)


def test_parts_that_are_held_survive_the_rest():
    ring = make_ring(2)
    part = ring.inner
    weight = ring.fc.weight
    del ring
    gc.collect()
    assert len(part) == 2
    assert isinstance(part[0], Ring)
    assert part[0].inner[1](anello.ones(1)).item() == 1
    assert weight.shape == (1, 1)
    part[0].root = None
    gc.collect()
    assert part(anello.ones(1)).item() == 1


def test_a_module_lives_in_cpp_alone():
    net = nn.Sequential(Double())
    gone = weakref.ref(net[0])
    gc.collect()
    assert gone() is not None
    assert net(anello.ones(1)).item() == 2
    del net
    gc.collect()
    assert gone() is None
