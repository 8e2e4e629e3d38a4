# SPDX-License-Identifier: Apache-2.0
#
# Databases in files, as programs keep results and state in them: SQLite, LMDB, GDBM and Python's own. Ranks have some in
# common and write to them in turns, by locks; some are open all the time, others only while they are used. In each of so
# many rounds as the argument says every rank writes to all, and reads back what it has written so far. Rank 0 prints a
# digest of what is in each at the end.
import dbm.dumb
import dbm.gnu
import hashlib
import json
import os
import sqlite3
import sys

import lmdb
from mpi4py import MPI

world = MPI.COMM_WORLD
me, n = world.rank, world.size
wrong = 0


def check(good, *what):
    global wrong
    if not good:
        wrong += 1
        print(f"rank {me}:", *what, flush=True)


def value(round, k=0):
    return hashlib.md5(b"%d %d %d" % (me, round, k)).hexdigest()


class SQLite:
    """A table with an index. With the journal "wal" processes share memory in a mapped file, with "delete" the journal is a
    file that is made and removed in each transaction."""

    def __init__(self, journal, common, stays):
        self.name = f"sqlite, {journal}, {'common' if common else 'own'}, {'open' if stays else 'opened'}"
        self.path = f"{journal}{'' if common else me}.{int(stays)}.sqlite"
        self.stays = stays
        self.open()
        if me == 0 or not common:
            self.db.execute("PRAGMA journal_mode=" + journal)
            self.db.execute("CREATE TABLE t (rank INT, round INT, value TEXT)")
            self.db.execute("CREATE INDEX x ON t (value)")
        world.Barrier()

    def open(self):
        self.db = sqlite3.connect(self.path, timeout=240, isolation_level=None)
        self.db.execute("PRAGMA synchronous=OFF")

    def write(self, round):
        if not self.stays:
            self.db.close()
            self.open()
        self.db.execute("BEGIN IMMEDIATE")
        for k in range(5):
            self.db.execute("INSERT INTO t VALUES (?, ?, ?)", (me, round, value(round, k)))
        if round % 7 == 3:
            self.db.execute("DELETE FROM t WHERE rank = ? AND round = ?", (me, round - 1))
        self.db.execute("COMMIT")

    def read(self, round):
        want = 5 * sum(not (r % 7 == 2 and r < round) for r in range(round + 1))
        got = self.db.execute("SELECT COUNT(*), MAX(round) FROM t WHERE rank = ?", (me,)).fetchone()
        check(got == (want, round), self.name, "has", got, "and not", (want, round))

    def content(self):
        check(self.db.execute("PRAGMA integrity_check").fetchone() == ("ok",), self.name, "is damaged")
        return self.db.execute("SELECT * FROM t ORDER BY rank, round, value").fetchall()


class LMDB:
    """All ranks map the same file; who writes holds a mutex that is in another one."""

    name = "lmdb"

    def __init__(self):
        self.db = lmdb.open("lmdb", map_size=1 << 26, sync=False)

    def write(self, round):
        with self.db.begin(write=True) as t:
            for k in range(5):
                t.put(b"%03d %06d %d" % (me, round, k), value(round, k).encode())
            t.put(b"count %d" % me, b"%d" % (int(t.get(b"count %d" % me, b"0")) + 5))

    def read(self, round):
        with self.db.begin() as t:
            got = int(t.get(b"count %d" % me))
            check(got == 5 * (round + 1), self.name, "has", got, "in round", round)

    def content(self):
        with self.db.begin() as t:
            return list(t.cursor())


class DBM:
    """One of each rank's own, which is closed between uses. The dumb one renames its files."""

    def __init__(self, kind):
        self.name, self.kind, self.path = kind.__name__, kind, f"{kind.__name__}.{me}"

    def write(self, round):
        with self.kind.open(self.path, "c") as d:
            d[str(round)] = value(round)

    def read(self, round):
        with self.kind.open(self.path, "r") as d:
            check(len(d.keys()) == round + 1, self.name, "has", len(d.keys()), "in round", round)

    def content(self):
        with self.kind.open(self.path, "r") as d:
            return sorted((k, d[k]) for k in d.keys())


class State:
    """A file that is written anew and renamed over the one before."""

    name = "state"

    def __init__(self):
        self.path = f"state{me}.json"

    def load(self):
        with open(self.path) as f:
            return json.load(f)

    def write(self, round):
        was = self.load() if round else {"round": -1, "values": []}
        check(was["round"] == round - 1, self.name, "is of round", was["round"], "in round", round)
        with open(self.path + ".new", "w") as f:
            json.dump({"round": round, "values": was["values"] + [value(round)]}, f)
        os.replace(self.path + ".new", self.path)

    def read(self, round):
        check(len(self.load()["values"]) == round + 1, self.name, "in round", round)

    def content(self):
        return self.load()


databases = [
    SQLite("wal", common=True, stays=True),
    SQLite("wal", common=True, stays=False),
    SQLite("delete", common=True, stays=True),
    SQLite("delete", common=False, stays=False),
    LMDB(),
    DBM(dbm.gnu),
    DBM(dbm.dumb),
    State(),
]
for round in range(int(sys.argv[1])):
    for d in databases:
        d.write(round)
    for d in databases:
        d.read(round)
    if round % 10 == 0:
        world.Barrier()
world.Barrier()
for d in databases:
    contents = world.gather(d.content())
    if me == 0:
        print(d.name, hashlib.md5(repr(contents).encode()).hexdigest())
    world.Barrier()
wrong = world.reduce(wrong)
if me == 0:
    print("databases: ok" if wrong == 0 else f"databases: {wrong} wrong")
