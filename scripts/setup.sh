#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh OUT [test|bench|lint|vm]: installs what the build and the demo need and is not there, with "test", "bench",
# "lint" or "vm" (make test-vm, make test-verbs-vm) also what only those need, and writes OUT, a piece of makefile that
# says which Go to use and for which MPIs a back is compiled (scripts/mpis.sh).  When nothing is missing it does nothing, quickly: the Makefile calls
# it on every run.
#
# With LIBCKPT_SETUP=look it installs and fetches nothing, and looks only for what compiling needs: where a package is
# built (debian/rules), that is somebody else's work.
#
# Any one MPI is enough.  BACKS says which to take; without it those that are there are taken, and where there is
# none, the two of Debian are installed.
#
# Packages come through apt-get, as root or with sudo.  Go must be as new as go.mod asks for; when
# the machine's is older, or there is none, the toolchain is fetched by an older Go as a module, which
# checks its digest, and kept in the user's cache, outside build/.
set -euo pipefail

out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    die "libckpt runs on Linux on x86-64 only; this is $(uname -s) on $(uname -m)"

# ---- packages ------------------------------------------------------------------------------------

# package: a command, or the absolute path of a file, that tells that it is installed.
needs='
gcc: gcc
g++: g++
gfortran: gfortran
make: make
libc6-dev: /usr/include/stdio.h
libibverbs-dev: /usr/include/infiniband/verbs.h
librdmacm-dev: /usr/include/rdma/rdma_cma.h
python3: python3
spin: spin
git: git
ca-certificates: /etc/ssl/certs/ca-certificates.crt
'
[ "${LIBCKPT_SETUP:-}" != look ] || needs='
gcc: gcc
make: make
libc6-dev: /usr/include/stdio.h
'
declare -A mpi=([mpich]='
mpich: mpiexec.mpich
libmpich-dev: mpicc.mpich
' [openmpi]='
openmpi-bin: mpiexec.openmpi
libopenmpi-dev: mpicc.openmpi
')
# Other people's programs, which the tests run under ckptrun. Those that a release of Debian does not have are named and
# left out; their tests fail, or are skipped, by themselves.
tested='
python3-numpy: /usr/lib/python3/dist-packages/numpy/__init__.py
iproute2: ip
ibverbs-utils: ibv_rc_pingpong
rdmacm-utils: rping
perftest: ib_send_bw
python3-pyverbs: /usr/lib/python3/dist-packages/pyverbs/__init__.py
ucx-utils: ucx_perftest
libfabric-bin: fi_pingpong
munge: munged
slurmctld: slurmctld
slurmd: slurmd
slurm-client: srun
'
declare -A tested_with=([mpich]='
netpipe-mpich2: NPmpich2
libhdf5-mpich-dev: /usr/include/hdf5/mpich/hdf5.h
' [openmpi]='
scalapack-mpi-test: /usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdllt
hpcc: hpcc
netpipe-openmpi: NPopenmpi
lammps: lmp
lammps-examples: /usr/share/lammps/examples/peptide/data.peptide
python3-mpi4py: /usr/lib/python3/dist-packages/mpi4py/__init__.py
python3-lmdb: /usr/lib/python3/dist-packages/lmdb/__init__.py
libhdf5-openmpi-dev: /usr/include/hdf5/openmpi/hdf5.h
libcoarrays-openmpi-dev: /usr/lib/x86_64-linux-gnu/open-coarrays/openmpi/lib/libcaf_openmpi.so
')
# Python's own tests come with the version of Python that the distribution has.
case $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) in
bookworm) python=3.11 ;;
trixie) python=3.13 ;;
forky) python=3.14 ;;
*) python= ;;
esac
[ -z "$python" ] || tested+="libpython$python-testsuite: /usr/lib/python$python/test/test_select.py
python3-gdbm: /usr/lib/python$python/lib-dynload/_gdbm.cpython-${python/./}-x86_64-linux-gnu.so
"
measured='
elk-lapw: elk-lapw
'
linted='
clang-format: clang-format
'
virtual='
qemu-system-x86: qemu-system-x86_64
busybox-static: busybox
cpio: cpio
kmod: depmod
iproute2: ip
ibverbs-utils: ibv_rc_pingpong
ibverbs-providers: /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
perftest: ib_send_bw
'
# Debian's MPIs, where one that BACKS asks for, or any, is missing.
here_are() { for m in mpich openmpi; do if command -v "mpicc.$m" >/dev/null; then echo $m; fi; done; }
for m in mpich openmpi; do
    wants=MPICC_${m^^}
    case " ${BACKS-} " in *" $m "*) [ -n "${!wants:-}" ] || needs+=${mpi[$m]} ;; esac
done
if [ -z "${BACKS-}" ] && [ -z "$(here_are)" ] && ! command -v mpicc >/dev/null; then
    needs+=${mpi[mpich]}${mpi[openmpi]}
fi
optional=
case ${2:-} in
test | bench)
    optional=$tested
    for m in $(here_are); do optional+=${tested_with[$m]}; done
    [ "$2" = test ] || optional+=$measured
    ;;
lint) needs+=$linted ;;
vm) needs+=$virtual ;;
esac

present() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

