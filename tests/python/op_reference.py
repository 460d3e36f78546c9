"""NumPy formulas for the op table, written from their definitions in float64, without regard for speed.

Main entry: the functions, named like what they are the reference of. Images are channels last.
"""

import itertools
import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softplus(x, beta=1.0):
    return np.maximum(x, 0) + np.log1p(np.exp(-beta * np.abs(x))) / beta


def elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def saturated(x, dtype):
    """Floats to integers: toward zero, within the dtype's range, NaN to 0. Integers wrap."""
    if x.dtype.kind != "f":
        return x.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    inside = (x > float(low) - 1) & (x < float(high))
    whole = np.where(inside, np.trunc(x), 0).astype(dtype)
    return np.where(x >= float(high), high, np.where(x <= float(low), low, whole)).astype(dtype)


# --- Reductions and softmax -----------------------------------------------------------------------------------------


def logsumexp(x, axis=None, keepdims=False):
    x = np.asarray(x, np.float64)
    if x.size == 0 or axis == ():
        return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def log_softmax(x, axis):
    return x - logsumexp(x, axis, keepdims=True)


def softmax(x, axis):
    return np.exp(log_softmax(x, axis))


def norm(x, axis=None, keepdims=False):
    return np.sqrt(np.sum(np.square(np.asarray(x, np.float64)), axis=axis, keepdims=keepdims))


# --- Convolution ----------------------------------------------------------------------------------------------------


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def conv_size(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def conv_taps(x_shape, w_shape, stride, padding, dilation):
    """The output's height and width, and for each place (r, s) of the kernel the rows and columns it meets."""
    (sh, sw), (ph, pw), (dh, dw) = pair(stride), pair(padding), pair(dilation)
    out_h = conv_size(x_shape[1], w_shape[1], sh, ph, dh)
    out_w = conv_size(x_shape[2], w_shape[2], sw, pw, dw)
    taps = [
        (r, s, slice(r * dh, r * dh + sh * (out_h - 1) + 1, sh), slice(s * dw, s * dw + sw * (out_w - 1) + 1, sw))
        for r in range(w_shape[1])
        for s in range(w_shape[2])
    ]
    return out_h, out_w, taps


def pad_image(x, padding):
    ph, pw = pair(padding)
    return np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))


