"""The form of a row of the op table: a call, its formula, and how inputs are sampled.

Main entry: Row, num(), ints(), bools(), stat().

A row is one call of the public API and the NumPy formula it must agree with:

    Row("sum(x, dim=1)", lambda x: x.sum(1), x=num(3, 4, 5), terms=True)

The expression is evaluated with the names of the anello package, F for anello.nn.functional, and the inputs by name.
"""

from __future__ import annotations

import ast
import functools
import math
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np
from op_dtypes import ALL, FLOATS, INTS, cast_reference, make_tensor, round_to

# --- Inputs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """What an input is made of. kind "num": the dtype under test; "stat": its accumulation dtype; "index": int64;
    "bool"."""

    kind: str
    shape: tuple
    low: float = -2.0
    high: float = 2.0
    avoid: tuple = ()  # values that float samples keep a distance of 0.05 from: kinks, poles

    def dtype(self, under_test: str) -> str:
        if self.kind == "num":
            return under_test
        if self.kind == "stat":
            return "float64" if under_test == "float64" else "float32"
        return "int64" if self.kind == "index" else "bool"

    def sample(self, rng, under_test: str, shape: Optional[tuple] = None) -> np.ndarray:
        shape, dtype = self.shape if shape is None else shape, self.dtype(under_test)
        if self.kind == "index":
            return rng.integers(int(self.low), int(self.high), shape)
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if dtype in INTS:
            low = math.ceil(self.low) if dtype != "uint8" else max(0, math.ceil(self.low))
            values = rng.integers(low, max(low, math.floor(self.high)) + 1, shape)
            for bad in self.avoid:  # integers step over what floats keep a distance from
                values = np.where(values == bad, values + 1, values)
            return values.astype(dtype)
        return round_to(self.floats(rng, shape), dtype)

    def floats(self, rng, shape) -> np.ndarray:
        """Distinct values spread over [low, high], in random order."""
        n = math.prod(shape)
        at = (rng.permutation(n) + rng.uniform(0.2, 0.8, n)) / max(n, 1)
        values = self.low + (self.high - self.low) * at
        for bad in self.avoid:
            near = np.abs(values - bad) < 0.05
            values[near] = bad + np.where(values[near] < bad, -0.05, 0.05) * (1 + rng.uniform(0, 1, near.sum()))
        return values.reshape(shape)


def num(*shape, low=-2.0, high=2.0, avoid=()) -> Spec:
    """Numbers of the dtype under test; floats are differentiable inputs."""
    return Spec("num", shape, low, high, tuple(avoid))


def stat(*shape, low=-2.0, high=2.0) -> Spec:
    """Numbers of the accumulation dtype (statistics, parameters of batch_norm)."""
    return Spec("stat", shape, low, high)


def ints(*shape, low=0, high=3) -> Spec:
    """int64 indices in [low, high)."""
    return Spec("index", shape, low, high)


def bools(*shape) -> Spec:
    return Spec("bool", shape)


# --- Rows -----------------------------------------------------------------------------------------------------------


@functools.cache
def namespace() -> dict:
    """The names an expression may use: all of anello, F, and a few helpers for statements."""
    import anello

    def put(x, key, value):
        """x[key] = value, as an expression."""
        x[key] = value
        return x

    def stepped(make_optimizer, parameter, *gradients):
        """The parameter after an optimizer's step for each gradient."""
        p = anello.nn.Parameter(parameter.clone())
        optimizer = make_optimizer([p])
        for g in gradients:
            p.grad = g.clone()
            optimizer.step()
        return p.detach()

    def iadd(x, y):
        x += y
        return x

    def isub(x, y):
        x -= y
        return x

    def imul(x, y):
        x *= y
        return x

    def itruediv(x, y):
        x /= y
        return x

    helpers = {
        "put": put,
        "at": np.s_,
        "stepped": stepped,
        "iadd": iadd,
        "isub": isub,
        "imul": imul,
        "itruediv": itruediv,
    }
    return {**vars(anello), "F": anello.nn.functional, "anello": anello, **helpers, "inf": math.inf, "nan": math.nan}


OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.USub: "neg",
    ast.UAdd: "pos", ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge",
}  # fmt: skip
HELPER_OPERATORS = {"put": "setitem", "iadd": "iadd", "isub": "isub", "imul": "imul", "itruediv": "itruediv"}


