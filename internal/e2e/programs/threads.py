# SPDX-License-Identifier: Apache-2.0
"""Four threads, subprocesses, generators, exceptions, a queue, locks, timers, files, big objects.

usage: threads.py ROUNDS
"""
import hashlib
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
results = {}
failures = []
to_do = queue.Queue(maxsize=8)
lock = threading.Lock()
shared = 0


def hashing(me):
    digest = hashlib.sha256()
    rng = random.Random(me)
    for i in range(rounds * 40):
        digest.update(rng.randbytes(20000))
        if i % 50 == 0:
            time.sleep(0.001)
    return digest.hexdigest()[:16]


def consuming(_):
    total = 0
    while True:
        item = to_do.get(timeout=60)
        if item is None:
            return total
        total += sum(x * x for x in range(item))


def producing(_):
    for i in range(rounds * 30):
        to_do.put(i * 7 % 2000)
    to_do.put(None)
    return "done"


def counting(me):
    global shared
    raised = 0
    for i in range(rounds * 500):
        with lock:
            shared += 1
        try:
            [][i]
        except IndexError as e:
            raised += len(str(e))
    return raised


def run(f, me):
    try:
        results[f.__name__] = f(me)
    except BaseException as e:  # reported below, with the thread's name
        failures.append(f"{f.__name__}: {e!r}")


threads = [threading.Thread(target=run, args=(f, i)) for i, f in enumerate((hashing, consuming, producing, counting))]
for t in threads:
    t.start()
with tempfile.TemporaryFile("w+") as unnamed:
    for i in range(rounds):
        big = {k: str(k) * 3 for k in range(20000)}
        print(f"kept {len(big)} {big[i]}", file=unnamed)
        out = subprocess.run(["sh", "-c", f"echo child {i}; exit {i % 3}"], capture_output=True, text=True)
        print(out.stdout.strip(), out.returncode, flush=True)
        time.sleep(0.01)
    unnamed.seek(0)
    print("unnamed file", hashlib.sha256(unnamed.read().encode()).hexdigest()[:16])
for t in threads:
    t.join()
try:
    subprocess.run(["/no/such/program"])
except FileNotFoundError as e:
    print("missing program:", e.strerror)
for name in sorted(results):
    print(name, results[name])
print("shared", shared, "failures", failures)
print("pid", "same" if os.getpid() == threading.main_thread().native_id else "differs")
print("to stderr", file=sys.stderr)
sys.exit(4)
