"""Gradients from Python: modes, grad(), hooks with their firing rules, custom functions, versions, checks.
Main entry: pytest."""

import gc
import threading
import weakref

import numpy as np
import pytest

import anello
from anello.autograd import Function, gradcheck, gradgradcheck, on_backward_end


def leaf(*values, dtype=anello.float64):
    return anello.tensor(values, dtype=dtype, requires_grad=True)


# --- Modes ---


def test_no_grad_nests_and_restores():
    w = leaf(1.0)
    with anello.no_grad():
        assert not (w * 2).requires_grad
        with anello.enable_grad():
            assert (w * 2).requires_grad
        assert not anello.is_grad_enabled()
    assert anello.is_grad_enabled()


def test_no_grad_restores_after_an_error():
    with pytest.raises(KeyError), anello.no_grad():
        raise KeyError
    assert anello.is_grad_enabled()


@pytest.mark.parametrize("decorator", [anello.no_grad, anello.no_grad()], ids=["bare", "called"])
def test_no_grad_decorates(decorator):
    @decorator
    def depth(n):
        assert not anello.is_grad_enabled()
        return n if n == 0 else depth(n - 1)

    assert depth(3) == 0
    assert depth.__name__ == "depth"
    assert anello.is_grad_enabled()


def test_set_grad_enabled():
    anello.set_grad_enabled(False)
    assert not anello.is_grad_enabled()
    anello.set_grad_enabled(True)
    with anello.set_grad_enabled(False):
        assert not anello.is_grad_enabled()
    assert anello.is_grad_enabled()


