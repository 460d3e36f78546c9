"""The house of the design: a folder is a layer, and an include may only point to the left.

    core  <-  autograd  <-  layers, optim  <-  dist  <-  bindings
    core  <-  datasets                               <-  bindings

Main entry: violations(root), a list of "file:line: what is wrong"; the tests run it on the tree and on small bad trees.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each folder may include, besides itself.
MAY_INCLUDE = {
    "core": set(),
    "autograd": {"core"},
    "layers": {"core", "autograd"},
    "optim": {"core", "autograd"},
    "datasets": {"core"},
    "dist": {"core", "autograd", "layers", "optim"},
    "bindings": {"core", "autograd", "layers", "optim", "datasets", "dist"},
}
# Kernels and their parameter structs stand alone: of core they may know only these, so that none ever sees a Tensor.
KERNEL_FOLDERS = ("core/kernels/", "core/cpu/")
KERNELS_MAY_INCLUDE = {f"core/{name}.h" for name in ("context", "device", "dtype", "plugin", "shape")}
# Third-party headers, and the only folders whose sources may use them.
THIRD_PARTY = {
    r"(unsupported/)?Eigen/": ("core/cpu/",),
    r"mpi\.h|openmpi/": ("dist/mpi/",),
    r"nccl\.h": ("dist/nccl/",),
    r"cuda|cublas|cudnn|cub/|thrust/": ("core/cuda/", "dist/nccl/"),
    r"pybind11/|Python\.h|numpy/": ("bindings/",),
    r"nlohmann/": ("core/",),
    r"catch2/": (),
}
# Headers in these places are not installed, so their readers are our own sources.
PRIVATE = (
    "core/json/",
    "core/cpu/",
    "core/cuda/",
    "autograd/functions/",
    "dist/local/",
    "dist/mpi/",
    "dist/nccl/",
    "bindings/",
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(<|")([^>"]+)[>"]')


def includes(path):
    """(line number, bracket, name) of each include in a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def fault(root, file, bracket, name):
    """What is wrong with one include of a file (a path relative to root), or None."""
    layer = file.split("/")[0]
    if layer == "bindings" and bracket == '"' and (root / "bindings" / name).exists():
        return None  # headers of the extension module are nobody else's
    if not name.startswith("anello/"):
        if name.split("/")[0] in MAY_INCLUDE or (bracket == '"' and (root / file).with_name(name).exists()):
            return f"own header as {bracket}{name}. Hint: #include <anello/folder/header.h>"
        for pattern, folders in THIRD_PARTY.items():
            if re.match(pattern, name):
                public = file.endswith(".h") and not file.startswith(PRIVATE)
                if public:
                    return f"third-party header <{name}> in a public header"
                if not file.startswith(folders):
                    return f"third-party header <{name}> belongs only in {', '.join(folders) or 'tests'}"
        return None
    target = name[len("anello/") :]
    if bracket == '"':
        return f"own header in quotes. Hint: #include <{name}>"
    if not (root / target).exists():
        return f"<{name}> does not exist"
    if file.startswith(KERNEL_FOLDERS):
        allowed = target in KERNELS_MAY_INCLUDE or target.startswith("core/kernels/")
        if not allowed and not (file.startswith("core/cpu/") and target.startswith("core/cpu/")):
            known = ", ".join(sorted(KERNELS_MAY_INCLUDE))
            return f"a kernel file includes <{name}>: it may know only core/kernels and {known}"
    folder = target.split("/")[0]
    if folder != layer and folder not in MAY_INCLUDE[layer]:
        return f"{layer} may not include {folder}: <{name}> points the wrong way"
    if target.startswith(PRIVATE) and folder != layer:
        return f"<{name}> is private to {folder}"
    if target.startswith(PRIVATE) and file.endswith(".h") and not file.startswith(PRIVATE):
        return f"a public header includes <{name}>, which is not installed"
    return None


def violations(root):
    found = []
    for layer in MAY_INCLUDE:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            file = path.relative_to(root).as_posix()
            for number, bracket, name in includes(path):
                what = fault(root, file, bracket, name)
                if what:
                    found.append(f"{file}:{number}: {what}")
    return found


def not_in_umbrella(root):
    """Public headers of the layers above autograd that <anello/anello.h> does not reach.

    Core, autograd and dist have headers for those who extend them: plug-ins, kernel parameters, the graph's internals,
    what operations between ranks are made of.
    """
    reached, todo = set(), ["anello.h"]
    while todo:
        file = todo.pop()
        if file in reached or not (root / file).exists():
            continue
        reached.add(file)
        todo += [name[len("anello/") :] for _, _, name in includes(root / file) if name.startswith("anello/")]
    public = [p.relative_to(root).as_posix() for layer in MAY_INCLUDE for p in sorted((root / layer).rglob("*.h"))]
    return [
        file
        for file in public
        if not file.startswith((*PRIVATE, "core/", "autograd/", "dist/")) and file not in reached
    ]


