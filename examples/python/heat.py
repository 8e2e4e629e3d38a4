#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plate of heat on mpi4py and numpy that goes on where it was killed, without ckptrun.

    mpiexec -n 4 python3 heat.py STEPS EVERY [LIBCKPT]

LIBCKPT is libckpt.so, which else is looked for as the loader does. Checkpoints go to CKPT_DIR, or to "ckpt". Start it
again after whatever ended it; another number of ranks will do, too, since it says how the rows are distributed.
"""

import ctypes
import hashlib
import sys

import numpy as np
from mpi4py import MPI  # initializes MPI

ERROR, CHECKPOINT, RESTART, IGNORE = range(4)


class Checkpoint:
    """mpix_checkpoint.h, for arrays of numpy."""

    def __init__(self, path="libckpt.so.1"):
        self.lib = ctypes.CDLL(path)
        self.held = {}  # libckpt has the address of what is protected, so it must not go away

    def call(self, name, *args):
        if getattr(self.lib, "MPIX_Checkpoint" + name)(*args) != 0:
            raise RuntimeError(f"MPIX_Checkpoint{name}: {self.reason()}")

    def reason(self):
        text = ctypes.create_string_buffer(1000)
        self.lib.MPIX_Checkpoint_reason(text, ctypes.c_size_t(len(text)))
        return text.value.decode()

    def protect(self, number, array):
        """Names an array that lies in memory without gaps. It must not be replaced, only its elements."""
        if not array.flags.c_contiguous:
            raise ValueError("the array has gaps")
        self.call("_protect", number, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        self.held[number] = array

    def spread(self, number, whole, first):
        """Says that the array is the part from first on of an array of shape whole."""
        array = self.held[number]
        sizes = ctypes.c_size_t * array.ndim
        self.call("_distribute", number, array.ndim, sizes(*whole), sizes(*first), sizes(*array.shape),
                  ctypes.c_size_t(array.itemsize))

    def same(self, number):
        """Says that all ranks have the same in it."""
        self.call("_distribute", number, 0, None, None, None, ctypes.c_size_t(0))

    def recover(self):
        state = ctypes.c_int()
        self.call("_recover", ctypes.byref(state))
        return state.value == RESTART

    def save(self):
        state = ctypes.c_int()
        self.call("", ctypes.byref(state))
        if state.value != CHECKPOINT:
            print(f"not saved: {self.reason()}", file=sys.stderr)
        return state.value == CHECKPOINT


def main():
    steps, every = int(sys.argv[1]), int(sys.argv[2])
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    rows, columns = 64, 256
    first = rows * rank // size
    mine = rows * (rank + 1) // size - first

    u = np.zeros((mine + 2, columns))  # with a row of each neighbour
    inner = u[1:-1]
    step = np.zeros(1, dtype=np.int64)
    ckpt = Checkpoint(*sys.argv[3:])
    ckpt.protect(0, inner)
    ckpt.spread(0, (rows, columns), (first, 0))
    ckpt.protect(1, step)
    ckpt.same(1)
    if ckpt.recover() and rank == 0:
        print(f"restart at {step[0]}", flush=True)

    up = rank - 1 if rank > 0 else MPI.PROC_NULL
    down = rank + 1 if rank < size - 1 else MPI.PROC_NULL
    while step[0] < steps:
        comm.Sendrecv(u[1], up, recvbuf=u[-1], source=down)
        comm.Sendrecv(u[-2], down, recvbuf=u[0], source=up)
        if rank == 0:
            u[0] = 1  # the hot edge
        inner[:, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        step[0] += 1
        if every and step[0] % every == 0 and ckpt.save() and rank == 0:
            print(f"saved {step[0]}", flush=True)

    parts = comm.gather(inner.copy())
    if rank == 0:
        print("end", hashlib.sha256(np.vstack(parts).tobytes()).hexdigest())


main()