def test_the_mode_belongs_to_the_thread():
    seen = []
    with anello.no_grad():
        thread = threading.Thread(target=lambda: seen.append(anello.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# --- backward and grad ---


def test_backward_accumulates_and_zero_grad_clears():
    x = leaf(3.0)
    (x * x).backward()
    (x * x).backward()
    assert x.grad.item() == 12
    x.zero_grad()
    assert x.grad is None
    x.grad = anello.tensor([5.0], dtype=anello.float64)
    (x * x).backward()
    assert x.grad.item() == 11
    x.grad = None
    assert x.grad is None


def test_setting_a_gradient_checks_it():
    x = leaf(1.0, 2.0)
    for wrong, error in (
        (anello.zeros(3, dtype=anello.float64), ValueError),
        (anello.zeros(2), TypeError),
        (1, TypeError),
    ):
        with pytest.raises(error):
            x.grad = wrong


def test_backward_needs_a_gradient_for_many():
    x = leaf(1.0, 2.0)
    with pytest.raises(anello.Error):
        (x * 2).backward()
    (x * 2).backward(anello.tensor([1.0, 10.0], dtype=anello.float64))
    assert x.grad.tolist() == [2, 20]
    with pytest.raises(anello.Error):
        anello.zeros(1).backward()


def test_the_graph_is_released_unless_kept():
    x = leaf(2.0)
    y = (x * x).exp()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(anello.Error, match="retain_graph"):
        y.backward()


def test_grad_leaves_grads_alone():
    x, y = leaf(3.0), leaf(4.0)
    gx, gy = anello.grad(x * y, [x, y])
    assert (gx.item(), gy.item()) == (4, 3)
    assert x.grad is None
    z = x * 2
    (gz,) = anello.grad(z * z, z)
    assert gz.item() == 12
    with pytest.raises(anello.Error):
        anello.grad(x * 2, y)
    assert anello.grad(x * 2, [x, y], allow_unused=True)[1] is None
    assert anello.grad(x * y, x, grad_outputs=anello.tensor([2.0], dtype=anello.float64))[0].item() == 8
    for wrong in (3, "x", [x, 3], None):
        with pytest.raises(TypeError, match=r"\[grad\]"):
            anello.grad(x * 2, wrong)


def test_higher_derivatives():
    x = leaf(2.0)
    (g,) = anello.grad(x**4, x, create_graph=True)
    (h,) = anello.grad(g, x, create_graph=True)
    (i,) = anello.grad(h, x)
    assert (g.item(), h.item(), i.item()) == (32, 48, 48)


def test_graph_attributes():
    x = leaf(1.0)
    y = x * 2
    assert x.is_leaf
    assert not y.is_leaf
    assert str(y.grad_fn) == "mul_scalar" or "mul" in str(y.grad_fn)
    assert y.grad_fn == y.grad_fn
    assert y.grad_fn.next_functions[0][0].name() == "accumulate_grad"
    assert y.detach().is_leaf
    y.retain_grad()
    (y * 3).backward()
    assert y.grad.item() == 3
    with pytest.raises(anello.Error):
        y.requires_grad = False


def test_versions_are_checked():
    a = leaf(1.0, 2.0, 3.0)
    b = a.sigmoid()
    b[1] = 2.0
    with pytest.raises(anello.Error, match="sigmoid"):
        b.sum().backward()
    c = 1 / (1 + (-a).exp())
    c[1] = 2.0
    c.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [0.19661193, 0, 0.04517666], atol=1e-8)


# --- Hooks ---


def test_ready_hooks_fire_once_and_can_be_removed():
    x, fired = leaf(1.0), []
    handle = x.on_grad_ready(lambda t: fired.append((t is x, t.grad.item())))
    (x * 2 + x * 3).backward()
    assert fired == [(True, 5)]
    anello.grad(x * 2, x)
    assert len(fired) == 1
    (leaf(1.0) * 2).backward()
    assert len(fired) == 1
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert len(fired) == 1


def test_a_hook_may_remove_itself():
    x, fired = leaf(1.0), []

    def hook(t):
        fired.append(1)
        handle.remove()

    handle = x.on_grad_ready(hook)
    (x * 2).backward()
    (x * 2).backward()
    assert fired == [1]


def test_the_last_layer_is_ready_while_the_first_still_computes():
    order = []

    class Mark(Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            order.append(f"backward {ctx.name}")
            return grad, None

    w1, w2 = leaf(1.0), leaf(1.0)
    w1.on_grad_ready(lambda t: order.append("w1"))
    w2.on_grad_ready(lambda t: order.append("w2"))
    h = Mark.apply(w1 * 2, "first")
    Mark.apply(h * w2, "last").backward()
    assert order == ["backward last", "w2", "backward first", "w1"]


def test_an_error_in_a_hook_is_raised():
    x = leaf(1.0)
    handle = x.on_grad_ready(lambda t: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 2).backward()
    handle.remove()
    with pytest.raises(anello.Error):
        (x * 2).on_grad_ready(print)
    with pytest.raises(TypeError):
        x.on_grad_ready(3)


def test_backward_end_tells_how_it_went():
    seen = []
    handle = on_backward_end(lambda status: seen.append((status.ok, status.error)))
    x = leaf(1.0)
    (x * 2).backward()
    hook = x.on_grad_ready(lambda t: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 2).backward()
    hook.remove()
    anello.grad(x * 2, x)
    handle.remove()
    (x * 2).backward()
    assert seen[0] == (True, "")
    assert seen[1][0] is False
    assert "division" in seen[1][1]
    assert len(seen) == 2


# --- Custom functions ---


class Scale(Function):
    """x * y * factor, of which factor is no tensor."""

    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.save_for_backward(x, None, y)
        ctx.factor = factor
        ctx.seen = ctx.needs_input_grad
        return x * y * factor

    @staticmethod
    def backward(ctx, grad):
        x, nothing, y = ctx.saved_tensors
        assert nothing is None
        return grad * y * ctx.factor, None, grad * x * ctx.factor


def test_custom_function():
    x, y = leaf(2.0, 3.0), leaf(4.0, 5.0)
    out = Scale.apply(x, 10, y)
    assert out.tolist() == [80, 150]
    assert str(out.grad_fn) == "Scale"
    out.sum().backward()
    assert x.grad.tolist() == [40, 50]
    assert y.grad.tolist() == [20, 30]
    assert gradcheck(lambda a, b: Scale.apply(a, 3, b), [x, y])
    assert gradgradcheck(lambda a, b: Scale.apply(a, 3, b), [x, y])
    with anello.no_grad():
        assert Scale.apply(x, 1, y).is_leaf
    assert not Scale.apply(x.detach(), 1, y.detach()).requires_grad


def test_custom_function_with_two_outputs():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3, (x > 0)

        @staticmethod
        def backward(ctx, a, b, c):
            assert c is None
            total = 0
            for grad, factor in ((a, 2), (b, 3)):
                if grad is not None:
                    total = total + grad * factor
            return total

    x = leaf(1.0)
    a, b, c = Both.apply(x)
    assert c.dtype is anello.bool
    assert not c.requires_grad
    (a + 10 * b).backward()
    assert x.grad.item() == 32
    x.zero_grad()
    Both.apply(x)[1].backward()
    assert x.grad.item() == 3


def test_custom_function_may_return_its_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 7

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x
    y.backward()
    assert x.grad.item() == 7


def test_setup_context():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    x = leaf(3.0)
    Square.apply(x).backward()
    assert x.grad.item() == 6


def test_saved_tensors_are_checked_for_changes():
    x, y = leaf(2.0), leaf(3.0)
    z = y * 1
    out = Scale.apply(x, 1, z)
    z.mul_(2)
    with pytest.raises(anello.Error, match="Scale"):
        out.backward()


def test_custom_function_errors():
    class Wrong(Function):
        result = None

        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, grad):
            return Wrong.result(grad)

    x, y = leaf(1.0, 2.0), leaf(2.0, 3.0)
    for result, error, words in (
        (lambda g: g, anello.Error, "1 gradients for 2"),
        (lambda g: (g, "no"), TypeError, "not a tensor"),
        (lambda g: (g, anello.zeros(7, dtype=anello.float64)), ValueError, "shape"),
        (lambda g: 1 / 0, ZeroDivisionError, "division"),
    ):
        Wrong.result = staticmethod(result)
        with pytest.raises(error, match=words):
            Wrong.apply(x, y).sum().backward()
    with pytest.raises(NotImplementedError):
        Function.apply(x)

    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward([1])
            return x

    with pytest.raises(TypeError, match="attributes of ctx"):
        Saves.apply(x)


# --- Checks ---


def test_gradcheck_finds_a_wrong_gradient():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = leaf(1.0, 2.0)
    with pytest.raises(anello.Error, match="gradcheck"):
        gradcheck(Wrong.apply, [x])
    assert gradcheck(Wrong.apply, [x], raise_exception=False) is False
    assert gradcheck(lambda a, n: a * n, [x, 3])
    with pytest.raises(TypeError):
        gradcheck(lambda a: a * 2, [anello.ones(1, requires_grad=True)])
    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda a: 1 / 0, [x])


