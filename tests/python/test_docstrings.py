"""Every example in a docstring of the package runs and prints what it says.

Main entry: pytest tests/python/test_docstrings.py.
"""

import doctest
import inspect
import pkgutil
import types

import pytest

import anello


def modules():
    """The package and every public module in it."""
    found = {"anello": anello}
    for info in pkgutil.walk_packages(anello.__path__, "anello."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found[info.name] = __import__(info.name, fromlist=["_"])
    return found


def documented():
    """{name: docstring} of modules, public functions, classes and members; what several modules show comes once."""
    found, seen = {}, set()

    def visit(name, thing, owner):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        text = inspect.getdoc(thing) if not isinstance(thing, types.ModuleType) else thing.__doc__
        if text and ">>>" in text:
            found[name] = text
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") or member in ("__init__", "__call__"):
                    visit(f"{name}.{member}", getattr(value, "__func__", value), thing)

    for module_name, module in sorted(modules().items()):
        visit(module_name, module, None)
        for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
            thing = getattr(module, name)
            if not isinstance(thing, types.ModuleType) and str(getattr(thing, "__module__", "anello")).startswith(
                "anello"
            ):
                visit(f"{module_name}.{name}", thing, module)
    return found


EXAMPLES = documented()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
    assert test.examples
    report = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_examples_are_found_everywhere():
    """The walk has not lost a part of the package."""
    short = {name.rsplit(".", 1)[-1] for name in EXAMPLES}
    assert short >= {"anello", "matmul", "Conv2d", "Muon", "DataLoader", "cross_entropy", "gradcheck", "backward"}
