// SPDX-License-Identifier: Apache-2.0
//
// gate: what does it cost to cross into the lower half and back?
//
//     gate BATCHES          natively: an indirect call of a function that does nothing
//     gate BATCHES gate     under ckptrun: a function number that nobody has, through the gate
//     gate BATCHES bases    natively: nothing but writing the FS base twice, as every crossing must
//
// No MPI.  The gate looks the number up like any other and calls what it finds: a function that
// returns -ENOSYS.
#include <errno.h>

#include "ckpt/private/gate.h"
#include "measure.h"

enum { NOBODY = 63 }; // the last number of the host's own

__attribute__((noinline)) static long nothing(unsigned fn, const void *args) {
    __asm__ volatile("" : : "r"(args) : "memory");
    return fn == NOBODY ? -ENOSYS : 0;
}

// The base that is there already: the processor takes as long for it as for another one.
__attribute__((target("fsgsbase"))) static void bases(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    unsigned long long base = _readfsbase_u64();
    MEASURE(&m, "FS base", 200, {
        _writefsbase_u64(base);
        __asm__ volatile("" : : : "memory");
        _writefsbase_u64(base);
    });
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[2], "bases") == 0) {
        bases(argc - 1, argv);
        return 0;
    }
    long (*volatile call)(unsigned, const void *) = nothing;
    if (argc == 3 && strcmp(argv[2], "gate") == 0) {
        argc--;
        DEMAND(CKPT_GATE->magic == CKPT_GATE_MAGIC);
        call = CKPT_GATE->gate;
    }
    struct measure m = measure_begin(argc, argv);
    long args[1] = {0};
    int wrong = 0;
    MEASURE(&m, "gate", 200, wrong += call(NOBODY, args) != -ENOSYS);
    DEMAND(wrong == 0);
    return 0;
}
