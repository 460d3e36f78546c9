"""Writes the type stubs of anello._C from the signatures in its docstrings: run it after a change of the bindings.

Main entry: python bindings/make_stubs.py (with the built package on the path).
"""

import re
import sys
import types
from pathlib import Path

import anello
from anello import _C

OUT = Path(__file__).resolve().parent / "anello" / "_C"
HEADER = """# Made by bindings/make_stubs.py from the signatures in anello._C: run that again instead of editing.
# ruff: noqa
import collections.abc
import typing

import anello
import anello._C
"""
SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\) -> (.+)$")

# What the hand-written type slots of Tensor take and give.
NUMBER = "anello.Tensor | float"
TENSOR_SLOTS = {
    **{f"__{side}{op}__": (f"other: {NUMBER}", "anello.Tensor") for op in
       ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow") for side in ("", "r")},
    **{f"__i{op}__": (f"other: {NUMBER}", "anello.Tensor") for op in ("add", "sub", "mul", "truediv")},
    **{f"__{op}__": (f"other: {NUMBER}", "anello.Tensor") for op in ("lt", "le", "gt", "ge")},
    **{f"__{op}__": ("other: anello.Tensor | bool", "anello.Tensor") for op in ("and", "or", "xor", "rand", "ror", "rxor")},
    **{f"__{op}__": ("", "anello.Tensor") for op in ("neg", "pos", "abs", "invert")},
    "__matmul__": ("other: anello.Tensor", "anello.Tensor"),
    "__eq__": ("other: object", "anello.Tensor"),
    "__ne__": ("other: object", "anello.Tensor"),
    "__hash__": ("", "int"),
    "__getitem__": ("key: typing.Any", "anello.Tensor"),
    "__setitem__": ("key: typing.Any, value: typing.Any", "None"),
    "__contains__": ("value: typing.Any", "bool"),
    "__iter__": ("", "collections.abc.Iterator[anello.Tensor]"),
    "__len__": ("", "int"),
    "__bool__": ("", "bool"),
    "__int__": ("", "int"),
    "__float__": ("", "float"),
    "__index__": ("", "int"),
    "__new__": ("data: typing.Any, requires_grad: bool = ...", "typing.Self"),
}  # fmt: skip
TENSOR_ATTRIBUTES = {
    "shape": "tuple[int, ...]", "dtype": "anello.dtype", "device": "anello.device", "ndim": "int", "itemsize": "int",
    "nbytes": "int", "requires_grad": "bool", "grad": "anello.Tensor | None", "is_leaf": "bool", "name": "str",
    "grad_fn": "anello.autograd.Node | None", "T": "anello.Tensor", "data": "anello.Tensor",
}  # fmt: skip


def public(text):
    """Types under the names that are public, and no value in a default that a stub need not know."""
    for part, name in (
        ("_nn", "nn"),
        ("_optim", "optim"),
        ("_data", "data"),
        ("_autograd", "autograd"),
        ("_dist", "dist"),
    ):
        text = text.replace(f"anello._C.{part}.", f"anello.{name}.")
    text = text.replace("anello._C.", "anello.").replace("typing.SupportsInt | typing.SupportsIndex", "int")
    text = text.replace("typing.SupportsFloat | typing.SupportsIndex", "float")
    return re.sub(r" = [^,()\[\]]+(\([^()]*\)|\[[^\[\]]*\])?|= (\([^()]*\)|\[[^\[\]]*\])", " = ...", text)


def signatures(function):
    """[(arguments, result)] from a pybind11 docstring; of an overloaded function, one each."""
    found = []
    for line in (function.__doc__ or "").split("\n"):
        match = SIGNATURE.match(line.strip())
        if (
            match
            and match[1] == function.__name__
            and "*args, **kwargs" not in match[2].replace("*args, **kwargs) ->", "")
        ) or (match and match[1] == function.__name__ and not (function.__doc__ or "").count("Overloaded function")):
            found.append((public(match[2]), public(match[3])))
        if not found and line.strip() == "" and "Overloaded" not in (function.__doc__ or ""):
            break
    return found or [("*args: typing.Any, **kwargs: typing.Any", "typing.Any")]


def define(name, function, indent="", method=False, static=False):
    lines, overloads = [], signatures(function)
    for arguments, result in overloads:
        if method and not static:
            _, _, rest = arguments.partition(",")
            arguments = "self" + (f", {rest.strip()}" if rest.strip() else "")
        if len(overloads) > 1:
            lines.append(f"{indent}@typing.overload")
        if static:
            lines.append(f"{indent}@staticmethod")
        lines.append(f"{indent}def {name}({arguments}) -> {result}: ...")
    return lines


def property_type(descriptor):
    match = re.search(r"-> (.+)$", (getattr(descriptor.fget, "__doc__", "") or "").split("\n")[0])
    return public(match[1]) if match else "typing.Any"


def define_class(name, cls):
    bases = ", ".join(
        public(f"{b.__module__}.{b.__qualname__}")
        for b in cls.__bases__
        if b.__name__ not in ("pybind11_object", "object")
    )
    lines = [f"class {name}({bases}):" if bases else f"class {name}:"]
    for key, value in sorted(vars(cls).items()):
        if isinstance(value, property):
            lines += [f"    @property\n    def {key}(self) -> {property_type(value)}: ..."]
        elif type(value).__name__ == "instancemethod":
            if key.startswith("__") and key not in (
                "__init__",
                "__call__",
                "__getitem__",
                "__setitem__",
                "__len__",
                "__iter__",
                "__next__",
                "__contains__",
            ):
                continue
            lines += define(key, value.__func__, "    ", method=True)
        elif isinstance(value, staticmethod):
            lines += define(key, value.__func__, "    ", method=True, static=True)
    if cls is _C.Tensor:
        lines += [f"    {key}: {kind}" for key, kind in TENSOR_ATTRIBUTES.items()]
        for key, (arguments, result) in TENSOR_SLOTS.items():
            lines.append(
                f"    def {key}({'cls' if key == '__new__' else 'self'}{', ' if arguments else ''}{arguments}) -> {result}: ..."
            )
    if cls is _C._nn.Module:
        lines.append("    def __getattr__(self, name: str) -> typing.Any: ...")
    return lines if len(lines) > 1 else [lines[0] + " ..."]


def stub(module):
    lines = [HEADER]
    for name, value in sorted(vars(module).items()):
        if name.startswith("__") and name != "__version__":
            continue
        if isinstance(value, types.ModuleType):
            lines.append(f"from . import {name} as {name}")
        elif isinstance(value, type):
            lines += define_class(name, value)
        elif callable(value):
            lines += define(name, value)
        else:
            lines.append(
                f"{name}: {public(type(value).__module__ + '.' + type(value).__name__).replace('builtins.', '')}"
            )
    return "\n".join(lines) + "\n"


def stubs():
    """The text of each stub file by its name."""
    files = {"__init__.pyi": stub(_C)}
    for name, value in vars(_C).items():
        if isinstance(value, types.ModuleType):
            files[f"{name}.pyi"] = stub(value)
    return files


def main():
    OUT.mkdir(exist_ok=True)
    for name, text in stubs().items():
        (OUT / name).write_text(text)
        print(OUT / name, file=sys.stderr)


if __name__ == "__main__":
    assert anello.__file__
    main()
