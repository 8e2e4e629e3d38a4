# SPDX-License-Identifier: Apache-2.0
#
# One-sided communication, and a file that all ranks write, as often as the second argument says (once),
# each time another file. Rank 0 prints what came of it.
import hashlib
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
me, n = world.rank, world.size


def say(*words):
    if me == 0:
        print(*words, flush=True)


def one_sided():
    memory = np.full(n + 2, -1.0)
    window = MPI.Win.Create(memory, disp_unit=memory.itemsize, comm=world)
    window.Fence()
    # What is put must live until the fence.
    sent = me * 10.0 + np.arange(n)
    for target in range(n):
        window.Put(sent[target : target + 1], target, target=me)
    window.Fence()
    say("put", memory[:n].tolist())
    added = np.array([me + 1.0])
    window.Accumulate(added, 0, target=n, op=MPI.SUM)
    window.Fence()
    say("accumulate", memory[n])
    there = np.zeros(n)
    window.Lock((me + 1) % n, MPI.LOCK_SHARED)
    window.Get(there, (me + 1) % n)
    window.Unlock((me + 1) % n)
    say("get", there.tolist())
    window.Lock(0)
    before = np.zeros(1)
    window.Fetch_and_op(np.array([2.0]), before, 0, n + 1, op=MPI.SUM)
    window.Unlock(0)
    world.Barrier()
    say("fetch and op", memory[n + 1])
    window.Free()
    shared = MPI.Win.Allocate_shared(8 if me == 0 else 0, 8, comm=world)
    all_of_it, _ = shared.Shared_query(0)
    counter = np.frombuffer(all_of_it, "i8")
    if me == 0:
        counter[0] = 17
    shared.Fence()
    assert world.allreduce(int(counter[0])) == 17 * n
    shared.Fence()
    del counter, all_of_it
    shared.Free()


def file(name):
    f = MPI.File.Open(world, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    f.Set_size(0)
    # Ranks take turns, 16 doubles each.
    turns = MPI.DOUBLE.Create_vector(6, 16, 16 * n).Commit()
    f.Set_view(me * 16 * 8, MPI.DOUBLE, turns)
    mine = np.cos(np.arange(96.0) + 1000 * me)
    f.Write_all(mine)
    f.Set_view(0, MPI.BYTE)
    f.Sync()
    world.Barrier()
    f.Sync()
    everything = np.empty(96 * n)
    f.Read_at_all(0, everything)
    say("file", f.Get_size(), hashlib.sha256(everything.tobytes()).hexdigest()[:16])
    f.Seek(8 * me)
    one = np.empty(1)
    f.Read(one)
    say("own pointer", f.Get_position(), repr(float(one[0])))
    f.Seek_shared(0, MPI.SEEK_END)
    f.Write_ordered(np.full(4, me, dtype="i4"))
    world.Barrier()  # the others may still have to move the pointer
    say("shared pointer", f.Get_position_shared(), f.Get_size())
    f.Close()
    turns.Free()
    try:
        MPI.File.Open(world, "/nowhere/at/all", MPI.MODE_RDONLY)
    except MPI.Exception as e:
        say("no such file", e.Get_error_class() == MPI.ERR_NO_SUCH_FILE)


for turn in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
    one_sided()
    file(f"{sys.argv[1]}.{turn}" if turn else sys.argv[1])
world.Barrier()
say("storage: ok")
