"""anello.dist in one process: everything works with one rank, is documented, has a stub, and refuses wrong arguments.

Main entry: the tests. Between processes: tests/dist/test_dist.py.
"""

import ast
import inspect
from pathlib import Path

import pytest

import anello
from anello import dist, nn

CLASSES = ("Communicator", "Work", "ReductionReport", "DataParallel", "SyncBatchNorm")


def public_things():
    for module in (dist, dist.functional):
        for name in module.__all__:
            if name not in ("functional",):
                yield f"{module.__name__}.{name}", getattr(module, name)
    for name in CLASSES:
        for member, value in vars(getattr(dist, name)).items():
            if not member.startswith("_"):
                yield f"{name}.{member}", value


@pytest.mark.parametrize("name, thing", list(public_things()), ids=lambda v: v if isinstance(v, str) else "")
def test_is_documented(name, thing):
    text = inspect.getdoc(thing) or getattr(getattr(thing, "__func__", None), "__doc__", "") or ""
    assert text.strip(), f"{name} has no docstring"
    if name.startswith("anello.dist") and not name.endswith("ReductionReport"):
        assert ">>>" in text, f"{name} has no example"


def test_everything_compiled_has_a_stub():
    stubs = Path(anello.__file__).parent / "_C"
    for part in ("_dist", "_dist_functional"):
        tree = ast.parse((stubs / f"{part}.pyi").read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        module = getattr(anello._C, part)
        wanted = {n for n in vars(module) if not n.startswith("__") and callable(getattr(module, n))}
        assert wanted - defined == set()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: dist.all_reduce(anello.ones(1), "sun"), ValueError, "did you mean 'sum'"),
        (lambda: dist.DataParallel(nn.Linear(1, 1), reduction="men"), ValueError, "did you mean 'mean'"),
        (lambda: dist.DataParallel(nn.Linear(1, 1), compression="int4"), ValueError, "no compression 'int4'"),
        (lambda: dist.DataParallel(nn.Linear(1, 1), nonfinite="x"), ValueError, "no treatment of NaN 'x'"),
        (lambda: dist.DataParallel(nn.Linear(1, 1)).set_samples(-1), ValueError, "samples is -1"),
        (lambda: dist.SyncBatchNorm(3)(anello.ones(1, 3)), ValueError, "all ranks together have one"),
    ],
)
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_wrapped_model_trains_as_the_model_does():
    results = []
    for wrap in (lambda net: net, dist.DataParallel):
        anello.manual_seed(3)
        model = wrap(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
        optimizer = anello.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            (model(anello.randn(6, 4)) ** 2).mean().backward()
            optimizer.step()
        results.append({name: value.tolist() for name, value in model.state_dict().items()})
    assert results[0] == results[1]


def test_even_batches_of_one_rank_are_the_batches():
    batches = [(anello.ones(2, 3), anello.zeros(2)), (anello.ones(1, 3), anello.zeros(1))]
    assert [x.shape for x, y in dist.even_batches(batches)] == [(2, 3), (1, 3)]
    assert list(dist.even_batches([])) == []
