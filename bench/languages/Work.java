// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** A pool of threads, compiled code, a collector at work, and null pointers that the machine finds by SIGSEGV. */
public class Work {
    static long chain(long x, Map<Integer, String> seen) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 200000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            if (i % 1000 != 0) continue;
            seen.put((int) (x >>> 50), text.append(x).toString());
            try {
                Object nothing = i % 50000 == 0 ? null : text;
                nothing.hashCode();
            } catch (NullPointerException e) {
                x ^= 7;
            }
        }
        return x;
    }

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        var pool = Executors.newFixedThreadPool(4);
        var seen = new ConcurrentHashMap<Integer, String>();
        long sum = 0;
        for (int step = 0; step < 20; step++) {
            for (int round = 0; round < rounds; round++) {
                var parts = new ArrayList<Future<Long>>();
                for (int k = 0; k < 4; k++) {
                    long first = ((long) step * rounds + round) * 4 + k + 1;
                    parts.add(pool.submit(() -> chain(first, seen)));
                }
                for (var part : parts) sum ^= part.get();
            }
            System.gc();
            System.out.println(step + " " + sum + " " + new TreeMap<>(seen).firstKey());
        }
        pool.shutdown();
    }
}