def test_every_include_points_to_the_left():
    found = violations(ROOT)
    assert not found, "\n" + "\n".join(found)


def test_the_umbrella_header_reaches_every_public_header():
    missing = not_in_umbrella(ROOT)
    assert not missing, f"anello.h does not include {missing}"


GOOD = {
    "core/tensor.h": "#pragma once\n#include <vector>\n#include <anello/core/dtype.h>\n",
    "core/dtype.h": "#pragma once\n",
    "core/kernels/conv.h": "#include <anello/core/dtype.h>\n",
    "core/cpu/tile.h": "#include <Eigen/Core>\n",
    "core/cpu/conv.cpp": "#include <anello/core/cpu/tile.h>\n#include <anello/core/kernels/conv.h>\n",
    "autograd/node.h": "#include <anello/core/tensor.h>\n",
    "layers/linear.h": "#include <anello/autograd/node.h>\n",
    "optim/sgd.h": "#include <anello/core/tensor.h>\n",
    "datasets/loader.h": "#include <anello/core/tensor.h>\n",
    "dist/bucket.h": "#include <anello/optim/sgd.h>\n",
    "bindings/bindings.h": "#include <pybind11/pybind11.h>\n",
    "bindings/module.cpp": '#include "bindings.h"\n#include <anello/datasets/loader.h>\n',
    "anello.h": "".join(f"#include <anello/{h}.h>\n" for h in ("layers/linear", "dist/bucket", "datasets/loader")),
}
BAD = {
    "core upwards": ("core/tensor.cpp", "<anello/autograd/node.h>", "core may not include autograd"),
    "autograd upwards": ("autograd/node.cpp", "<anello/layers/linear.h>", "autograd may not include layers"),
    "siblings": ("layers/linear.cpp", "<anello/optim/sgd.h>", "layers may not include optim"),
    "layers to dist": ("layers/linear.cpp", "<anello/dist/bucket.h>", "layers may not include dist"),
    "datasets to autograd": ("datasets/loader.cpp", "<anello/autograd/node.h>", "datasets may not include autograd"),
    "dist to datasets": ("dist/bucket.cpp", "<anello/datasets/loader.h>", "dist may not include datasets"),
    "kernel sees a tensor": ("core/cpu/add.cpp", "<anello/core/tensor.h>", "a kernel file includes"),
    "parameters see a tensor": ("core/kernels/add.h", "<anello/core/tensor.h>", "a kernel file includes"),
    "Eigen in a public header": ("core/shape.h", "<Eigen/Core>", "in a public header"),
    "Eigen outside core/cpu": ("autograd/node.cpp", "<Eigen/Core>", "belongs only in core/cpu/"),
    "MPI in a public header": ("dist/ring.h", "<mpi.h>", "in a public header"),
    "CUDA in a public header": ("core/device.h", "<cuda_runtime.h>", "in a public header"),
    "pybind11 in a public header": ("layers/module.h", "<pybind11/pybind11.h>", "in a public header"),
    "pybind11 outside bindings": ("layers/module.cpp", "<pybind11/pybind11.h>", "belongs only in bindings/"),
    "quotes": ("autograd/engine.cpp", '"anello/autograd/node.h"', "own header in quotes"),
    "relative": ("autograd/engine.cpp", '"node.h"', "own header as"),
    "without the prefix": ("autograd/engine.cpp", "<autograd/node.h>", "own header as"),
    "unknown header": ("autograd/engine.cpp", "<anello/autograd/gone.h>", "does not exist"),
    "private of another folder": ("autograd/engine.cpp", "<anello/core/cpu/tile.h>", "is private to core"),
    "private in a public header": ("core/shape.h", "<anello/core/cpu/tile.h>", "which is not installed"),
}


def write_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_good_tree_passes(tmp_path):
    write_tree(tmp_path, GOOD)
    assert violations(tmp_path) == []
    assert not_in_umbrella(tmp_path) == []


@pytest.mark.parametrize("case", BAD)
def test_a_bad_include_is_found(tmp_path, case):
    file, include, message = BAD[case]
    write_tree(tmp_path, {**GOOD, file: f"// one line above\n#  include {include}\n"})
    found = violations(tmp_path)
    assert len(found) == 1, found
    assert found[0].startswith(f"{file}:2: ") and message in found[0]


def test_a_header_missing_from_the_umbrella_is_found(tmp_path):
    write_tree(tmp_path, {**GOOD, "layers/conv.h": "#pragma once\n"})
    assert not_in_umbrella(tmp_path) == ["layers/conv.h"]
