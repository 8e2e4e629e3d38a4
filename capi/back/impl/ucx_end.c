// SPDX-License-Identifier: Apache-2.0
//
// MPICH before 4.2 on UCX: MPI_Finalize on several nodes. A rank that has closed its connections waits in a barrier of
// the launcher, and moves UCX no more. The others need it to: closing a connection that is still being made takes both
// ends. So they wait for each other forever; short programs do it nearly always, and a continued job is short when
// it was saved near its end. MPICH 4.2 has no such barrier (its pull request 6596).
//
// UCX's functions below stand before UCX's own: a library finds names in the back, which loads it, first. They add a
// thread that moves UCX from the first connection that is closed until the worker is destroyed.
#include <mpi.h>

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

// As ucp/api/ucp.h has them; a status is in a pointer when it is no request.
typedef int8_t ucs_status_t;
enum { UCS_INPROGRESS = 1, UCS_ERR_LAST = -100 };

unsigned ucp_worker_progress(void *worker);
void *ucp_disconnect_nb(void *ep);
ucs_status_t ucp_worker_create(void *context, const void *params, void **worker);
void ucp_worker_destroy(void *worker);

// A program has as many workers as MPICH has virtual interfaces, at most 64.
enum { WORKERS = 64 };
static void *workers[WORKERS];
static int nworkers;

static unsigned (*real_progress)(void *);
static atomic_int closing;                               // the thread may run
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; // while closing: one thread is in UCX
static int stop;                                         // under turn
static pthread_t mover;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

OURS unsigned ucp_worker_progress(void *worker) {
    if (!real_progress) real_progress = (unsigned (*)(void *))next("ucp_worker_progress");
    if (!atomic_load_explicit(&closing, memory_order_relaxed)) return real_progress(worker);
    pthread_mutex_lock(&turn);
    unsigned n = real_progress(worker);
    pthread_mutex_unlock(&turn);
    return n;
}

OURS ucs_status_t ucp_worker_create(void *context, const void *params, void **worker) {
    ucs_status_t (*real)(void *, const void *, void **) =
        (ucs_status_t(*)(void *, const void *, void **))next("ucp_worker_create");
    ucs_status_t status = real(context, params, worker);
    if (status == 0 && nworkers < WORKERS) workers[nworkers++] = *worker;
    return status;
}

static void move_all(void) {
    for (int i = 0; i < nworkers; i++)
        if (workers[i]) real_progress(workers[i]);
}

static void *keep_moving(void *arg) {
    for (;; usleep(200)) {
        pthread_mutex_lock(&turn);
        int over = stop;
        if (!over) move_all();
        pthread_mutex_unlock(&turn);
        if (over) return arg;
    }
}

// Connections are closed in MPI_Finalize only. It returns when this one is closed.
OURS void *ucp_disconnect_nb(void *ep) {
    void *(*real)(void *) = (void *(*)(void *))next("ucp_disconnect_nb");
    if (!real_progress) real_progress = (unsigned (*)(void *))next("ucp_worker_progress");
    if (!atomic_load(&closing)) {
        if (pthread_create(&mover, NULL, keep_moving, NULL) != 0) return real(ep);
        atomic_store(&closing, 1);
    }
    ucs_status_t (*status)(void *) = (ucs_status_t(*)(void *))next("ucp_request_check_status");
    void (*release)(void *) = (void (*)(void *))next("ucp_request_release");
    pthread_mutex_lock(&turn);
    void *request = real(ep);
    if (request != NULL && (uintptr_t)request < (uintptr_t)UCS_ERR_LAST) {
        while (status(request) == UCS_INPROGRESS) {
            move_all();
            pthread_mutex_unlock(&turn); // UCX's own threads and the mover have their turn
            pthread_mutex_lock(&turn);
        }
        release(request);
        request = NULL;
    }
    pthread_mutex_unlock(&turn);
    return request;
}

OURS void ucp_worker_destroy(void *worker) {
    void (*real)(void *) = (void (*)(void *))next("ucp_worker_destroy");
    pthread_mutex_lock(&turn);
    for (int i = 0; i < nworkers; i++)
        if (workers[i] == worker) workers[i] = NULL;
    int left = 0;
    for (int i = 0; i < nworkers; i++) left += workers[i] != NULL;
    int over = atomic_load(&closing) && left == 0 && !stop;
    if (over) stop = 1;
    pthread_mutex_unlock(&turn);
    if (over) pthread_join(mover, NULL);
    real(worker);
}

#endif
