"""What is public in the package, and what of it is not an operation on numbers (it has tests of its own, not rows).

Main entry: functions(), methods(), OPERATORS.
"""

import types

# Functions that move, describe, compare as a whole or configure: no formula to compare with.
NOT_OPERATIONS = {
    "allclose",
    "equal",
    "as_tensor",
    "cmake_dir",
    "cpu_isa",
    "empty_cache",
    "from_dlpack",
    "from_numpy",
    "get_num_threads",
    "get_rng_state",
    "load",
    "load_checkpoint",
    "manual_seed",
    "memory_stats",
    "plugin_report",
    "promote_types",
    "registered_kernels",
    "reset_peak_memory",
    "save",
    "save_checkpoint",
    "set_num_threads",
    "set_rng_state",
    "tensor",
}
RANDOM = {"rand", "randint", "randn", "randperm"}  # tested by their statistics, in test_random.py

NOT_OPERATION_METHODS = {
    "allclose",
    "equal",
    "T",
    "backward",
    "data",
    "data_ptr",
    "detach",
    "device",
    "dim",
    "dtype",
    "element_size",
    "grad",
    "grad_fn",
    "is_contiguous",
    "is_floating_point",
    "is_leaf",
    "item",
    "itemsize",
    "name",
    "nbytes",
    "ndim",
    "numel",
    "numpy",
    "on_grad_ready",
    "requires_grad",
    "requires_grad_",
    "retain_grad",
    "shape",
    "size",
    "storage_offset",
    "stride",
    "tolist",
    "zero_grad",
}
RANDOM_METHODS = {"normal_", "uniform_"}
OPERATORS = {
    f"__{name}__"
    for name in [
        "abs",
        "add",
        "and",
        "eq",
        "floordiv",
        "ge",
        "getitem",
        "gt",
        "iadd",
        "imul",
        "invert",
        "isub",
        "itruediv",
        "le",
        "lt",
        "matmul",
        "mod",
        "mul",
        "ne",
        "neg",
        "or",
        "pos",
        "pow",
        "radd",
        "rfloordiv",
        "rmod",
        "rmul",
        "rpow",
        "rsub",
        "rtruediv",
        "setitem",
        "sub",
        "truediv",
        "xor",
    ]
}


def functions():
    """Names of the module's functions that compute: those that need a row."""
    import anello

    names = {name for name in vars(anello._C) if not name.startswith("_") and is_function(getattr(anello._C, name))}
    return sorted(names - NOT_OPERATIONS - RANDOM)


def is_function(value):
    return callable(value) and not isinstance(value, (type, types.ModuleType))


def methods():
    """Names of Tensor's methods that compute and are not functions of the module too."""
    import anello

    names = {name for name in dir(anello.Tensor) if not name.startswith("_")}
    return sorted(names - NOT_OPERATION_METHODS - RANDOM_METHODS - set(functions()))
