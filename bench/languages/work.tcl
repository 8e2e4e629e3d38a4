# SPDX-License-Identifier: Apache-2.0
set rounds [lindex $argv 0]
set sum 0
for {set step 0} {$step < 20} {incr step} {
    for {set round 0} {$round < $rounds} {incr round} {
        set x [expr {$step * $rounds + $round + 1}]
        for {set i 0} {$i < 5000} {incr i} {
            set x [expr {($x * 48271 + $i) % 2147483647}]
            set sum [expr {($sum + $x + [string length $x]) % 1000003}]
        }
    }
    puts "$step $sum"
    flush stdout
    after 1
}
