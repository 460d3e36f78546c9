"""Random numbers and dropout: reproducible from a seed, right in their statistics, the same mask forward and backward.

Main entry: the tests.
"""

import numpy as np
import pytest
from op_dtypes import ALL, FLOATS, INTS, to_array

import anello

COUNT = 40_000


def seeded(make, seed=1):
    anello.manual_seed(seed)
    return to_array(make())


MAKERS = {
    "rand": lambda: anello.rand(COUNT),
    "randn": lambda: anello.randn(COUNT),
    "randint": lambda: anello.randint(5, 1000, (COUNT,)),
    "randperm": lambda: anello.randperm(COUNT),
    "uniform_": lambda: anello.empty(COUNT).uniform_(-1, 3),
    "normal_": lambda: anello.empty(COUNT).normal_(2, 3),
    "dropout": lambda: anello.dropout(anello.ones(COUNT), 0.3),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_seed_decides(make):
    first = seeded(make)
    np.testing.assert_array_equal(seeded(make), first)
    assert (seeded(make, seed=2) != first).mean() > 0.2
    anello.manual_seed(1)
    assert (to_array(make()) != to_array(make())).mean() > 0.2, "two draws are the same"


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_state_resumes(make):
    anello.manual_seed(3)
    make()
    state = anello.get_rng_state()
    expected = [to_array(make()) for _ in range(2)]
    anello.manual_seed(9)
    anello.set_rng_state(state)
    for array in expected:
        np.testing.assert_array_equal(to_array(make()), array)


def check_moments(values, mean, std):
    """Within five standard errors."""
    n = values.size
    assert abs(values.mean() - mean) < 5 * std / n**0.5
    assert abs(values.std() - std) < 5 * std / n**0.5
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / n**0.5, "neighbours are correlated"


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype):
    values = seeded(lambda: anello.rand(COUNT, dtype=getattr(anello, dtype)))
    assert values.min() >= 0 and values.max() < 1
    check_moments(values, 0.5, 12**-0.5)
    values = seeded(lambda: anello.empty(COUNT, dtype=getattr(anello, dtype)).uniform_(-3, 1))
    assert values.min() >= -3 and values.max() < 1
    check_moments(values, -1, 4 * 12**-0.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype):
    values = seeded(lambda: anello.randn(COUNT, dtype=getattr(anello, dtype)))
    check_moments(values, 0, 1)
    assert abs((values**3).mean()) < 0.15 and abs((values**4).mean() - 3) < 0.3
    check_moments(seeded(lambda: anello.empty(COUNT, dtype=getattr(anello, dtype)).normal_(5, 0.5)), 5, 0.5)


def test_float64_has_its_own_precision():
    values = seeded(lambda: anello.rand(1000, dtype=anello.float64))
    assert (values.astype(np.float32) != values).any()


@pytest.mark.parametrize("dtype", INTS)
def test_integers(dtype):
    low = 0 if dtype == "uint8" else -3
    values = seeded(lambda: anello.randint(low, 5, (COUNT,), dtype=getattr(anello, dtype)))
    found, counts = np.unique(values, return_counts=True)
    assert list(found) == list(range(low, 5))
    expected = COUNT / (5 - low)
    assert np.abs(counts - expected).max() < 5 * expected**0.5


def test_large_integer_range():
    values = seeded(lambda: anello.randint(-(2**62), 2**62, (1000,)))
    assert values.min() < -(2**60) and values.max() > 2**60 and len(np.unique(values)) == 1000


def test_permutation():
    values = seeded(lambda: anello.randperm(1000))
    np.testing.assert_array_equal(np.sort(values), np.arange(1000))
    assert abs(np.corrcoef(values, np.arange(1000))[0, 1]) < 0.15
    assert anello.randperm(0).shape == (0,)


def test_shapes_with_nothing():
    for make in (anello.rand, anello.randn):
        assert make(0, 3).shape == (0, 3)
    assert anello.randint(3, (0,)).shape == (0,)
    assert anello.dropout(anello.zeros(0, 3), 0.5).shape == (0, 3)


# --- Dropout ---


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_statistics(dtype, p):
    x = anello.full((COUNT,), 0.75, dtype=getattr(anello, dtype))
    out = seeded(lambda: anello.dropout(x, p))
    dropped = (out == 0).mean()
    assert abs(dropped - p) < 5 * (p * (1 - p) / COUNT) ** 0.5
    kept = np.unique(out[out != 0])
    assert len(kept) == 1
    precision = {"float64": 1e-7, "float32": 1e-6, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
    assert kept[0] == pytest.approx(0.75 / (1 - p), rel=precision)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_gradient_has_the_mask_of_the_result(dtype):
    anello.manual_seed(4)
    x = anello.ones(37, 41, dtype=getattr(anello, dtype), requires_grad=True)
    out = anello.dropout(x, 0.4)
    (grad,) = anello.grad(out.sum(), x)
    assert grad.dtype == x.dtype
    np.testing.assert_array_equal(to_array(grad), to_array(out))


def test_dropout_numeric_gradients():
    x = anello.rand(4, 5, dtype=anello.float64, requires_grad=True)

    def masked(x):
        anello.manual_seed(6)
        return anello.dropout(x, 0.3) * x

    assert anello.autograd.gradcheck(masked, [x])
    assert anello.autograd.gradgradcheck(masked, [x])


def test_dropout_mask_does_not_depend_on_layout_or_values():
    x = anello.rand(33, 65) + 1
    straight = seeded(lambda: anello.dropout(x, 0.5)) != 0
    turned = seeded(lambda: anello.dropout(x.T.clone().T, 0.5)) != 0
    np.testing.assert_array_equal(straight, turned)
    np.testing.assert_array_equal(straight, seeded(lambda: anello.dropout(x.double() * 3, 0.5)) != 0)


def test_dropout_keeps_nan_out_of_dropped_places():
    """Zeroes means zero, whatever was there."""
    out = seeded(lambda: anello.dropout(anello.full((1000,), float("inf")), 0.5))
    assert set(np.unique(out)) == {0.0, np.inf}


def test_random_numbers_leave_no_gradient():
    for make in MAKERS.values():
        assert not make().requires_grad


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_numbers_for_any_number_of_threads(threads):
    expected = {name: seeded(make) for name, make in MAKERS.items()}
    before = anello.get_num_threads()
    try:
        anello.set_num_threads(threads)
        for name, make in MAKERS.items():
            np.testing.assert_array_equal(seeded(make), expected[name], err_msg=name)
    finally:
        anello.set_num_threads(before)


def test_philox_known_answer():
    """rand() is Philox4x32-10 of (seed, draw, element): the first words of seed 0, draw 0 as uniform floats.
    Known answer of Salmon et al.'s test vectors: counter 0, key 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8."""
    words = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint64)
    expected = (words >> np.uint64(8)).astype(np.float64) * 2.0**-24
    np.testing.assert_array_equal(seeded(lambda: anello.rand(4), seed=0), expected)


def test_bool_is_a_coin():
    values = seeded(lambda: anello.randint(0, 2, (COUNT,), dtype=anello.bool))
    assert values.dtype == bool and abs(values.mean() - 0.5) < 0.02
    assert "bool" in ALL
