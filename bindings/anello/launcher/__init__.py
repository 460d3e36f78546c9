# `anello run`: starts a program as several ranks through Open MPI's mpirun, and looks after them until all have ended.
# Main entry: run().
"""The launcher behind `anello run`; standard library alone, so that it works where nothing else does."""

from ._job import run
from ._mpirun import LaunchError, find_mpirun

__all__ = ["LaunchError", "find_mpirun", "run"]
