"""Optimizers, schedules and averages from Python, and the files that hold their state.
Main entry: pytest."""

import gc

import pytest

import anello
from anello import nn, optim


def param(*values):
    return nn.Parameter(anello.tensor(values, dtype=anello.float64))


def step_with(optimizer, p, grad):
    p.grad = anello.tensor(grad, dtype=p.dtype)
    optimizer.step()


# --- Formulas ---


def test_sgd_momentum_by_hand():
    p = param(1.0)
    sgd = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.5, nesterov=True)
    v, w = None, 1.0
    for g in (1.0, -2.0, 0.5):
        step_with(sgd, p, [g])
        d = g + 0.5 * w
        v = d if v is None else 0.9 * v + d
        w -= 0.1 * (d + 0.9 * v)
        assert p.item() == pytest.approx(w, rel=1e-12)


def test_adam_first_step_is_lr():
    p = param(0.0)
    step_with(optim.Adam([p], lr=1e-3), p, [0.1])
    assert p.item() == pytest.approx(-1e-3, rel=1e-6)
    half = nn.Parameter(anello.zeros(1, dtype=anello.float16))
    step_with(optim.Adam([half], eps=1e-8), half, [0.0])
    assert half.item() == 0


def test_adamw_decays_apart():
    p, q = param(1.0), param(1.0)
    step_with(optim.AdamW([p], lr=0.1, weight_decay=0.5), p, [0.0])
    step_with(optim.AdamW([q], lr=0.1), q, [0.0])
    assert p.item() == pytest.approx(1 - 0.1 * 0.5)
    assert q.item() == pytest.approx(1 - 0.1 * 0.01)


def test_muon_orthogonalizes():
    p = nn.Parameter(anello.zeros(4, 4))
    muon = optim.Muon([p], lr=1.0, momentum=0.0, nesterov=False, steps=5)
    anello.manual_seed(0)
    p.grad = anello.randn(4, 4)
    muon.step()
    q = p.detach()
    assert (abs(q @ q.T - anello.eye(4)) < 0.7).all()
    with pytest.raises(anello.ShapeError):
        optim.Muon([param(1.0)])


# --- Groups ---


def test_groups_are_live_dicts():
    a, b = param(1.0), param(2.0)
    sgd = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0, "nesterov": True, "momentum": 0.5}], lr=0.1)
    first, second = sgd.param_groups
    assert (first["lr"], second["lr"]) == (0.1, 1.0)
    assert first["nesterov"] is False
    assert second["nesterov"] is True
    assert first["params"][0] is a
    assert "lr" in first
    assert set(first) == set(first.keys()) == {k for k, _ in first.items()}
    assert first.get("nothing", 7) == 7
    assert dict(first.items())["weight_decay"] == 0
    for group in sgd.param_groups:
        group["lr"] = 10.0
    step_with(sgd, a, [1.0])
    assert a.item() == pytest.approx(-9)
    sgd.add_param_group({"params": [param(3.0)], "lr": 0.5})
    assert len(sgd.param_groups) == 3
    assert "group 2" in repr(sgd)
    adam = optim.Adam([param(0.0)], betas=(0.8, 0.9))
    assert adam.param_groups[0]["betas"] == (0.8, 0.9)
    adam.param_groups[0]["betas"] = (0.5, 0.6)
    assert adam.param_groups[0]["beta2"] == 0.6
    assert adam.defaults["beta1"] == 0.8


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: optim.SGD([]), ValueError, "no parameters"),
        (lambda p: optim.SGD(iter([])), ValueError, "no parameters"),
        (lambda p: optim.SGD([p], lr=-1), ValueError, "lr"),
        (lambda p: optim.SGD([p, p]), ValueError, "twice"),
        (lambda p: optim.SGD([p * 2]), ValueError, "leaves"),
        (lambda p: optim.SGD(["w"]), TypeError, "tensor"),
        (lambda p: optim.SGD([{"params": [p], "momentun": 0.9}]), ValueError, "momentum"),
        (lambda p: optim.SGD([{"lr": 1.0}]), ValueError, "params"),
        (lambda p: optim.SGD([{"params": [p], "lr": "fast"}]), TypeError, "lr"),
        (lambda p: optim.SGD([p], nesterov=True), ValueError, "nesterov"),
        (lambda p: optim.SGD([p], learning_rate=1), TypeError, "unknown option"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.5)), ValueError, "beta2"),
    ],
)
def test_bad_options(make, error, words):
    with pytest.raises(error, match=words):
        make(param(1.0))


def test_unknown_group_option_names_the_nearest():
    sgd = optim.SGD([param(1.0)])
    with pytest.raises(ValueError, match="weight_decay"):
        sgd.param_groups[0]["weight_decey"] = 1
    with pytest.raises(ValueError, match="add_param_group"):
        sgd.param_groups[0]["params"] = []


