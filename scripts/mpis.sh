#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mpis.sh [WORD]...: for which MPIs a back is compiled, as a piece of makefile.  A WORD is mpich or openmpi (the compilers
# MPICC_MPICH and MPICC_OPENMPI say, else those of Debian, mpicc.mpich and mpicc.openmpi), the path of an MPI's compiler, or
# NAME=COMPILER.  Without a WORD: what is there.  Status 3: no MPI is there.
#
#   MPIS             the names of the backs
#   MPICC_NAME       the MPI's compiler
#   MPIEXEC_NAME     its launcher, the one beside the compiler where that is a path
#   MPI_IS_NAME      mpich, openmpi or abi: what its mpi.h says (capi/back/which.in)
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "backs: $*" >&2; exit 1; }

compiler_of() {
    case $1 in
    mpich) echo "${MPICC_MPICH:-mpicc.mpich}" ;;
    openmpi) echo "${MPICC_OPENMPI:-mpicc.openmpi}" ;;
    esac
}

given=$#
if [ $# = 0 ]; then
    for name in mpich openmpi; do
        if command -v "$(compiler_of $name)" >/dev/null; then set -- "$@" $name; fi
    done
    # Where distributions do not tell two MPIs apart by their compilers' names.
    if [ $# = 0 ] && command -v mpicc >/dev/null; then set -- mpicc; fi
    [ $# -gt 0 ] || exit 3
fi

declare -A compilers
names=()
for word; do
    name=
    case $word in
    *=*) name=${word%%=*} compiler=${word#*=} ;;
    mpich | openmpi) name=$word compiler=$(compiler_of "$word") ;;
    *) compiler=$word ;;
    esac
    command -v "$compiler" >/dev/null ||
        die "there is no $compiler: install that MPI with its headers, or say in BACKS which MPIs to take, such as BACKS=\"mpich /opt/x/bin/mpicc\""
    said=$("$compiler" -E -P -x c "$here/capi/back/which.in" 2>&1) ||
        die "$compiler does not find its mpi.h: $(grep -m 1 error <<<"$said" || head -n 1 <<<"$said"). Is it an MPI's compiler?"
    [[ $said =~ libckpt-mpi\ ([a-z-]+)\ \"([^\"]*)\"\ (.*)\ ([0-9]+)\ ([0-9]+) ]] ||
        die "what $compiler makes of capi/back/which.in is not understood: $(tail -n 1 <<<"$said")"
    is=${BASH_REMATCH[1]} called=${BASH_REMATCH[2]} version=${BASH_REMATCH[3]//[\" ]/} standard=${BASH_REMATCH[4]}.${BASH_REMATCH[5]}
    case $is in
    -) die "$compiler is of an MPI that is neither MPICH nor Open MPI, nor of their ABIs, nor has it the standard's ABI: libckpt has no back for it" ;;
    abi) die "$compiler compiles for the standard ABI, for which there is always a back (ckptrun --mpi abi): leave it out" ;;
    esac
    case $standard in
    [012].* | 3.0) die "$called $version ($compiler) has MPI $standard, and libckpt needs MPI 3.1: take a newer one, or leave it out of BACKS" ;;
    esac
    if [ -z "$name" ]; then name=$is; fi
    [[ $name =~ ^[a-z0-9][a-z0-9._-]*$ ]] || die "\"$name\" is no name for a back: small letters, digits, dots and dashes"
    [ "$name" != abi ] || die "the name abi belongs to the back for the standard ABI: take another one for $compiler"
    [ -z "${compilers[$name]:-}" ] ||
        die "${compilers[$name]} and $compiler are both for MPIs of $([ "$is" = mpich ] && echo "MPICH's" || echo "Open MPI's") ABI, which serve the same programs: leave one out, or name the second, BACKS=\"... NAME=$compiler\", for ckptrun --mpi NAME"
    compilers[$name]=$compiler
    names+=("$name")
    launcher=mpiexec
    case $compiler in
    */*) launcher=$(dirname "$compiler")/mpiexec ;;
    *.*) launcher=mpiexec.${compiler##*.} ;;
    esac
    printf 'MPICC_%s := %s\nMPIEXEC_%s := %s\nMPI_IS_%s := %s\n' "$name" "$compiler" "$name" "$launcher" "$name" "$is"
    [ "$given" = 0 ] || echo "backs: $name: $called $version, $compiler" >&2
done
echo "MPIS := ${names[*]}"
