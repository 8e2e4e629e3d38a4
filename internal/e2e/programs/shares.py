# SPDX-License-Identifier: Apache-2.0
#
# Has MIB of noise in anonymous shared memory, and as much in a System V segment. When END is there, it says whether
# all is as it was, and how many bytes this process has read.
# usage: shares.py MIB END
import ctypes
import hashlib
import mmap
import os
import sys
import time

size = int(sys.argv[1]) << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
at = libc.shmat(segment, None, 0)
assert at not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
libc.shmctl(segment, 0, None)  # it goes with the last process
both = [mmap.mmap(-1, size), (ctypes.c_char * size).from_address(at)]
sums = []
for memory in both:
    for i in range(0, size, 1 << 20):
        memory[i : i + (1 << 20)] = os.urandom(1 << 20)
    sums.append(hashlib.sha256(memory).digest())
print("begun", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
for memory, was in zip(both, sums):
    if hashlib.sha256(memory).digest() != was:
        sys.exit("shared memory is not as it was")
with open("/proc/self/io") as io:
    print(io.readline().split()[1])