# --- Life ---


def test_cycles_through_hooks_and_contexts_are_collected():
    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    x = leaf(1.0)
    owner.x = x
    x.on_grad_ready(lambda t, o=owner: o)
    del owner, x
    gc.collect()
    assert gone() is None

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.box = Keeps.box
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    box = Keeps.box = Owner()
    gone = weakref.ref(box)
    box.y = Keeps.apply(leaf(1.0))
    Keeps.box = None
    del box
    gc.collect()
    assert gone() is None


def test_hooks_stay_while_the_tensor_is_used():
    fired = []
    x = leaf(1.0)
    x.on_grad_ready(lambda t, held=[]: fired.append(1))
    y = x * 2
    gc.collect()
    y.backward()
    assert fired == [1]


def test_a_long_chain():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 0
    y.backward()
    assert x.grad.item() == 1
    del y


# --- Gradients where a formula divides by zero or has a choice ---


@pytest.mark.parametrize("dtype", [anello.float16, anello.bfloat16, anello.float32, anello.float64])
def test_std_of_equal_values_has_gradient_zero(dtype):
    x = anello.tensor([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]], dtype=dtype, requires_grad=True)
    y = x.std(dim=1)
    assert y.dtype is dtype
    assert y.tolist() == [0.0, 1.0]
    y.sum().backward()
    # d std / dx_i = (x_i - mean) / ((n - 1) std)
    assert x.grad.tolist() == [[0, 0, 0], [-0.5, 0, 0.5]]


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_tie_along_a_dim_has_its_gradient_at_the_index(name, keepdim):
    x = anello.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 2.0]], requires_grad=True)
    values, indices = getattr(x, name)(dim=1, keepdim=keepdim)
    assert values.shape == indices.shape == ((2, 1) if keepdim else (2,))
    values.sum().backward()
    expected = np.zeros((2, 3))
    expected[[0, 1], indices.numpy().ravel()] = 1
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    x.grad = None
    getattr(x, "a" + name)(dim=1).sum().backward()  # amax has no index: its gradient is shared
    np.testing.assert_array_equal(x.grad.numpy().sum(1), [1, 1])
    assert x.grad[1].tolist() == pytest.approx([1 / 3] * 3)
    scalar = anello.tensor(3.0, requires_grad=True)
    getattr(scalar, name)(dim=0)[0].backward()
    assert scalar.grad.item() == 1


