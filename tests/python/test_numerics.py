"""Numeric traps that users of other frameworks reported, each as a test: the right value is stated or follows.

Main entry: the tests, numbered as the traps are. The one of 2^31 elements is opt-in: ANELLO_BIG_TESTS=1.
"""

import os

import numpy as np
import pytest
from op_dtypes import FLOATS, to_array

import anello
from anello import nn
from anello.nn import functional as F


def tensor(values, dtype="float64", **options):
    return anello.tensor(values, dtype=getattr(anello, dtype), **options)


def close(actual, expected, atol=1e-6, rtol=1e-7):
    np.testing.assert_allclose(to_array(actual) if isinstance(actual, anello.Tensor) else actual, expected, rtol, atol)


# --- 1: softmax and logsumexp do not overflow, nor make NaN of -inf ---------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_01_log_softmax_and_logsumexp(dtype):
    close(tensor([1000, 1000, 0], dtype).log_softmax(dim=0), [-0.693147, -0.693147, -1000.693147], atol=1e-4)
    x = tensor([-np.inf, -np.inf], dtype, requires_grad=True)
    total = x.logsumexp(dim=0)
    assert total.item() == -np.inf
    total.backward()
    assert x.grad.tolist() == [0, 0]


def test_01_every_kind_of_infinity():
    close(tensor([1000, 1000, 0]).softmax(dim=0), [0.5, 0.5, 0])
    x = tensor([[-np.inf, -np.inf], [0, -np.inf]], requires_grad=True)
    out = x.logsumexp(dim=1)
    assert out.tolist() == [-np.inf, 0]
    (first,) = anello.grad(out.sum(), x, create_graph=True)
    assert first.tolist() == [[0, 0], [1, 0]]
    assert np.isfinite(to_array(anello.grad(first.sum(), x)[0])).all()


# --- 2: ignored rows count neither in the sum nor in the mean ---------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_02_cross_entropy_with_ignored_rows_and_smoothing(dtype):
    logits, targets = tensor([[1, 2], [3, 0.4]], dtype, requires_grad=True), anello.tensor([-100, 1])
    loss = F.cross_entropy(logits, targets, ignore_index=-100, label_smoothing=0.1, reduction="mean")
    close(loss, 2.541645, atol=2e-6)
    loss.backward()
    assert logits.grad[0].tolist() == [0, 0]
    close(F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum"), 2.541645, atol=2e-6)
    each = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")
    close(each, [0, 2.541645], atol=2e-6)
    layer = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
    close(layer(logits, targets), 2.541645, atol=2e-6)


# --- 3: batch norm normalises by the biased variance, and keeps the unbiased one --------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_03_batch_norm_statistics(dtype):
    norm = nn.BatchNorm1d(1, momentum=0.1)
    out = norm(tensor([[1], [3]], dtype))
    close(out, [[-1], [1]], atol=1e-5 if dtype != "bfloat16" else 1e-2)
    close(norm.running_mean, [0.2], atol=1e-6)
    close(norm.running_var, [1.1], atol=1e-6)
    mean, var = tensor([0.0]), tensor([1.0])
    F.batch_norm(tensor([[1], [3]]), mean, var, training=True, momentum=0.1)
    close(mean, [0.2], atol=1e-12)
    close(var, [1.1], atol=1e-12)
    F.batch_norm(tensor([[1], [3]]), mean, var, training=False)
    close(var, [1.1], atol=1e-12)  # evaluation reads only


# --- 4: one value a channel cannot be normalised; an empty batch is no batch ------------------------------------------


def test_04_batch_norm_of_one_value_and_of_none():
    norm = nn.BatchNorm2d(3)
    with pytest.raises(anello.ShapeError, match=r"\[batch_norm\].*\(1, 1, 1, 3\)"):
        norm(anello.zeros(1, 1, 1, 3))
    x = anello.zeros(0, 2, 2, 3, requires_grad=True)
    out = norm(x)
    assert out.shape == (0, 2, 2, 3)
    out.sum().backward()
    assert norm.running_mean.tolist() == [0, 0, 0] and norm.running_var.tolist() == [1, 1, 1]
    assert norm.weight.grad.tolist() == [0, 0, 0] and x.grad.shape == x.shape
    assert norm.eval()(anello.zeros(1, 1, 1, 3)).shape == (1, 1, 1, 3)


# --- 5: padding of a maximum is -inf ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_05_max_pool_padding(dtype):
    x = tensor([-1, -2], dtype).reshape(1, 2, 1)
    assert F.max_pool1d(x, 2, stride=1, padding=1).flatten().tolist() == [-1, -1, -2]
    image = x.reshape(1, 1, 2, 1)
    assert F.max_pool2d(image, (1, 2), stride=1, padding=(0, 1)).flatten().tolist() == [-1, -1, -2]
    assert F.max_pool2d(image, 2, stride=1, padding=1).shape == (1, 2, 3, 1)
    for call in (lambda: F.max_pool1d(x, 2, padding=2), lambda: F.max_pool2d(image, 3, padding=2)):
        with pytest.raises(ValueError, match=r"\[max_pool[12]d\] padding is 2"):
            call()


# --- 6: broadcast gradients are reduced back to the input's shape -----------------------------------------------------


def test_06_broadcast_gradient():
    bias = anello.ones(1, 4, requires_grad=True)
    (anello.zeros(3, 4) + bias).sum().backward()
    assert bias.grad.shape == (1, 4) and bias.grad.tolist() == [[3, 3, 3, 3]]


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 1), (3, 1), (2, 1, 1), (1, 3, 4), (2, 3, 4)])
@pytest.mark.parametrize(
    "f",
    [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, anello.maximum, anello.minimum],
)
def test_06_every_way_to_broadcast(f, shape):
    small = anello.full(shape, 2.0, requires_grad=True)
    large = anello.ones(2, 3, 4, requires_grad=True)
    f(large, small).sum().backward()
    assert small.grad.shape == shape and large.grad.shape == (2, 3, 4)
    repeats = 24 // max(1, small.numel())
    one = anello.full((1,), 2.0, requires_grad=True)
    f(anello.ones(1), one).sum().backward()
    close(small.grad, np.full(shape, repeats * one.grad.item()))