def conv2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    out_h, out_w, taps = conv_taps(x.shape, w.shape, stride, padding, dilation)
    xp, n, o = pad_image(x, padding), x.shape[0], w.shape[0]
    xg = xp.reshape(*xp.shape[:3], groups, w.shape[3])
    wg = w.reshape(groups, o // groups, *w.shape[1:])
    out = np.zeros((n, out_h, out_w, groups, o // groups))
    for r, s, rows, columns in taps:
        out += np.einsum("nhwgc,goc->nhwgo", xg[:, rows, columns], wg[:, :, r, s])
    out = out.reshape(n, out_h, out_w, o)
    return out if b is None else out + b


def conv2d_input_grad(dy, w, input_shape, stride=1, padding=0, dilation=1, groups=1):
    _, _, taps = conv_taps(input_shape, w.shape, stride, padding, dilation)
    (n, h, width, c), (ph, pw), o = input_shape, pair(padding), w.shape[0]
    dx = np.zeros((n, h + 2 * ph, width + 2 * pw, groups, c // groups))
    dyg = dy.reshape(*dy.shape[:3], groups, o // groups)
    wg = w.reshape(groups, o // groups, *w.shape[1:])
    for r, s, rows, columns in taps:
        dx[:, rows, columns] += np.einsum("nhwgo,goc->nhwgc", dyg, wg[:, :, r, s])
    return dx.reshape(n, h + 2 * ph, width + 2 * pw, c)[:, ph : ph + h, pw : pw + width]


def conv2d_weight_grad(dy, x, weight_shape, stride=1, padding=0, dilation=1, groups=1):
    _, _, taps = conv_taps(x.shape, weight_shape, stride, padding, dilation)
    xp, (o, kh, kw, cg) = pad_image(x, padding), weight_shape
    xg = xp.reshape(*xp.shape[:3], groups, cg)
    dyg = dy.reshape(*dy.shape[:3], groups, o // groups)
    dw = np.zeros((groups, o // groups, kh, kw, cg))
    for r, s, rows, columns in taps:
        dw[:, :, r, s] = np.einsum("nhwgo,nhwgc->goc", dyg, xg[:, rows, columns])
    return dw.reshape(weight_shape)


# --- Pooling --------------------------------------------------------------------------------------------------------


def pool_size(size, kernel, stride, padding, ceil_mode):
    """Windows along a dim. With ceil_mode the last one may hang over, if it starts inside the input or its left pad."""
    span = size + 2 * padding - kernel
    if not ceil_mode:
        return span // stride + 1
    out = -(-span // stride) + 1
    return out - 1 if (out - 1) * stride >= size + padding else out


def pool_windows(x, kernel, stride, padding, ceil_mode):
    """(i, j, bounds in the input, window size with padding but not beyond it) for each output place."""
    (kh, kw), (ph, pw) = pair(kernel), pair(padding)
    sh, sw = pair(stride) if stride is not None else (kh, kw)
    out_h = pool_size(x.shape[1], kh, sh, ph, ceil_mode)
    out_w = pool_size(x.shape[2], kw, sw, pw, ceil_mode)
    places = []
    for i, j in itertools.product(range(out_h), range(out_w)):
        top, left = i * sh - ph, j * sw - pw
        padded = (min(top + kh, x.shape[1] + ph) - top) * (min(left + kw, x.shape[2] + pw) - left)
        places.append(
            (
                i,
                j,
                slice(max(top, 0), min(top + kh, x.shape[1])),
                slice(max(left, 0), min(left + kw, x.shape[2])),
                padded,
            )
        )
    return out_h, out_w, places


def max_pool2d(x, kernel, stride=None, padding=0, ceil_mode=False):
    out_h, out_w, places = pool_windows(x, kernel, stride, padding, ceil_mode)
    out = np.full((x.shape[0], out_h, out_w, x.shape[3]), -np.inf)
    for i, j, rows, columns, _ in places:
        out[:, i, j] = x[:, rows, columns].max(axis=(1, 2))
    return out


def max_pool1d(x, kernel, stride=None, padding=0, ceil_mode=False):
    stride = kernel if stride is None else stride
    return max_pool2d(x[:, None], (1, kernel), (1, stride), (0, padding), ceil_mode)[:, 0]


def avg_pool2d(x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    out_h, out_w, places = pool_windows(x, kernel, stride, padding, ceil_mode)
    out = np.zeros((x.shape[0], out_h, out_w, x.shape[3]))
    for i, j, rows, columns, padded in places:
        window = x[:, rows, columns]
        out[:, i, j] = window.sum(axis=(1, 2)) / (padded if count_include_pad else window.shape[1] * window.shape[2])
    return out


# --- Normalisation, losses ------------------------------------------------------------------------------------------


def batch_norm(x, mean=None, var=None, weight=1.0, bias=0.0, training=False, eps=1e-5):
    if training:
        rows = tuple(range(x.ndim - 1))
        mean, var = x.mean(rows), x.var(rows)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def nll_loss(log_p, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """From log-probabilities; target [...] labels or [..., classes] probabilities."""
    classes = log_p.shape[-1]
    weight = np.ones(classes) if weight is None else weight
    spread = label_smoothing / max(classes, 1)
    if target.dtype.kind == "f":
        each = -(weight * ((1 - label_smoothing) * target + spread) * log_p).sum(-1)
        total = math.prod(log_p.shape[:-1])
    else:
        counted = target != ignore_index
        label = np.where(counted, target, 0)
        own = np.take_along_axis(log_p, label[..., None], -1)[..., 0] * weight[label]
        each = -((1 - label_smoothing) * own + spread * (log_p * weight).sum(-1)) * counted
        total = (weight[label] * counted).sum()
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / total if total else np.float64(0)


def cross_entropy(x, target, weight=None, **options):
    return nll_loss(log_softmax(x, -1), target, weight, **options)


def bce_with_logits(x, t):
    """-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))."""
    return t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)


# --- Indexing -------------------------------------------------------------------------------------------------------


def gather(x, dim, index):
    """out[i][j] = x[index[i][j]][j] for dim 0; index may be smaller than x outside dim."""
    dim %= x.ndim
    inside = tuple(slice(None) if d == dim else slice(0, n) for d, n in enumerate(index.shape))
    return np.take_along_axis(x[inside], index, dim)


def scatter_add(src, dim, index, size):
    dim %= src.ndim
    out = np.zeros((*src.shape[:dim], size, *src.shape[dim + 1 :]), src.dtype)
    for place in np.ndindex(*src.shape):
        to = list(place)
        to[dim] = index[place]
        out[tuple(to)] += src[place]
    return out


def pad(x, padding, mode="constant", value=0):
    """`padding`: (before, after) from the last dim backward; negative amounts crop."""
    widths = [(0, 0)] * x.ndim
    for i in range(len(padding) // 2):
        widths[x.ndim - 1 - i] = (padding[2 * i], padding[2 * i + 1])
    crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x.shape))
    grow = [(max(b, 0), max(a, 0)) for b, a in widths]
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    options = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x[crop], grow, names[mode], **options)


def put(x, key, value):
    """A copy of x with x[key] = value."""
    x = x.copy()
    x[key] = value
    return x