@dataclass(frozen=True, eq=False)
class Row:
    """One call and its formula. Fields:

    ref       the inputs as NumPy arrays (float64, or the integer dtype) -> array or tuple of arrays
    inputs    name -> Spec, in the order of ref's arguments
    dtypes    dtypes under test
              The expression may also use `dtype`, the dtype under test.
    result    dtype of the result: "same", "float" (float32 for integers), "sum" (int64 for integers and bool),
              "int" (int64 for bool), or a name; a tuple for several results
    grad      names of the differentiable inputs; None: every num and stat
    numeric   False: the function is a staircase (a cast), so no central differences
    second    also check the gradient's gradient
    terms     the size of what is added up: True (ref of the absolute inputs: right for sums of products), or a function
    loose     factor on what computing may lose, with a reason beside it
    rounds    times that a result is rounded to its dtype on the way, the earlier ones at the size of `terms`
    grad_loose  the same for gradients
    shapes    other shapes for the inputs, each a dict: broadcasting, other dims
    large     as shapes, without numeric gradients: sizes that make kernels split work
    empty     shapes with a 0 in them
    vector    elementwise: any shape will do
    extreme   dtypes in which the formula holds at the ends of the range and, for floats, at infinity and NaN
    bits      False: other layouts of the inputs may give other bits (matrix products read transposed operands in place,
              and may add in another order then)
    kernels   kernels it runs besides those named like the functions of the expression, and their _grad
    """

    expr: str
    ref: Callable
    inputs: dict
    dtypes: tuple = FLOATS
    result: Any = "same"
    grad: Optional[tuple] = None
    numeric: bool = True
    second: bool = True
    terms: Any = None
    loose: float = 1.0
    rounds: int = 1
    grad_loose: float = 1.0
    shapes: tuple = ()
    large: tuple = ()
    empty: tuple = ()
    vector: bool = False
    extreme: tuple = ALL
    bits: bool = True
    kernels: tuple = ()
    note: str = ""

    def __init__(self, expr, ref, **fields):
        """Keywords that are no field are inputs by name."""
        known = {k: fields.pop(k) for k in list(fields) if k in self.__dataclass_fields__}
        defaults = {k: f.default for k, f in self.__dataclass_fields__.items()}
        for key, value in {**defaults, **known, "expr": expr, "ref": ref, "inputs": fields}.items():
            object.__setattr__(self, key, value)

    @property
    def id(self) -> str:
        return f"{self.expr} [{self.note}]" if self.note else self.expr

    @functools.cached_property
    def call(self) -> Callable:
        return eval(f"lambda {', '.join([*self.inputs, 'dtype'])}: {self.expr}", namespace())

    @property
    def differentiable(self) -> tuple:
        if self.grad is not None:
            return self.grad
        return tuple(name for name, spec in self.inputs.items() if spec.kind in ("num", "stat"))

    def result_dtype(self, under_test: str, output: int = 0) -> str:
        rule = self.result if isinstance(self.result, str) else self.result[output]
        if under_test in FLOATS and rule in ("same", "float", "sum", "int"):
            return under_test
        if rule == "int":
            return "int64" if under_test == "bool" else under_test
        return {"same": under_test, "float": "float32", "sum": "int64"}.get(rule, rule)

    def run(self, tensors: dict, under_test: str) -> list:
        """The results of the call, as a list of tensors."""
        import anello

        return as_list(self.call(*tensors.values(), getattr(anello, under_test)))

    def sample(self, under_test: str, shapes: Optional[dict] = None, seed: int = 0) -> dict:
        """Inputs as arrays; num floats of one range are distinct across inputs too, so that none tie."""
        rng = np.random.default_rng([seed, *self.expr.encode()])
        shapes = {name: (shapes or {}).get(name, spec.shape) for name, spec in self.inputs.items()}
        values = {name: spec.sample(rng, under_test, shapes[name]) for name, spec in self.inputs.items()}
        groups: dict = {}
        for name, spec in self.inputs.items():
            if spec.dtype(under_test) in FLOATS:
                groups.setdefault((spec.low, spec.high, spec.avoid, spec.dtype(under_test)), []).append(name)
        for (*_, dtype), names in groups.items():
            if len(names) < 2:
                continue
            sizes = [math.prod(shapes[n]) for n in names]
            joint = round_to(self.inputs[names[0]].floats(rng, (sum(sizes),)), dtype)
            for name, part in zip(names, np.split(joint, np.cumsum(sizes)[:-1])):
                values[name] = part.reshape(shapes[name])
        return values

    def tensors(self, values: dict, under_test: str) -> dict:
        return {name: make_tensor(values[name], spec.dtype(under_test)) for name, spec in self.inputs.items()}

    def widened(self, values: dict) -> list:
        """Integers in int64, so that references wrap only at the end, or in float64 where the result is a float."""
        kinds, wide = ("iub", np.float64) if self.result == "float" else ("iu", np.int64)
        return [
            v.astype(wide) if v.dtype.kind in kinds and self.inputs[n].kind == "num" else v for n, v in values.items()
        ]

    def expected(self, values: dict, under_test: str) -> list:
        """The exact results, one array an output."""
        with np.errstate(all="ignore"):
            results = as_list(self.ref(*self.widened(values)))
            return [cast_reference(v, self.result_dtype(under_test, i)) for i, v in enumerate(results)]

    def scale(self, values: dict, output: int = 0):
        """The size of what is added up for an output."""
        if self.terms is None:
            return 0.0
        with np.errstate(all="ignore"):
            if self.terms is True:
                return np.abs(as_list(self.ref(*map(np.abs, self.widened(values))))[output])
            return self.terms(*self.widened(values))

    @functools.cached_property
    def functions(self) -> set:
        """Public names the expression uses: "add", "nn.functional.conv2d", "Tensor.clone", "Tensor.__add__"."""
        used = set()
        for node in ast.walk(ast.parse(self.expr, mode="eval")):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                used.add(f"Tensor.__{HELPER_OPERATORS[name]}__" if name in HELPER_OPERATORS else name)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                inside_f = isinstance(owner, ast.Name) and owner.id == "F"
                used.add(f"nn.functional.{node.func.attr}" if inside_f else f"Tensor.{node.func.attr}")
            elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "F"):
                used.add(f"Tensor.{node.attr}")
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in OPERATORS:
                used.add(f"Tensor.__{OPERATORS[type(node.op)]}__")
                if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
                    used.add(f"Tensor.__r{OPERATORS[type(node.op)]}__")
            elif isinstance(node, ast.Compare):
                used.update(f"Tensor.__{OPERATORS[type(op)]}__" for op in node.ops)
            elif isinstance(node, ast.Subscript):
                used.add("Tensor.__getitem__")
        return used

    @functools.cached_property
    def kernel_names(self) -> set:
        names = {f.rpartition(".")[2] for f in self.functions} | set(self.kernels)
        return names | {f"{n}_grad" for n in names}


def as_list(results) -> list:
    return list(results) if isinstance(results, (tuple, list)) else [results]