# --- 7: a changed saved tensor is an error; a changed result that nobody saved is none --------------------------------


def test_07_change_of_a_saved_result():
    a = tensor([1, 2, 3], requires_grad=True)
    b = a.sigmoid()
    b.name = "gate"
    b[1] = 2
    with pytest.raises(anello.Error, match="sigmoid") as caught:
        b.sum().backward()
    assert "changed" in str(caught.value) or "in place" in str(caught.value)
    assert a.grad is None


def test_07_change_of_a_quotient():
    a = tensor([1, 2, 3], requires_grad=True)
    b = 1 / (1 + (-a).exp())
    b[1] = 2
    b.sum().backward()
    close(a.grad, [0.1966, 0, 0.0452], atol=5e-5)


def test_07_change_names_tensor_and_operation():
    x = tensor([1, 2], requires_grad=True)
    w = tensor([3, 4])
    w.name = "scale"
    y = x * w
    w.add_(1)
    with pytest.raises(anello.Error, match=r"mul.*scale|scale.*mul"):
        y.sum().backward()


# --- 8: nothing, in every place ---------------------------------------------------------------------------------------


def test_08_convolution_of_no_images():
    x = anello.zeros(0, 5, 5, 3, requires_grad=True)
    w = anello.ones(4, 3, 3, 3, requires_grad=True)
    b = anello.ones(4, requires_grad=True)
    out = F.conv2d(x, w, b, padding=1)
    assert out.shape == (0, 5, 5, 4)
    out.sum().backward()
    assert w.grad.shape == w.shape and not to_array(w.grad).any()
    assert b.grad.tolist() == [0, 0, 0, 0] and x.grad.shape == x.shape


def test_08_reductions_of_nothing():
    x = anello.zeros(0, 3)
    assert x.sum().item() == 0 and x.sum(dim=0).tolist() == [0, 0, 0] and x.prod().item() == 1
    assert np.isnan(x.mean().item())
    for call in (x.max, x.min, x.amax, x.argmax, x.argmin, lambda: x.max(dim=0), lambda: x.argmin(dim=0)):
        with pytest.raises(anello.ShapeError, match=r"\(0, ?3?\)|\(0,\)"):
            call()
    assert x.amax(dim=1).shape == (0,) and x.argmax(dim=1).shape == (0,)


def test_08_a_mean_loss_of_nothing_is_zero():
    logits = anello.ones(2, 3, requires_grad=True)
    for smoothing in (0.0, 0.1):
        loss = F.cross_entropy(logits, anello.tensor([-100, -100]), label_smoothing=smoothing)
        assert loss.item() == 0
        assert anello.grad(loss, logits)[0].tolist() == [[0, 0, 0], [0, 0, 0]]
    loss = F.cross_entropy(anello.zeros(0, 3), anello.zeros(0, dtype=anello.int64))
    assert loss.item() == 0


def test_08_a_net_on_an_empty_batch():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)
    )
    out = net(anello.zeros(0, 4, 4, 3))
    assert out.shape == (0, 2)
    out.sum().backward()
    assert all(not to_array(p.grad).any() for p in net.parameters())


