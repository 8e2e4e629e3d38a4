# SPDX-License-Identifier: Apache-2.0
#
# PyPy: compiled loops under asyncio's event loop.
import asyncio
import sys


async def chain(x):
    await asyncio.sleep(0)
    total = 0
    for i in range(3000):
        x = (x * 48271 + i) % 2147483647
        total = (total + x + len(str(x))) % 1000003
    return total


async def main(rounds):
    total = 0
    for step in range(20):
        for r in range(rounds):
            first = (step * rounds + r) * 4 + 1
            for part in await asyncio.gather(*[chain(first + k) for k in range(4)]):
                total = (total * 7 + part) % 1000003
        print(step, total, flush=True)
        await asyncio.sleep(0.001)


asyncio.run(main(int(sys.argv[1])))
