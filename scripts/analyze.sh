#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# analyze.sh: gcc -fanalyzer over the C that is installed, with the headers of MPICH.
#
# It follows paths through functions: what leaks on one, what is used after free or may be NULL.  Each warning
# is mended, or stands below with the reason why it is none.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C

# file, function, warning (without -Wanalyzer-): the reason.
exceptions='
capi/back/collective/deferred.c defer_locked null-dereference: only calls with d are asked for as CKPT_COLL_NONBLOCKING, to which alone the answer is CKPT_COLL_DEFER
capi/back/collective/persist_comm.c back_own_comm_saved malloc-leak: s.descriptor is copied into saved[]
capi/back/collective/twophase.c back_two_phase_made null-dereference: new_page has made the page, by an atomic exchange that is not followed
capi/back/file/file.c describe null-dereference: the slot of an open file has its record in extra
capi/back/file/file.c describe use-after-free: f is not f->datarep
capi/back/file/file.c describe_again null-dereference: as in describe
capi/back/image/load.c load_deferred possible-null-dereference: the loop ends before its body when a is NULL
capi/back/jobs.c programs_of malloc-leak: they are in p->argvs, and programs_free frees them
capi/back/message/sync.c acknowledge_locked null-dereference: back_sync_awaits has seen that there is one
capi/back/message/sync.c acknowledge null-dereference: as in acknowledge_locked
capi/back/object/comm_calls.c back_Comm_idup malloc-leak: d is in extra of the slot, as a number
capi/back/object/comm_calls.c back_idup_promised malloc-leak: as in back_Comm_idup
capi/back/object/untold.c comm_name malloc-leak: it is in the ring, whose record frees it when it is used again
capi/back/ports.c back_Open_port malloc-leak: it is in taken[], all of which is freed
capi/back/ports.c port_free.part.0 double-free: before and why are NULL there, from calloc
capi/back/request/grequest.c back_Grequest_start malloc-leak: MPI has b as the extra state, and gives it to release
capi/canon/shape.h shape_convert null-dereference: the front keeps contents of constructors alone, and each of them has a shape
capi/embed/signals.c put malloc-leak: the signal is in the list, whose end last points to
capi/embed/signals.c get malloc-leak: those behind it stay in the list
capi/fti/strings.c add malloc-leak: the text is in the list
capi/front/object/info.c replace null-argument: an info that there is has content, if only the last NUL
capi/host/fs_cache.c mixed null-dereference: there is no place where places are NULL, so no byte is looked at
capi/host/fs_cache.c places_take null-dereference: there is no place where places are NULL
capi/verbs/back/device.c device_open malloc-leak: it is in lower of the context, as a number
capi/verbs/back/drain.c tell malloc-leak: it is in told or to_self
capi/verbs/back/objects.c f_ah malloc-leak: it is in the list of the handle
capi/verbs/cm/channel.c rdma_create_event_channel malloc-leak: the channel is its first member, which is returned
capi/verbs/soft/provider/objects.c alloc_pd malloc-leak: the domain is its first member, which is returned
capi/verbs/soft/provider/pairs.c provider_create_ah malloc-leak: as in alloc_pd
capi/verbs/soft/provider/provider.c alloc_device malloc-leak: as in alloc_pd
capi/verbs/soft/provider/requests.c wr_set_inline_data_list malloc-leak: it is in the last request of the queue pair
capi/front/object/attr.c front_attr_get use-of-uninitialized-value: predefined sets p whenever it sets *flag
'

# How the build compiles it, in short.
one() {
    local compiler=(gcc -Icapi)
    case $1 in
    capi/front/abi/openmpi*) compiler+=(-DFRONT_ABI=2) ;;
    capi/front/*) compiler+=(-DFRONT_ABI=1) ;;
    capi/back/* | capi/fti/* | capi/veloc/*) compiler=("${MPICC:-mpicc}" -Icapi) ;;
    esac
    "${compiler[@]}" -std=gnu11 -Iinclude -O2 -g -fPIC -fanalyzer -fanalyzer-verbosity=0 -c -o "$out/${1//\//-}.o" "$1" \
        >"$out/${1//\//-}.log" 2>&1 || { cat "$out/${1//\//-}.log"; return 1; }
}

out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
export -f one
export out MPICC
git ls-files 'capi/*.c' | grep -v /test/ | xargs -P"$(nproc)" -I{} bash -c 'one {}' || exit 1

# "FILE FUNCTION WARNING", as in the list.
found=$(cat "$out"/*.log | sed -nE \
    -e "s/^([^: ]+): In function '([^']+)':$/\1 \2/;t keep" \
    -e 's/^([^: ]+):[0-9]+:[0-9]+: warning: .*\[-Wanalyzer-([a-z-]+)\]$/\2/;t join' \
    -e 'b' -e ':keep' -e 'h;b' -e ':join' -e 'G;s/^(.*)\n(.*)$/\2 \1/;p' | sort -u)
status=0
while read -r warning; do
    [ -z "$warning" ] || grep -qF "$warning: " <<<"$exceptions" && continue
    echo "analyze: $warning"
    status=1
done <<<"$found"
[ $status = 0 ] || cat "$out"/*.log
exit $status
