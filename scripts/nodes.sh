#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nodes.sh: several nodes on one machine, for tests. Each node has network, host name, mounts, processes and System V
# memory of its own: namespaces. It has its own /dev/shm, /tmp, /run and boot number, and it shares all other files. A
# bridge joins the nodes; the login node is where the bridge is. Needs root.
#
#   nodes.sh up DIR N [OPTIONS]     makes N nodes, says "up", and keeps them until it is killed
#       --prefix NAME               they are NAME1, NAME2 ... (node)
#       --net 10.77.3               their addresses are .1, .2 ...; the login node has .254
#       --ipv6                      they have IPv6 addresses only, fd77:3::1 ... by default
#       --uptime N=SECONDS          the clocks that count from the start of node N are ahead by that; may be repeated
#       --keep PATH                 is shared too, although it lies below /tmp, /dev/shm or /run; may be repeated
#       --until-eof                 keeps them until its standard input ends
#   nodes.sh on DIR NODE COMMAND... runs a command there; NODE is a number, or 0 for the login node
#   nodes.sh agent DIR HOST WORDS   the same as ssh would do it; DIR/agent is this command, for launchers:
#                                   mpiexec.hydra -launcher ssh -launcher-exec DIR/agent, --mca plm_rsh_agent DIR/agent
#   nodes.sh cut DIR NODE           all its links are down; nobody is told
#   nodes.sh join DIR NODE          they are up again
#   nodes.sh vanish DIR NODE        its links go down, then all its processes are killed; it does not come back
#   nodes.sh link DIR NODE [rate=20mbit] [loss=2%] [delay=20ms]   what its link is like; without words as at first
#   nodes.sh down DIR               ends them all
#
# All nodes live in one "room" of namespaces, whose first process is a child of "up". When "up" is killed, in whatever
# way, the kernel kills the room, and bridge, links and mounts go with it. "up" ends an older room of the same DIR.
set -euo pipefail

self=$(realpath "$0")
top=$(cd "$(dirname "$self")/.." && pwd)

die() {
    echo "nodes: $*" >&2
    exit 1
}

usage() {
    sed -n '8,27s/^# \{0,1\}//p' "$self" >&2
    exit 2
}

# The room's first process, as this shell sees it. Inside the room and its nodes it is not needed: there DIR/proc is
# the room's /proc.
room_pid() {
    local up
    up=$(cat "$dir/pid" 2>/dev/null) && tr '\0' '\n' <"/proc/$up/environ" 2>/dev/null | grep -qx "CKPT_NODES_ROOM=$dir" ||
        die "no nodes are up in $dir: start them with $0 up $dir N"
    cat "/proc/$up/task/$up/children" | tr -d ' '
}

# in_room COMMAND...: by nsenter, where this is not the room already.
in_room() {
    if [ -e "$dir/proc/1" ]; then
        "$@"
    else
        local room
        room=$(room_pid)
        nsenter --target "$room" --net --uts --ipc --mount --pid --wdns="$PWD" -- "$@"
    fi
}

number() { # of a node that is known by its number or its name
    if [[ $1 =~ ^[0-9]+$ ]]; then
        echo "$1"
    elif [ "$1" = login ] || [ "$1" = localhost ]; then
        echo 0
    else
        local prefix
        prefix=$(cat "$dir/prefix")
        [[ $1 =~ ^$prefix([1-9][0-9]*)$ ]] || die "there is no node \"$1\": they are login, ${prefix}1, ${prefix}2 ..."
        echo "${BASH_REMATCH[1]}"
    fi
}

# ---- inside a node: its first process ------------------------------------------------------------

