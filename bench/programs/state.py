# SPDX-License-Identifier: Apache-2.0
#
# state.py MIB FOLDER [load]: a process with MIB of numbers that cannot be compressed, for bench/beside.sh.  It counts in
# FOLDER/tick, reads one number of each page for that, and writes the numbers with pickle to FOLDER/state when there is a
# file FOLDER/ask.  With load it reads them from there at its start.
import os
import pickle
import sys
import time

import numpy

mib, folder = int(sys.argv[1]), sys.argv[2]
if len(sys.argv) > 3 and sys.argv[3] == "mpi":
    from mpi4py import MPI  # noqa: F401: as a program of mpi4py has it
if "load" in sys.argv:
    with open(folder + "/state", "rb") as f:
        state = pickle.load(f)
else:
    state = numpy.random.default_rng(1).integers(0, 1 << 62, mib << 17)


def put(name, text):
    with open(folder + "/" + name + ".new", "w") as f:
        f.write(text)
    os.rename(folder + "/" + name + ".new", folder + "/" + name)


ticks = 0
while not os.path.exists(folder + "/stop"):
    ticks += 1
    put("tick", f"{time.time():.6f}")
    if os.path.exists(folder + "/all"):  # all memory is wanted
        os.remove(folder + "/all")
        put("sum", str(int(state[::512].sum())))
    if os.path.exists(folder + "/ask"):
        with open(folder + "/state", "wb") as f:
            pickle.dump(state, f, protocol=5)
            f.flush()
            os.fsync(f.fileno())
        os.remove(folder + "/ask")
    time.sleep(0.005)