def test_closure_and_zero_grad():
    p = param(3.0)
    sgd = optim.SGD([p], lr=0.1)

    def closure():
        sgd.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with anello.no_grad():
        assert sgd.step(closure).item() == 9
    assert p.item() == pytest.approx(2.4)
    sgd.zero_grad(set_to_none=True)
    assert p.grad is None
    assert sgd.step() is None
    assert p.item() == pytest.approx(2.4)


# --- Schedules ---


def rates(make, steps):
    sgd = optim.SGD([param(1.0)], lr=1.0, momentum=0.9)
    schedule = make(sgd)
    seen = []
    for _ in range(steps):
        seen.append(sgd.param_groups[0]["lr"])
        schedule.step()
    return seen


def test_schedule_formulas():
    assert rates(lambda o: optim.MultiStepLR(o, [2, 3], gamma=0.5), 5) == [1, 1, 0.5, 0.25, 0.25]
    assert rates(lambda o: optim.LinearLR(o, 1.0, 0.0, 4), 6) == [1, 0.75, 0.5, 0.25, 0, 0]
    assert rates(lambda o: optim.CosineAnnealingLR(o, T_max=2), 3) == pytest.approx([1, 0.5, 0])
    assert rates(lambda o: optim.LambdaLR(o, lambda t: 1 / (1 + t)), 3) == pytest.approx([1, 1 / 2, 1 / 3])
    warm = rates(lambda o: optim.MultiStepLR(o, [1], warmup_steps=2, warmup_factor=0.5), 4)
    assert warm == pytest.approx([0.5, 0.75, 1, 0.1])
    one = rates(lambda o: optim.OneCycleLR(o, max_lr=2.0, total_steps=11, pct_start=0.3), 11)
    assert max(one) <= 2.0
    assert one[0] == pytest.approx(2.0 / 25)
    assert one[-1] == pytest.approx(2.0 / 25 / 1e4)
    assert optim.lr_scheduler.OneCycleLR is optim.OneCycleLR


def test_schedule_errors():
    sgd = optim.SGD([param(1.0)], lr=1.0)
    with pytest.raises(ValueError):
        optim.OneCycleLR(sgd, max_lr=1.0)
    with pytest.raises(ValueError):
        optim.CosineAnnealingLR(sgd, T_max=0)
    with pytest.raises(ValueError, match="linear"):
        optim.OneCycleLR(sgd, max_lr=1.0, total_steps=5, anneal_strategy="linaer", cycle_momentum=False)
    with pytest.raises(ZeroDivisionError):
        optim.LambdaLR(sgd, lambda t: 1 / 0)
    with pytest.raises(TypeError):
        optim.LinearLR(3)


def test_a_schedule_keeps_its_optimizer():
    schedule = optim.LinearLR(optim.SGD([param(1.0)], lr=1.0), 1.0, 0.0, 2)
    gc.collect()
    schedule.step()
    assert schedule.get_last_lr() == [0.5]
    assert (schedule.step_count, schedule.last_epoch) == (1, 1)


# --- State and files ---


