// SPDX-License-Identifier: Apache-2.0
//
// at_end.c: what the libraries of the lower half want called when the process ends.
//
// Since MPICH 4.2 MPI_Finalize does not tell the launcher that the rank is done: a handler of exit does, which
// libmpich registers in MPI_Init.  The application calls exit of its own C library, and ends the process with a
// system call, so that handler would never run; Hydra 4.2 takes a rank that leaves like that for one that died,
// and kills the others.  So ckptrun keeps what is registered, and the back has that of libmpich called in
// MPI_Finalize: whichever MPI function the application calls later, none uses the real MPI.
//
// Other libraries' handlers do not run, as nothing of the lower half outlives the process.
#include "host.h"
#include "at_end.h"
#include "lower.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

struct handler {
    struct handler *next; // registered before this one
    void (*fn)(void *);
    void *arg, *object; // __dso_handle of the shared object that registered it
    bool called;
};

static struct handler *last;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER; // of last

// The C library has this called at most once; lower_at_end may have been quicker.
static void call(void *p) {
    struct handler *h = p;
    if (!__atomic_exchange_n(&h->called, true, __ATOMIC_ACQ_REL)) h->fn(h->arg);
}

typedef int registrar(void (*)(void *), void *, void *);

// Replaces the C library's function, which atexit calls, for everything in the lower half.  Declared nowhere: it
// is of the ABI for C++ (Itanium C++ ABI 3.3.6.3).
int __cxa_atexit(void (*fn)(void *), void *arg, void *object);
__attribute__((visibility("default"))) int __cxa_atexit(void (*fn)(void *), void *arg, void *object) {
    registrar *libc = (registrar *)dlsym(RTLD_NEXT, "__cxa_atexit");
    if (!libc) die(1, "the C library has no __cxa_atexit: %s", dlerror());
    struct handler *h = malloc(sizeof *h);
    if (!h) return -1;
    *h = (struct handler){.fn = fn, .arg = arg, .object = object};
    if (libc(call, h, object)) {
        free(h);
        return -1;
    }
    pthread_mutex_lock(&adding);
    h->next = last;
    last = h;
    pthread_mutex_unlock(&adding);
    return 0;
}

static const void *base_of(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

__attribute__((visibility("default"))) void lower_at_end(const void *code) {
    const void *base = base_of(code);
    pthread_mutex_lock(&adding);
    struct handler *h = last;
    pthread_mutex_unlock(&adding);
    for (; base && h; h = h->next) // is only ever added to at its head
        if (base_of(h->object) == base) call(h);
}
