# The dict that states come back as from a file.
# Main entry: StateDict.
from __future__ import annotations

from typing import Any, NamedTuple


class StateDict(dict):
    """A dict of tensors and values under full names. state["model"] is the dict of all that begin with "model.".

    >>> from anello._state import StateDict
    >>> state = StateDict({"model.weight": 1, "model.bias": 2, "epoch": 3})
    >>> state["model"]
    {'weight': 1, 'bias': 2}
    >>> "model" in state, "epoch" in state, "other" in state
    (True, True, False)
    """

    def __missing__(self, prefix: str) -> Any:
        start = f"{prefix}."
        part = StateDict((name[len(start) :], value) for name, value in self.items() if name.startswith(start))
        if not part:
            raise KeyError(prefix)
        return part

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or any(key.startswith(f"{name}.") for key in self)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


class LoadReport(NamedTuple):
    """What load_state_dict(strict=False) passed over: names the state lacks, and names the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]