# own_tmp DIR: a file system of the node's own in the place of DIR, but for what is kept.
own_tmp() {
    local path
    mount -n -t tmpfs -o mode=1777 tmpfs /mnt
    while read -r path; do
        case $path in "$1"/*)
            mkdir -p "/mnt/${path#"$1"/}"
            mount -n --bind "$path" "/mnt/${path#"$1"/}"
            ;;
        esac
    done <<<"$keep"
    mount -n --move /mnt "$1"
}

first_of_node() { # DIR NODE
    local i=$2 keep name address
    dir=$1
    keep=$(cat "$dir/keep")
    name=$(cat "$dir/prefix")$i
    hostname "$name"
    mount -n -t proc proc /proc
    mount -n -t sysfs sysfs /sys # that of the host would show its network
    mount -n --bind "$dir/hosts" /etc/hosts
    mount -n --bind "$dir/nodes/$i/boot_id" /proc/sys/kernel/random/boot_id
    own_tmp /dev/shm
    own_tmp /run
    own_tmp /tmp
    mkdir -p /run/lock
    address=$(sed -n "s/ $name$//p" /etc/hosts)
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
    ip link set lo up
    ip link set eth0 up
    case $address in
    *:*) ip address add "$address/64" dev eth0 nodad ;;
    *) ip address add "$address/24" dev eth0 ;;
    esac
    touch "$dir/nodes/$i/up"
    # It waits for processes that were left to it, as the first one must.
    while :; do
        sleep infinity &
        wait $!
    done
}

# ---- inside the room: its first process ----------------------------------------------------------

first_of_room() { # DIR N EOF
    local n=$2 i unshared pid address
    local -a clocks
    dir=$1
    trap 'exit 0' INT TERM
    hostname login
    mount -n -t proc proc /proc
    mount -n --bind /proc "$dir/proc"
    mount -n -t sysfs sysfs /sys
    mount -n --bind "$dir/hosts" /etc/hosts
    mount -n --bind "$dir/nodes/0/boot_id" /proc/sys/kernel/random/boot_id
    local keep
    keep=$(cat "$dir/keep")
    own_tmp /dev/shm
    own_tmp /run
    mkdir -p /run/lock
    ip link set lo up
    ip link add bridge type bridge
    ip link set bridge up
    address=$(sed -n 's/ login$//p' /etc/hosts)
    case $address in
    *:*) ip address add "$address/64" dev bridge nodad ;;
    *) ip address add "$address/24" dev bridge ;;
    esac
    for ((i = 1; i <= n; i++)); do
        clocks=()
        [ ! -e "$dir/nodes/$i/uptime" ] ||
            clocks=(--time --monotonic "$(cat "$dir/nodes/$i/uptime")" --boottime "$(cat "$dir/nodes/$i/uptime")")
        unshare --net --uts --ipc --mount --pid --fork --kill-child "${clocks[@]}" \
            "$BASH" "$self" --node "$dir" "$i" </dev/null 3>&- &
        unshared=$!
        until pid=$(cat "/proc/$unshared/task/$unshared/children") && [ -n "$pid" ]; do sleep 0.01; done
        pid=${pid%% *}
        ip link add "link$i" type veth peer name eth0 netns "$pid"
        ip link set "link$i" master bridge up
        echo "$pid" >"$dir/nodes/$i/pid"
    done
    for ((i = 1; i <= n; i++)); do
        until [ -e "$dir/nodes/$i/up" ]; do
            kill -0 "$(cat "$dir/nodes/$i/pid")" 2>/dev/null || die "node $i has ended before it was up"
            sleep 0.01
        done
    done
    touch "$dir/up"
    echo up
    if [ "$3" = yes ]; then
        cat <&3 >/dev/null
        exit 0
    fi
    exec 3<&-
    while :; do
        sleep infinity &
        wait $!
    done
}

# ---- outside -------------------------------------------------------------------------------------

# Ends a room of this DIR, also one whose "up" has been forgotten.
end_room() {
    local found
    for _ in {1..500}; do
        found=$(grep -lszxF "CKPT_NODES_ROOM=$dir" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\(.*\)/environ,\1,' | grep -vx $$ || true)
        [ -n "$found" ] || return 0
        # shellcheck disable=SC2086
        kill -9 $found 2>/dev/null || true
        sleep 0.02
    done
    die "processes of older nodes in $dir do not end: $found"
}

# The parent of what "on" runs is outside the room. When it is killed, its child is left to the first process out there, and the
# kernel does not end the room before that one has waited for it.
orphans_are_waited_for() {
    local orphan
    orphan=$(sh -c 'sleep 0 >/dev/null & echo $!')
    for _ in {1..50}; do
        [ -e "/proc/$orphan" ] || return 0
        sleep 0.1
    done
    return 1
}

up() { # N OPTIONS
    local n=${1:-} prefix=node net='' ipv6=no eof=no keep=$top i
    [[ $n =~ ^[1-9][0-9]?$ ]] || die "\"$n\" is no number of nodes: from 1 to 99"
    shift
    [ "$(id -u)" = 0 ] || die "namespaces need root"
    orphans_are_waited_for ||
        die "the first process here does not wait for processes that are left to it: start the container with an init (docker run --init)"
    end_room
    rm -rf "$dir"/{nodes,proc,pid,up,hosts,prefix,keep,agent}
    mkdir -p "$dir/proc" "$dir/nodes/0"
    keep+=$'\n'$dir
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix) prefix=$2 && shift ;;
        --net) net=$2 && shift ;;
        --ipv6) ipv6=yes ;;
        --uptime)
            mkdir -p "$dir/nodes/${2%%=*}" && echo "${2#*=}" >"$dir/nodes/${2%%=*}/uptime"
            shift
            ;;
        --keep) keep+=$'\n'$(realpath "$2") && shift ;;
        --until-eof) eof=yes ;;
        *) die "unknown option $1" ;;
        esac
        shift
    done
    local dot=.
    if [ $ipv6 = yes ]; then
        dot=:
        net=${net:-fd77:3:}
    fi
    net=${net:-10.77.3}
    printf '%s\n' "$keep" >"$dir/keep"
    echo "$prefix" >"$dir/prefix"
    {
        echo '127.0.0.1 localhost'
        [ $ipv6 = no ] || echo '::1 localhost'
        echo "$net${dot}254 login"
        for ((i = 1; i <= n; i++)); do echo "$net$dot$i $prefix$i"; done
    } >"$dir/hosts"
    for ((i = 0; i <= n; i++)); do
        mkdir -p "$dir/nodes/$i"
        cat /proc/sys/kernel/random/uuid >"$dir/nodes/$i/boot_id"
    done
    printf '#!/bin/sh\nexec "%s" "%s" agent "%s" "$@"\n' "$BASH" "$self" "$dir" >"$dir/agent"
    chmod +x "$dir/agent"
    echo $$ >"$dir/pid"
    export CKPT_NODES_ROOM=$dir
    # This process becomes unshare, which the room's first process does not outlive.
    exec unshare --net --uts --ipc --mount --propagation private --pid --fork --kill-child \
        "$BASH" "$self" --room "$dir" "$n" $eof 3<&0 </dev/null
}

# on NODE COMMAND...
on() {
    local i pid
    i=$(number "$1")
    shift
    [ "$i" != 0 ] || { in_room "$@" && return 0 || return $?; }
    pid=$(cat "$dir/nodes/$i/pid" 2>/dev/null) || die "there is no node $i in $dir"
    # The programs nsenter and sh are the node's; standard streams, environment and folder are the caller's.
    # shellcheck disable=SC2016
    in_room /bin/sh -c 'ns=$0/ns; shift; exec nsenter --net="$ns/net" --uts="$ns/uts" --ipc="$ns/ipc" --pid="$ns/pid_for_children" \
        --time="$ns/time" --mount="$ns/mnt" --wdns="$PWD" -- "$@"' "$dir/proc/$pid" - "$@"
}

# agent HOST WORDS...: as ssh, the words are one command of a shell.
agent() {
    while [[ ${1:-} == -* ]]; do shift; done # ssh's options
    local i status=0
    i=$(number "$1")
    shift
    on "$i" /bin/sh -c "$*" || status=$?
    # A lost node says nothing: ssh would not notice either.
    while [ -e "$dir/nodes/$i/vanished" ]; do sleep 1; done
    exit $status
}

link() { # NODE WORDS
    local i=$1 word rate='' loss='' delay=''
    shift
    for word in "$@"; do
        case $word in
        rate=*) rate=${word#*=} ;;
        loss=*) loss=${word#*=} ;;
        delay=*) delay=${word#*=} ;;
        *) die "link: \"$word\" is none of rate=, loss= and delay=" ;;
        esac
    done
    in_room tc qdisc del dev "link$i" root 2>/dev/null || true
    on "$i" tc qdisc del dev eth0 root 2>/dev/null || true
    ! command -v nft >/dev/null || on "$i" nft delete table inet lossy 2>/dev/null || true
    [ $# -gt 0 ] || return 0
    local netem=()
    [ -z "$delay" ] || netem+=(delay "$delay")
    [ -z "$loss" ] || netem+=(loss "$loss")
    [ -z "$rate" ] || netem+=(rate "$rate")
    if in_room tc qdisc add dev "link$i" root netem "${netem[@]}" 2>/dev/null; then
        on "$i" tc qdisc add dev eth0 root netem "${netem[@]}"
        return
    fi
    # Without netem: a token bucket makes a link slow, and a rule of the node drops packets.
    [ -z "$delay" ] || die "link: this kernel has no netem (CONFIG_NET_SCH_NETEM), so a link cannot have a delay"
    if [ -n "$rate" ]; then
        in_room tc qdisc add dev "link$i" root tbf rate "$rate" burst 16kb latency 200ms
        on "$i" tc qdisc add dev eth0 root tbf rate "$rate" burst 16kb latency 200ms
    fi
    if [ -n "$loss" ]; then
        command -v nft >/dev/null || die "link: this kernel has no netem (CONFIG_NET_SCH_NETEM); with nft, from Debian's nftables, packets could be dropped"
        local tenths
        tenths=$(awk "BEGIN { print int(${loss%\%} * 10) }")
        on "$i" nft "add table inet lossy
            add chain inet lossy in { type filter hook input priority 0; }
            add rule inet lossy in iifname eth0 numgen random mod 1000 < $tenths counter drop
            add chain inet lossy out { type filter hook output priority 0; }
            add rule inet lossy out oifname eth0 numgen random mod 1000 < $tenths counter drop"
    fi
}

command=${1:-}
[ $# -ge 2 ] || usage
dir=$2
case $command in
up | --*) ;;
*) [ -e "$dir/pid" ] || [ "$command" = down ] || die "no nodes are up in $dir: start them with $0 up $dir N" ;;
esac
[ "$command" != up ] || mkdir -p "$dir"
[ ! -d "$dir" ] || dir=$(cd "$dir" && pwd -P)
shift 2
case $command in
--room) first_of_room "$dir" "$@" ;;
--node) first_of_node "$dir" "$@" ;;
up) up "$@" ;;
on) on "$@" ;;
agent) agent "$@" ;;
cut) in_room ip link set "link$(number "$1")" down ;;
join) in_room ip link set "link$(number "$1")" up ;;
vanish)
    i=$(number "$1")
    touch "$dir/nodes/$i/vanished"
    in_room ip link set "link$i" down
    in_room kill -9 "$(cat "$dir/nodes/$i/pid")"
    ;;
link) link "$(number "$1")" "${@:2}" ;;
down)
    end_room
    rm -rf "$dir"/{nodes,proc,pid,up,hosts,prefix,keep,agent}
    ;;
*) usage ;;
esac
