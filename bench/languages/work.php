<?php
// SPDX-License-Identifier: Apache-2.0
$rounds = (int)$argv[1];
$sum = 0;
for ($step = 0; $step < 20; $step++) {
    for ($round = 0; $round < $rounds; $round++) {
        $x = $step * $rounds + $round + 1;
        $seen = [];
        for ($i = 0; $i < 20000; $i++) {
            $x = ($x * 48271 + $i) % 2147483647;
            $sum = ($sum + $x + strlen((string)$x)) % 1000003;
            $seen[$x % 977] = md5((string)$x);
        }
    }
    echo "$step $sum\n";
}