def train(net, optimizer, schedule, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (net(anello.randn(4, 3)) ** 2).mean().backward()
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Muon"])
def test_resuming_is_bit_for_bit(kind, tmp_path):
    def make():
        anello.manual_seed(1)
        net = nn.Linear(3, 3, bias=False)
        options = {"momentum": 0.9} if kind in ("SGD", "Muon") else {}
        optimizer = getattr(optim, kind)(net.parameters(), lr=0.01, **options)
        return net, optimizer, optim.MultiStepLR(optimizer, [4], gamma=0.1)

    net, optimizer, schedule = make()
    train(net, optimizer, schedule, 3)
    path = tmp_path / "run.ckpt"
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    anello.save_checkpoint(path, {**state, "random": anello.get_rng_state(), "step": 3})
    train(net, optimizer, schedule, 3)
    expected = net.weight.tolist()

    net, optimizer, schedule = make()
    saved = anello.load_checkpoint(path)
    assert saved["step"] == 3
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    anello.set_rng_state(saved["random"])
    train(net, optimizer, schedule, 3)
    assert net.weight.tolist() == expected
    assert schedule.get_last_lr() == pytest.approx([0.001])


def test_state_must_fit():
    sgd, adam = optim.SGD([param(1.0)]), optim.Adam([param(1.0)])
    with pytest.raises(ValueError):
        sgd.load_state_dict(adam.state_dict())


def test_files_of_values(tmp_path):
    path = str(tmp_path / "state")
    state = {
        "flag": True,
        "count": 2**53 + 1,
        "rate": 0.1,
        "name": "ü",
        "list": [1, 2],
        "floats": (0.5, 1),
        "empty": [],
        "nothing": None,
        "flags": [True, False],
        "names": ["a", ""],
        "part": {},
        "deep": {"er": {"w": anello.ones(2, dtype=anello.bfloat16)}},
    }
    anello.save(state, path)
    loaded = anello.load(path)
    assert loaded["flag"] is True
    assert loaded["count"] == 2**53 + 1
    assert (loaded["rate"], loaded["name"]) == (0.1, "ü")
    assert (loaded["list"], loaded["floats"], loaded["empty"]) == ([1, 2], [0.5, 1.0], [])
    assert loaded["nothing"] is None
    assert [type(flag) for flag in loaded["flags"]] == [bool, bool]
    assert (loaded["flags"], loaded["names"], loaded["part"]) == ([True, False], ["a", ""], {})
    assert loaded["deep"]["er"]["w"].dtype is anello.bfloat16
    assert "deep" in loaded
    assert "other" not in loaded
    assert loaded.get("other", 3) == 3
    with pytest.raises(KeyError):
        loaded["other"]


def nested(depth):
    value = {"x": 1}
    for _ in range(depth):
        value = {"d": value}
    return value


def containing_itself():
    value = {"x": 1}
    value["self"] = value
    return value


def test_deep_dicts_of_a_state(tmp_path):
    path = tmp_path / "state"
    anello.save_checkpoint(path, nested(100))
    assert anello.load_checkpoint(path)[".".join(["d"] * 100)]["x"] == 1
    for value in (nested(101), nested(100_000), containing_itself()):
        with pytest.raises(ValueError, match=r"deep in one another.*contain itself"):
            anello.save_checkpoint(path, value)
        with pytest.raises(ValueError, match=r"deep in one another"):
            anello.save(value, path)


@pytest.mark.parametrize(
    "state",
    [
        {"a.b": 1, "a": {"b": 2}},
        {"a": {"b": 2}, "a.b": anello.ones(1)},
        {"a.b": anello.ones(1), "a": {"b": {}}},
    ],
)
def test_two_entries_of_one_name_are_refused(state, tmp_path):
    with pytest.raises(ValueError, match=r"'a\.b' is there twice"):
        anello.save_checkpoint(tmp_path / "state", state)


def test_lists_keep_every_number(tmp_path):
    path = tmp_path / "state"
    anello.save_checkpoint(path, {"floats": [0.5, 2**53], "whole": [2**62 + 1]})
    assert anello.load(path)["floats"] == [0.5, float(2**53)]
    assert anello.load(path)["whole"] == [2**62 + 1]
    with pytest.raises(ValueError, match="9007199254740993"):
        anello.save_checkpoint(path, {"mixed": [0.5, 2**53 + 1]})
    for mixed in ([True, 2], ["a", 1], [True, "a"]):
        with pytest.raises(TypeError, match="several kinds"):
            anello.save_checkpoint(path, {"mixed": mixed})


@pytest.mark.parametrize("value", [object(), [None], [[1]], {1: 2}, {1}])
def test_values_that_no_file_holds(value, tmp_path):
    path = tmp_path / "state"
    anello.save({"kept": anello.ones(1)}, path)
    with pytest.raises(TypeError):
        anello.save_checkpoint(path, {"bad": value, "w": anello.zeros(1)})
    assert anello.load(path)["kept"].item() == 1


def test_file_errors(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(OSError, match=r"net\.safetensors"):
        anello.load(path)
    anello.save({"w": anello.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(anello.IoError, match=r"net\.safetensors"):
        anello.load(path)
    with pytest.raises(OSError):
        anello.save({"w": anello.ones(1)}, tmp_path / "no" / "folder")
    with pytest.raises(TypeError, match="state_dict"):
        anello.save(nn.Linear(1, 1), path)


# --- Clipping and averages ---


def test_clipping():
    p = param(0.0, 0.0)
    p.grad = anello.tensor([3.0, 4.0], dtype=anello.float64)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 5
    assert p.grad.norm().item() == pytest.approx(1, rel=1e-5)
    p.grad = anello.tensor([float("nan"), 1.0], dtype=anello.float64)
    with pytest.raises(anello.Error):
        optim.clip_grad_norm_(iter([p]), 1.0, error_if_nonfinite=True)
    p.grad = anello.tensor([-3.0, 0.5], dtype=anello.float64)
    optim.clip_grad_value_(p, 1.0)
    assert p.grad.tolist() == [-1, 0.5]


def test_weight_average():
    net = nn.Linear(1, 1, bias=False)
    with anello.no_grad():
        net.weight.fill_(0.0)
    average = optim.WeightAverage(net, decay=0.5)
    with anello.no_grad():
        net.weight.fill_(1.0)
    average.update()
    assert average.averages["weight"].item() == 0.5
    average.swap()
    assert net.weight.item() == 0.5
    average.swap()
    assert net.weight.item() == 1
    other = optim.WeightAverage(net.named_parameters(), decay=0.5)
    other.load_state_dict(average.state_dict())
    assert other.update_count == 1
    other.copy_to_values()
    assert net.weight.item() == 0.5
