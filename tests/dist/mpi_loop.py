"""A program of several ranks that is in MPI_Allreduce nearly all of the time, by ctypes: a workload for the
launcher's tests.

    mpi_loop.py STEPS [TOKEN]

Main entry: main()."""

import ctypes
import os
import sys


def main():
    steps = int(sys.argv[1])
    mpi = ctypes.CDLL(os.environ.get("ANELLO_MPI_LIBRARY", "libmpi.so.40"), ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)

    def symbol(name):
        return ctypes.byref(ctypes.c_char.in_dll(mpi, name))

    count = 1 << 16
    mine, total = (ctypes.c_double * count)(*([1.0] * count)), (ctypes.c_double * count)()
    for step in range(steps):
        mpi.MPI_Allreduce(
            mine, total, count, symbol("ompi_mpi_double"), symbol("ompi_mpi_op_sum"), symbol("ompi_mpi_comm_world")
        )
        if step == 0:
            print("first sum", total[count - 1], flush=True)
    mpi.MPI_Finalize()


main()
