# SPDX-License-Identifier: Apache-2.0
#
# Pickled objects, numpy buffers, and communicators that are split, as often as the argument says (once).
# Rank 0 prints what came of it.
import hashlib
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
me, n = world.rank, world.size


def say(*words):
    if me == 0:
        print(*words, flush=True)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def objects():
    mine = {"rank": me, "list": list(range(me + 3)), "nested": {"text": "ü" * me, "none": None}}
    say("gather", world.gather(mine, root=0))
    say("allgather", world.allgather((me, str(me))))
    say("bcast", world.bcast({"from": n - 1} if me == n - 1 else None, root=n - 1))
    say("alltoall", world.alltoall([f"{me}->{i}" for i in range(n)]))
    say("scatter", world.scatter([[i] * i for i in range(n)] if me == 1 else None, root=1))
    say("allreduce", world.allreduce([me], op=MPI.SUM), world.allreduce((me * 7 % 5, me), op=MPI.MAXLOC))
    # Ring of objects of different length, received through a probe.
    request = world.isend(bytes(range(me, me + 40)) * 100 * (me + 1), dest=(me + 1) % n, tag=3)
    message = world.mprobe(source=(me - 1) % n, tag=3)
    got = message.recv()
    request.wait()
    say("ring", len(got), hashlib.sha256(got).hexdigest()[:16])
    if me == 0:
        served = sorted(world.recv(source=MPI.ANY_SOURCE, tag=9) for _ in range(n - 1))
        say("any source", served)
    else:
        world.send(("worker", me), dest=0, tag=9)


def buffers():
    a = np.sin(np.arange(5000, dtype="d") * (me + 1))
    total = np.empty_like(a)
    world.Allreduce(a, total, op=MPI.SUM)
    say("Allreduce", repr(float(total.sum())), digest(total))
    counts = [10 * (i + 1) for i in range(n)]
    everything = np.empty(sum(counts), dtype="i4")
    world.Allgatherv(np.full(counts[me], me, dtype="i4"), [everything, counts])
    say("Allgatherv", digest(everything))
    # A column of a matrix as a datatype.
    matrix = np.arange(30 * 20, dtype="f8").reshape(30, 20) * (me + 1)
    column = MPI.DOUBLE.Create_vector(30, 1, 20).Commit()
    right = np.zeros(30)
    world.Sendrecv([matrix.ravel()[4:], 1, column], (me + 1) % n, 0, right, (me - 1) % n, 0)
    column.Free()
    say("Sendrecv", repr(float(right.sum())))
    pieces = np.empty(n, dtype="c16")
    request = world.Ialltoall(np.exp(1j * (me + np.arange(n))), pieces)
    request.Wait()
    say("Ialltoall", digest(pieces))
    inbox = np.zeros(8)
    persistent = [world.Send_init(a[:8], (me + 1) % n, 5), world.Recv_init(inbox, (me - 1) % n, 5)]
    for _ in range(3):
        MPI.Prequest.Startall(persistent)
        MPI.Request.Waitall(persistent)
        a[:8] += inbox
    for request in persistent:
        request.Free()
    say("persistent", digest(inbox), repr(float(world.reduce(inbox.sum(), root=0) or 0)))


def split():
    half = world.Split(color=me % 2, key=-me)
    say("split", half.size, half.rank, half.allgather(me))
    grid = world.Create_cart([n], periods=[True])
    grid.Set_name("ring of all")
    say("cart", grid.Get_name(), grid.Shift(0, 1), grid.neighbor_allgather(me))
    twice = MPI.Op.Create(lambda a, b, t: np.frombuffer(b, "d").__iadd__(2 * np.frombuffer(a, "d")), commute=False)
    out = np.empty(4)
    half.Allreduce(np.arange(4.0) + me, out, op=twice)
    twice.Free()
    say("own operation", out.tolist())
    others = world.group.Excl([0])
    without = world.Create(others)
    if without != MPI.COMM_NULL:
        assert without.allreduce(1) == n - 1
        without.Free()
    others.Free()
    key = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: value + 1)
    half.Set_attr(key, 41)
    copy = half.Dup()
    say("attribute", copy.Get_attr(key), MPI.Comm.Compare(half, copy) == MPI.CONGRUENT)
    for comm in copy, grid, half:
        comm.Free()
    MPI.Comm.Free_keyval(key)
    try:
        world.Send(np.zeros(1), dest=n + 5)
    except MPI.Exception as e:
        say("error class", e.Get_error_class() == MPI.ERR_RANK)


for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    objects()
    buffers()
    split()
world.Barrier()
say("messages: ok")