install_packages() {
    local root=
    [ "${LIBCKPT_SETUP:-}" != look ] || die "missing: $*. Nothing is installed here (LIBCKPT_SETUP=look)"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "missing: $*. You are neither root nor is there sudo: ask for 'apt-get install $*'"
        root=sudo
        # Nobody could type a password.
        [ -t 0 ] || root='sudo -n'
    fi
    command -v apt-get >/dev/null ||
        die "missing: $*. There is no apt-get here: install what these Debian packages contain"
    say "installing $*"
    # A list that cannot be refreshed may still be good enough for these packages.
    local package here=() updated=1
    $root apt-get update -qq >&2 || { updated= && say "apt-get update failed; trying with the lists that are there"; }
    for package; do
        if [[ -z $updated || $optional != *$'\n'"$package: "* || $(LC_ALL=C apt-cache policy "$package") =~ Candidate:\ [0-9] ]]; then
            here+=("$package")
        else
            say "this release has no package $package; the tests of it cannot pass"
        fi
    done
    [ ${#here[@]} -gt 0 ] || return 0
    set -- "${here[@]}"
    $root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >&2 ||
        die "apt-get could not install: $*. Its own message stands above"
}

missing=()
while IFS=': ' read -r package probe; do
    [ -z "$package" ] || present "$probe" || missing+=("$package")
done <<<"$needs$optional"
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"

# ---- Go ------------------------------------------------------------------------------------------

# The version in go.mod: of its toolchain line, else of its go line.  A language version such as 1.26
# stands for its first release.
wanted=$(awk '$1 == "go" && !v { v = $2 } $1 == "toolchain" { v = substr($2, 3) } END { print v }' \
    "$here/go.mod")
case $wanted in *.*.*) ;; *) wanted=$wanted.0 ;; esac

# Prints the version of the Go at $1, or nothing.
version_of() {
    # Not in the module: there, a newer Go than this one would be looked for.
    (cd / && GOTOOLCHAIN=local "$1" version 2>/dev/null) | sed -n 's/^go version go\([0-9.]*\).*/\1/p'
}

# at_least HAVE WANTED
at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

find_go() {
    local go
    for go in "${GO:-}" "$(command -v go || true)" /usr/local/go/bin/go "$cache/go$wanted/bin/go"; do
        if [ -n "$go" ] && at_least "$(version_of "$go")" "$wanted"; then
            echo "$go"
            return
        fi
    done
}

# Fetches Go $wanted with the Go at $1 (1.16 or newer) into the cache.
fetch_go() {
    local module=golang.org/toolchain@v0.0.1-go$wanted.linux-amd64 work dir
    say "fetching Go $wanted (go.mod asks for it) into $cache"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    # shellcheck disable=SC2064
    trap "chmod -R u+w '$work'; rm -rf '$work'" EXIT
    (cd "$work" && GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPATH=$work/gopath GOMODCACHE=$work/mod \
        "$1" mod download -json "$module" >download.json) ||
        die "Go $wanted could not be fetched: $(sed -n 's/.*"Error": "\(.*\)".*/\1/p' "$work/download.json")"
    dir=$work/mod/$module
    # A module has no executable files and no nested go.mod: put both right, as the go command does
    # for the toolchains that it fetches itself.
    chmod -R u+w "$dir"
    chmod a+x "$dir"/bin/* "$dir"/pkg/tool/*/*
    find "$dir" -name _go.mod -execdir mv _go.mod go.mod ';'
    rm -rf "$cache/go$wanted"
    mv "$dir" "$cache/go$wanted"
}

go=$(find_go)
[ -n "$go" ] || [ "${LIBCKPT_SETUP:-}" != look ] ||
    die "there is no Go $wanted or newer in PATH, in /usr/local/go or in $cache, and none is fetched here (LIBCKPT_SETUP=look): say where one is, GO=/path/to/go"
if [ -z "$go" ]; then
    old=$(command -v go || true)
    if ! at_least "$([ -z "$old" ] || version_of "$old")" 1.16; then
        install_packages golang-go
        old=/usr/bin/go
    fi
    fetch_go "$old"
    go=$(find_go)
    [ -n "$go" ] || die "Go $wanted was fetched into $cache/go$wanted but does not start"
fi

# ---- MPIs ----------------------------------------------------------------------------------------

# shellcheck disable=SC2086
mpis=$("$here/scripts/mpis.sh" ${BACKS-}) || {
    [ $? = 3 ] || exit 1
    die "there is no MPI: neither mpicc.mpich nor mpicc.openmpi nor mpicc is in PATH. Install one (Debian: apt-get install mpich libmpich-dev), or say where one is: make BACKS=/opt/x/bin/mpicc"
}

# ---- the answer ----------------------------------------------------------------------------------

answer="# Written by scripts/setup.sh.
GO := $go
$mpis"
if [ "$(cat "$out" 2>/dev/null)" != "$answer" ]; then
    mkdir -p "$(dirname "$out")"
    # Backs that are not compiled any more; those that were added otherwise stay.
    for name in $(sed -n 's/^MPIS := //p' "$out" 2>/dev/null); do
        case " $(sed -n 's/^MPIS := //p' <<<"$answer") " in
        *" $name "*) ;;
        *) rm -rf "$(dirname "$out")"/{lib/ckpt/back,obj/checked,obj/faults/lib/ckpt/back}/libckptback-"$name".so \
            "$(dirname "$out")"/lib/ckpt/{fti,veloc}/"$name" "$(dirname "$out")"/{examples,soak,bench}/*."$name" ;;
        esac
    done
    echo "$answer" >"$out.new" && mv "$out.new" "$out"
fi
