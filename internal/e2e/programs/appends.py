# SPDX-License-Identifier: Apache-2.0
#
# Appends 400,000 bytes to a file in each of three steps, and ends a step when a file HOLD.N is there. In the end it
# says what is in the file.
# usage: appends.py FILE HOLD
import hashlib
import os
import sys
import time

f = open(sys.argv[1], "ab", buffering=0)
for step in range(1, 4):
    f.write(bytes([64 + step]) * 400000)
    while not os.path.exists(f"{sys.argv[2]}.{step}"):
        time.sleep(0.01)
with open(sys.argv[1], "rb") as again:
    print("appends:", hashlib.sha256(again.read()).hexdigest())
