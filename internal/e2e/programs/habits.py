# SPDX-License-Identifier: Apache-2.0
#
# What Python programs do with files and folders while they run: logs that turn over, states that are replaced, trees that are
# removed and made again, archives that grow, counters that are written in place.  At the end it prints what has become of all.
# usage: habits.py ROUNDS FOLDER
import csv
import gzip
import hashlib
import io
import logging
import logging.handlers
import mmap
import os
import pickle
import shutil
import sys
import tarfile
import tempfile
import zipfile

os.chdir(sys.argv[2])
os.mkdir("habits")
os.chdir("habits")


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def read(path):
    with open(path) as f:
        return f.read()


def away(folder):
    if os.path.exists(folder):
        shutil.rmtree(folder)


def logger(name, handler):
    made = logging.getLogger(name)
    made.addHandler(handler)
    made.setLevel(logging.INFO)
    made.propagate = False
    return made.info


turning = logging.handlers.RotatingFileHandler("turning.log", maxBytes=300, backupCount=3)
watching = logging.handlers.WatchedFileHandler("watched.log")
turn, watch = logger("turning", turning), logger("watched", watching)
table = open("table.csv", "w", newline="")
rows = csv.writer(table)
places = open("places", "w+b")
places.write(bytes(4096))
places.flush()
mapped = mmap.mmap(places.fileno(), 4096)


def logs(i):
    turn("line %d", i)
    watch("line %d", i)
    if i % 9 == 8:
        os.replace("watched.log", f"watched.{i // 9 % 3}")
    with open("opened.log", "a") as f:
        f.write(f"line {i}\n")
    if i % 25 == 24:
        os.truncate("opened.log", 10)


def in_place(i):
    rows.writerow([i, i * i])
    if i % 3 == 0:
        table.flush()
    places.seek(i * 8 % 2048)
    places.write(b"%08d" % i)
    if i % 4 == 0:
        places.flush()
    mapped[2048 + i % 2048] = i % 256
    if i == 0:
        write("count", "0")
        return
    with open("count", "r+") as f:
        assert int(f.read()) == i - 1, f"the count in round {i}"
        f.seek(0)
        f.truncate()
        f.write(str(i))


def replaced(i):
    fd, name = tempfile.mkstemp(dir=".")
    os.write(fd, b"state %d" % i)
    os.close(fd)
    os.replace(name, "state")
    write(f"turn{i % 3}.new", f"turn {i}")
    os.replace(f"turn{i % 3}.new", f"turn{i % 3}")
    if i:
        with open("pickled", "rb") as f:
            assert pickle.load(f)[0] == i - 1, f"what was pickled before round {i}"
    with open("pickled", "wb") as f:
        pickle.dump([i] + list(range(i % 30)), f)
    if i % 11 == 0:
        with open("large.new", "wb") as f:
            f.write(bytes([i % 256]) * 200000)
        os.rename("large.new", "large")


def trees(i):
    folder = f"tree{i % 4}"
    away(folder)
    os.makedirs(folder + "/a/b")
    write(folder + "/a/b/file", f"file {i}")
    write(folder + "/other", f"other {i}")
    if i % 5 == 0:
        away("copied")
        shutil.copytree(folder, "copied")
    if i % 7 == 0:
        away("moved")
        shutil.move(folder, "moved")


def links(i):
    if i % 6 == 0:
        os.symlink(f"turn{i % 3}", "link.new")
        os.replace("link.new", "link")
    if i % 8 == 0:
        if os.path.exists("second"):
            os.unlink("second")
        os.link("count", "second")


def archives(i):
    with gzip.GzipFile("packed.gz", "ab", mtime=0) as f:
        f.write(b"line %d\n" % i)
    with zipfile.ZipFile("packed.zip", "a") as z:
        z.writestr(zipfile.ZipInfo(f"member {i}"), f"content {i}")
    if i % 20 == 19:
        os.remove("packed.zip")
    if i % 13 == 0:
        with tarfile.open("packed.tar", "a") as t:
            member = tarfile.TarInfo(f"member {i}")
            member.size = 7
            t.addfile(member, io.BytesIO(b"content"))


for i in range(int(sys.argv[1])):
    for habit in logs, in_place, replaced, trees, links, archives:
        habit(i)
    assert read("state") == f"state {i}"

mapped.close()
for f in table, places, turning, watching:
    f.close()
for folder, below, files in os.walk("."):
    below[:] = sorted(name for name in below if ".newer" not in name)  # a restart's, of what it found made
    for name in sorted(files):
        path = os.path.join(folder, name)
        if ".newer" in name:
            continue
        if os.path.islink(path):
            print(path, "->", os.readlink(path))
            continue
        with open(path, "rb") as f:
            print(path, hashlib.md5(f.read()).hexdigest())
