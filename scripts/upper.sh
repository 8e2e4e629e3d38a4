#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# upper.sh PID: gdb commands for a process under ckptrun: the symbols of the upper half, which gdb does not find
# by itself, since it knows the dynamic linker of the lower half only; and "upper", which shows the upper half's
# stack of the thread that is selected, wherever it is.
#
#     scripts/upper.sh PID >/tmp/upper.gdb && gdb -p PID -x /tmp/upper.gdb
set -eu

[ $# = 1 ] && [ -r "/proc/$1/maps" ] || { echo "usage: upper.sh PID, of a running process" >&2 && exit 2; }

echo "set confirm off"
echo "set language c" # the commands below are, also where Go runs
# What Go, UCX and ckptrun use among themselves is no event of the program.
echo "handle SIGSYS SIGURG SIG64 nostop noprint pass"
# Files whose first bytes are mapped in the arena, 0x100000000000 to 0x10c000000000.
awk '{ split($1, at, "-") }
    $3 ~ /^0+$/ && $6 ~ /^\// && length(at[1]) == 12 && at[1] ~ /^10[0-9ab]/ && !seen[$6]++ {
        print "add-symbol-file " $6 " -o 0x" at[1]
    }' "/proc/$1/maps"
cat <<'EOF'
define upper
  set $record = 0
  if $gs_base != 0
    set $record = *(unsigned long *)($gs_base - 8)
  end
  # A thread that inherited the address of a record has neither of that one's FS bases.
  if $record != 0
    if $fs_base != *(unsigned long *)($record + 16) && $fs_base != *(unsigned long *)($record + 8)
      set $record = 0
    end
  end
  if $record == 0
    echo a thread of the lower half alone\n
  else
    if ($rip >= 0x100000000000 && $rip < 0x10c000000000) || $rip < 0x80000000
      backtrace
    else
      set $keep_rsp = $rsp
      set $keep_rip = $rip
      set $keep_rbp = $rbp
      set $keep_rbx = $rbx
      set $keep_rax = $orig_rax
      set $frame = *(unsigned long *)($record + 32)
      set $rbx = *(unsigned long *)($frame + 40)
      set $rbp = *(unsigned long *)($frame + 48)
      set $rip = *(unsigned long *)($frame + 56)
      set $rsp = $frame + 64
      backtrace
      set $rsp = $keep_rsp
      set $rip = $keep_rip
      set $rbp = $keep_rbp
      set $rbx = $keep_rbx
      set $orig_rax = $keep_rax
    end
  end
end
document upper
The stack of the selected thread in the upper half, also while it is inside the lower one.
The registers are changed for that, and put back.
end
EOF
