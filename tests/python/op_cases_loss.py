"""Rows of the op table: losses and fused optimizers.

Main entry: ROWS.
"""

import numpy as np
import op_reference as reference
from op_table import Row, ints, num, stat

ROWS = []


def add(expr, ref, **fields):
    ROWS.append(Row(expr, ref, **fields))


# --- Losses ---------------------------------------------------------------------------------------------------------

LOGITS = {
    "x": num(4, 3, low=-3, high=3),
    "i": ints(4, high=3),
    "terms": lambda x, i, w=1: 16.0 * max(1, len(np.atleast_1d(i))),
}
LOSS_LARGE = ({"x": (37, 10), "i": (37,)}, {"x": (3, 1000), "i": (3,)}, {"x": (2, 5, 3), "i": (2, 5)})
for arguments in (
    "",
    "reduction='sum'",
    "reduction='none'",
    "label_smoothing=0.1",
    "label_smoothing=0.2, reduction='sum'",
    "ignore_index=1",
    "ignore_index=1, label_smoothing=0.1, reduction='none'",
):
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    add(
        f"cross_entropy(x, i{text})",
        lambda x, i, o=options: reference.cross_entropy(x, i, **o),
        **LOGITS,
        large=LOSS_LARGE,
        empty=({"x": (0, 3), "i": (0,)},),
    )
WEIGHTED = {**LOGITS, "w": stat(3, low=0.2, high=2), "grad": ("x",)}
for arguments in ("", "label_smoothing=0.1", "ignore_index=2, label_smoothing=0.3", "reduction='none'"):
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    ROWS.append(
        Row(
            f"cross_entropy(x, i, w{text})",
            lambda x, i, w, o=options: reference.cross_entropy(x, i, w, **o),
            **WEIGHTED,
        )
    )
PROBABILITIES = {"x": num(4, 3, low=-3, high=3), "t": num(4, 3, low=0.05, high=0.95), "terms": lambda x, t: 64.0}
ROWS.append(
    Row("cross_entropy(x, t)", reference.cross_entropy, **PROBABILITIES, large=({"x": (33, 10), "t": (33, 10)},))
)
add(
    "cross_entropy(x, t, label_smoothing=0.1, reduction='none')",
    lambda x, t: reference.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
    **PROBABILITIES,
)
LOG_P = {**LOGITS, "x": num(4, 3, low=-3, high=-0.1)}
for arguments in ("", "reduction='none'", "ignore_index=0, reduction='sum'"):
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    add(
        f"nll_loss(x, i{text})",
        lambda x, i, o=options: reference.nll_loss(x, i, **o),
        **LOG_P,
        large=LOSS_LARGE[:2],
        kernels=("cross_entropy",),
    )
add("nll_loss(x, i, w)", reference.nll_loss, **{**LOG_P, "w": stat(3, low=0.2, high=2), "grad": ("x",)})

REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda each: each}
for name, each in {
    "mse_loss": lambda x, t: (x - t) ** 2,
    "l1_loss": lambda x, t: np.abs(x - t),
    "binary_cross_entropy_with_logits": reference.bce_with_logits,
}.items():
    for reduction, reduce in REDUCE.items():
        t = num(3, 4, low=0.05, high=0.95) if name.startswith("binary") else num(3, 4)
        add(
            f"{name}(x, t, reduction='{reduction}')",
            lambda x, t, e=each, r=reduce: r(e(x, t)),
            x=num(3, 4),
            t=t,
            terms=lambda x, t, r=reduction: 16.0 * (x.size if r == "sum" else 1),
            large=({"x": (37, 41), "t": (37, 41)},),
            empty=({"x": (0, 4), "t": (0, 4)},) if reduction != "mean" else (),
        )

# --- Fused optimizers: parameters after two steps -------------------------------------------------------------------


def sgd(p, g, h):
    """lr 0.1, momentum 0.9, weight_decay 0.01 (Sutskever et al. 2013)."""
    v = g + 0.01 * p
    p = p - 0.1 * v
    return p - 0.1 * (0.9 * v + h + 0.01 * p)


def adam(p, g, h, decay=0.01, decoupled=True):
    """lr 0.1, betas 0.9 and 0.999, eps 1e-8 (arXiv 1412.6980, 1711.05101)."""
    m = v = 0
    for step, grad in enumerate((g, h), 1):
        if decoupled:
            p = p * (1 - 0.1 * decay)
        else:
            grad = grad + decay * p
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        p = p - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return p


STEPS = {
    "p": num(3, 5),
    "g": num(3, 5),
    "h": num(3, 5),
    "grad": (),
    "large": (dict.fromkeys("pgh", (1033,)),),
    "empty": (dict.fromkeys("pgh", (0,)),),
}
# Each step rounds the parameter.
SIZE = {"terms": lambda p, g, h: np.abs(p) + 0.2, "rounds": 2}
ROWS.append(
    Row(
        "stepped(lambda q: optim.SGD(q, lr=0.1, momentum=0.9, weight_decay=0.01), p, g, h)",
        sgd,
        kernels=("sgd",),
        **STEPS,
        **SIZE,
    )
)
ROWS.append(
    Row(
        "stepped(lambda q: optim.AdamW(q, lr=0.1, weight_decay=0.01), p, g, h)",
        adam,
        kernels=("adam",),
        **STEPS,
        **SIZE,
    )
)
ROWS.append(
    Row(
        "stepped(lambda q: optim.Adam(q, lr=0.1, weight_decay=0.01), p, g, h)",
        lambda p, g, h: adam(p, g, h, decoupled=False),
        **STEPS,
        **SIZE,
    )
)