# --- 9: sizes are 64-bit ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("ANELLO_BIG_TESTS") != "1", reason="needs 2 GiB of memory. Hint: ANELLO_BIG_TESTS=1")
def test_09_more_than_2_to_the_31_elements():
    n = 2**31 + 8
    x = anello.ones(n, dtype=anello.int8)
    assert x.numel() == n and x.sum().item() == 2147483656
    x[-1] = 5
    assert x[n - 1].item() == 5 and x.argmax(0).item() == n - 1 and x[2**31 :].sum().item() == 12
    assert x.reshape(2, -1)[1, -1].item() == 5 and x[::2].shape == (n // 2,)


# --- 10: NaN is kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_10_nan_is_kept(dtype):
    nan = tensor([np.nan, 1], dtype)
    one = tensor([1.0], dtype)
    kept = {
        "relu": F.relu(nan)[0],
        "clamp": nan.clamp(0, 2)[0],
        "clamp min": nan.clamp(min=0)[0],
        "max": nan.max(),
        "min": nan.min(),
        "amax": nan.amax(dim=0),
        "max values": nan.max(dim=0).values,
        "maximum": anello.maximum(nan[:1], one),
        "maximum, other side": anello.maximum(one, nan[:1]),
        "minimum": anello.minimum(one, nan[:1]),
        "max_pool1d": F.max_pool1d(nan.reshape(1, 2, 1), 2),
        "max_pool2d": F.max_pool2d(nan.reshape(1, 1, 2, 1), (1, 2)),
        "leaky_relu": F.leaky_relu(nan)[0],
        "elu": F.elu(nan)[0],
        "gelu": F.gelu(nan)[0],
        "silu": F.silu(nan)[0],
        "sum": nan.sum(),
        "sign": nan.sign()[0],
        "where": anello.where(nan != nan, nan, 0)[0],
    }
    assert [name for name, value in kept.items() if not np.isnan(to_array(value)).all()] == []
    assert nan.argmax().item() == 0


def test_10_nan_in_any_place_of_a_long_row():
    for n in (7, 64, 1000):
        for place in (0, n // 2, n - 1):
            x = np.arange(n, dtype=np.float32)
            x[place] = np.nan
            x = anello.tensor(x)
            assert np.isnan(x.max().item()) and np.isnan(x.min().item()) and x.argmax(0).item() == place
            assert np.isnan(F.max_pool1d(x.reshape(1, n, 1), n).item())


# --- 12: Adam's first step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_12_adam_is_bias_corrected(optimizer):
    p = nn.Parameter(tensor([1.0]))
    p.grad = tensor([0.1])
    getattr(anello.optim, optimizer)([p], lr=1e-3, weight_decay=0).step()
    close(p.detach() - 1, [-1.0e-3], atol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_12_adam_of_a_zero_gradient(dtype):
    p = nn.Parameter(tensor([1.0, -2.0], dtype))
    adam = anello.optim.Adam([p], lr=1e-3, eps=1e-8)
    for _ in range(3):
        p.grad = anello.zeros(2, dtype=p.dtype)
        adam.step()
    assert p.tolist() == [1.0, -2.0]


# --- 13: milestones, and what a resumed schedule does -----------------------------------------------------------------


def test_13_multi_step_resumes_bit_for_bit():
    def make():
        p = nn.Parameter(tensor([1.0]))
        optimizer = anello.optim.SGD([p], lr=100.0, momentum=0.9)
        return p, optimizer, anello.optim.lr_scheduler.MultiStepLR(optimizer, [4], gamma=0.1)

    def epochs(p, optimizer, schedule, first, last):
        rates = []
        for epoch in range(first, last):
            rates.append(optimizer.param_groups[0]["lr"])
            p.grad = tensor([0.01 * (epoch + 1)])
            optimizer.step()
            schedule.step()
        return rates

    whole = make()
    rates = epochs(*whole, 0, 8)
    close(rates, [100] * 4 + [10] * 4, atol=0, rtol=1e-15)

    half = make()
    first = epochs(*half, 0, 2)
    resumed = make()
    with anello.no_grad():
        resumed[0].copy_(half[0])
    resumed[1].load_state_dict(half[1].state_dict())
    resumed[2].load_state_dict(half[2].state_dict())
    assert first + epochs(*resumed, 2, 8) == rates
    assert to_array(resumed[0]).tobytes() == to_array(whole[0]).tobytes()


# --- 14: augmentation depends on (seed, epoch, sample) alone ----------------------------------------------------------


def test_14_any_number_of_workers_gives_the_same_images():
    data = anello.data
    train, _ = data.synthetic(60, 10)
    augmentation = data.Augmentation(crop_padding=4, flip="random", cutout=6)

    def epochs(workers):
        loader = data.DataLoader(train, batch_size=16, shuffle=True, augmentation=augmentation, workers=workers, seed=3)
        return [[(to_array(x).tobytes(), y.tolist()) for x, y in loader] for _ in range(2)]

    first = epochs(0)
    for workers in (1, 2, 5):
        assert epochs(workers) == first, f"{workers} workers"
    assert first[0] != first[1], "the next epoch is the same"


def test_14_a_sample_is_augmented_alike_wherever_it_comes():
    data = anello.data
    train, _ = data.synthetic(40, 10)
    augmentation = data.Augmentation(crop_padding=4, flip="random")

    def images(**options):
        loader = data.DataLoader(train, augmentation=augmentation, seed=3, **options)
        return {row.tobytes() for x, _ in loader for row in to_array(x)}

    alone = images(batch_size=1)
    assert images(batch_size=7, shuffle=True, workers=2) == alone
    assert len(alone) == 40