def test_in_place_through_a_view_of_an_untracked_base_raises_where_the_gradient_would_be_lost():
    x = leaf(1.0, 2.0, 3.0)
    for write in (
        lambda b, v: b[0].copy_(v),
        lambda b, v: b[0].add_(v),
        lambda b, v: b[0].__setitem__(slice(None), v),
        lambda b, v: b.detach().add_(v),
    ):
        base = anello.zeros(2, 3, dtype=anello.float64)
        write(base, x * x)
        with pytest.raises(anello.Error, match=r"outdated.*base\[i\] = value"):
            base.sum()
        with anello.no_grad():
            assert base.sum().item() >= 14
    base = anello.zeros(2, 3, dtype=anello.float64)
    base[0] = x * x
    base[1] = base[1] + x
    base.sum().backward()
    assert x.grad.tolist() == [3, 5, 7]


# --- Decorators ---


def test_set_grad_enabled_decorates_the_function_alone():
    @anello.set_grad_enabled(False)
    def inside():
        return anello.is_grad_enabled()

    assert anello.is_grad_enabled()
    assert not inside()
    assert anello.is_grad_enabled()
    with anello.no_grad():
        assert not anello.set_grad_enabled(True)(inside)()  # the inner one is nearer
        assert anello.set_grad_enabled(True)(anello.is_grad_enabled)()
        assert not anello.is_grad_enabled()


@pytest.mark.parametrize(
    "decorate",
    [lambda f: anello.no_grad(f), lambda f: anello.no_grad()(f), lambda f: anello.set_grad_enabled(False)(f)],
)
def test_a_decorated_generator_records_nothing_between_its_yields(decorate):
    @decorate
    def numbers():
        states, given = [anello.is_grad_enabled()], None
        for i in range(3):
            try:
                given = yield i, given
            except KeyError as error:
                given = error.args[0]
            states.append(anello.is_grad_enabled())
        return states

    generator = numbers()
    assert anello.is_grad_enabled()
    assert next(generator) == (0, None) and anello.is_grad_enabled()
    assert generator.send("a") == (1, "a") and anello.is_grad_enabled()
    assert generator.throw(KeyError("b")) == (2, "b") and anello.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == [False] * 4 and anello.is_grad_enabled()


def test_a_decorated_generator_can_be_left():
    seen = []

    @anello.no_grad()
    def numbers():
        try:
            yield 1
        finally:
            seen.append(anello.is_grad_enabled())

    generator = numbers()
    next(generator)
    generator.close()
    assert seen == [False] and anello.is_grad_enabled()
