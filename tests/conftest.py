"""What every Python test shares: which tier of tests is wanted. Skips say why.

Main entry: pytest --tier=fast|default|all|ci (./dev test passes it).
"""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--tier",
        choices=("fast", "default", "all", "ci"),
        default="default",
        help="fast: without tests marked slow; default: all but packaging; all, ci: everything",
    )


def pytest_collection_modifyitems(config, items):
    tier = config.getoption("--tier")
    slow = pytest.mark.skip(reason="slow, and --fast was asked for. Hint: ./dev test")
    packaging = pytest.mark.skip(reason="builds the sdist and a wheel, which takes minutes. Hint: ./dev test --all")
    for item in items:
        if item.get_closest_marker("packaging") and tier in ("fast", "default"):
            item.add_marker(packaging)
        elif item.get_closest_marker("slow") and tier == "fast":
            item.add_marker(slow)
