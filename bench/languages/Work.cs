// SPDX-License-Identifier: Apache-2.0

using System;
using System.Linq;
using System.Threading.Tasks;

/// Mono: tasks on a pool of threads, a collector that stops them by signals, null pointers found by SIGSEGV.
class Work {
    static long Chain(long x) {
        long sum = 0;
        for (int i = 0; i < 3000; i++) {
            x = (x * 48271 + i) % 2147483647;
            sum = (sum + x + x.ToString().Length) % 1000003;
        }
        return sum;
    }

    static void Main(string[] args) {
        int rounds = int.Parse(args[0]);
        long sum = 0;
        for (int step = 0; step < 20; step++) {
            for (int round = 0; round < rounds; round++) {
                long first = ((long)step * rounds + round) * 4 + 1;
                var tasks = Enumerable.Range(0, 4).Select(k => Task.Run(() => Chain(first + k))).ToArray();
                foreach (var task in tasks) sum = (sum * 7 + task.Result) % 1000003;
            }
            try {
                object nothing = null;
                nothing.ToString();
            } catch (NullReferenceException) {
                sum ^= 1;
            }
            GC.Collect();
            Console.WriteLine(step + " " + sum);
        }
    }
}
