// SPDX-License-Identifier: Apache-2.0
//
// Tests of tasks, matching and collective calls, without libckpt and under ThreadSanitizer: many ranks on few workers.
//
// The network is a mirror.  Half of the job's ranks seem to be in another process: a message for one of them comes back
// to its image in this one, as if from the sender's image, after others that were sent later.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../inside.h"

// ThreadSanitizer would wait a second at the end of each process.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "atexit_sleep_ms=0"; }

static int bad; // atomic
static void check(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "rank %d: %s\n", task_self() != NULL ? tmpi_rank() : -1, what);
    __atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
}

static unsigned random_below(unsigned n) {
    static unsigned state = 1; // atomic
    unsigned x = __atomic_fetch_add(&state, 0x9e3779b9u, __ATOMIC_RELAXED);
    x = (x ^ (x >> 16)) * 0x45d9f3bu;
    return (x ^ (x >> 16)) % n;
}

// ---- what stands in for embed.c and the rails ----

static struct {
    pthread_mutex_t lock;
    struct message *first;
    int n;
} mirror = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int reflect(struct endpoint *e, const struct header *h, const void *data) {
    (void)e;
    if (random_below(4) == 0) return CKPT_E_AGAIN;
    struct message *m = match_room(h);
    if (h->bytes > 0) memcpy(m->data, data, h->bytes);
    m->h.source += tmpi.local, m->h.dest -= tmpi.local;
    pthread_mutex_lock(&mirror.lock);
    m->next = mirror.first;
    mirror.first = m;
    mirror.n++;
    pthread_mutex_unlock(&mirror.lock);
    return 0;
}

// Delivers one of the last few, whichever.
bool embed_progress(void) {
    pthread_mutex_lock(&mirror.lock);
    struct message **at = &mirror.first, *m;
    for (unsigned i = mirror.n > 0 ? random_below((unsigned)mirror.n) : 0; i > 0; i--) at = &(*at)->next;
    if ((m = *at) != NULL) *at = m->next, mirror.n--;
    pthread_mutex_unlock(&mirror.lock);
    if (m != NULL) match_arrived(m);
    return m != NULL;
}

int ckpt_route(ckpt_job *job, int process, size_t bytes, int kind, ckpt_endpoint **out, ckpt_error *error) {
    static struct endpoint glass = {.send = reflect};
    (void)job, (void)process, (void)bytes, (void)kind, (void)error;
    *out = &glass.base;
    return random_below(8) == 0 ? CKPT_E_AGAIN : 0;
}

// What tmpi.c needs for tmpi_run, which is not used here.
void embed_open(void) {}
void embed_rails(void) {}
void embed_between(void) {}
bool move_in(void) { return false; }
void move_register(struct task *t) { (void)t; }
void embed_close(void) {}
void embed_leave(struct task *t) { (void)t; }
void embed_enter(const char *name, ckpt_coll *call) { (void)name, (void)call; }
void embed_return(const ckpt_coll *call) { (void)call; }
void embed_serve(struct task *t) { (void)t; }

// ---- tests; each is the body of all ranks ----

// A parked task is woken each time, whether the unpark comes before or after the park.
static void woken(void) {
    enum { TURNS = 200 };
    static int turns[4096]; // of each rank; atomic
    int me = tmpi_rank(), next = (me + 1) % tmpi.local;
    for (int i = 1; i <= TURNS; i++) {
        __atomic_store_n(&turns[next], i, __ATOMIC_RELEASE);
        task_unpark(tmpi.tasks[next]);
        while (__atomic_load_n(&turns[me], __ATOMIC_ACQUIRE) < i) task_park();
    }
}

// Messages to the other process overtake each other under way, and are received in order all the same.
static void ordered(void) {
    enum { MESSAGES = 40 };
    int me = tmpi_rank(), n = tmpi.local, got;
    for (int i = 0; i < MESSAGES; i++) tmpi_send(&i, sizeof i, n + (me + 1) % n, i % 3);
    for (int i = 0; i < MESSAGES; i++) {
        tmpi_status s;
        tmpi_recv(&got, sizeof got, n + (me + n - 1) % n, i % 2 ? TMPI_ANY_TAG : i % 3, &s);
        check(got == i && s.tag == i % 3 && s.source == n + (me + n - 1) % n && s.bytes == sizeof got,
              "a message out of order");
    }
}

// Tags choose; a receive of any source takes what is there; a short buffer keeps what fits.
static void matched(void) {
    int me = tmpi_rank(), n = tmpi.local, a = -1, b = -1, sum = 0;
    const char *word = "overlong";
    tmpi_request first = tmpi_irecv(&a, sizeof a, me, 8), second = tmpi_irecv(&b, sizeof b, me, 7);
    tmpi_wait(tmpi_isend(&(int){70}, sizeof(int), me, 7), NULL);
    tmpi_wait(tmpi_isend(&(int){80}, sizeof(int), me, 8), NULL);
    tmpi_wait(first, NULL);
    tmpi_wait(second, NULL);
    check(a == 80 && b == 70, "tags");
    if (me != 0) tmpi_send(&me, sizeof me, 0, 1);
    for (int i = 1; me == 0 && i < n; i++, sum += a) tmpi_recv(&a, sizeof a, TMPI_ANY_SOURCE, 1, NULL);
    check(me != 0 || sum == n * (n - 1) / 2, "any source");
    char text[5] = "....";
    tmpi_status s;
    tmpi_send(word, 8, n + me, 2); // by the mirror, to itself
    tmpi_recv(text, 4, TMPI_ANY_SOURCE, 2, &s);
    check(strcmp(text, "over") == 0 && s.bytes == 8 && s.source == n + me, "a short buffer");
}

// The sum of the tree below a rank, of which there are `below` ranks at most.
static double tree(int rank, int below) {
    double sum = 1.0 / (rank + 1);
    for (int bit = 1; bit < below && rank + bit < tmpi.size; bit *= 2) sum += tree(rank + bit, bit);
    return sum;
}

// Every rank gets the sum that the order of coll.c gives, to the last bit.
static void summed(void) {
    const double mine = 1.0 / (tmpi_rank() + 1), want = tree(0, tmpi.size);
    for (int i = 0; i < 10; i++) {
        double got[2] = {mine, -mine};
        tmpi_allreduce(got, got, 2, TMPI_SUM);
        check(got[0] == want && got[1] == -want, "a sum");
        tmpi_allreduce(&mine, got, 1, i % 2 ? TMPI_MIN : TMPI_MAX);
        check(got[0] == (i % 2 ? 1.0 / tmpi.size : 1), "a minimum or maximum");
        tmpi_barrier();
    }
}

// ---- main ----

static void (*body)(void);
static void run_rank(struct task *t) {
    (void)t;
    body();
}

// Each test has a process of its own, as the scheduler runs once.
static void run(void (*test)(void), const char *name, int processes, int ranks, int workers) {
    pid_t pid = fork();
    if (pid == 0) {
        static ckpt_job job; // without routes: each message asks ckpt_route
        alarm(100);
        tmpi = (struct tmpi){
            .processes = processes, .local = ranks, .size = processes * ranks, .workers = workers};
        tmpi.job = &job;
        body = test;
        sched_start(run_rank);
        for (int i = 0; i < ranks; i++) match_start(tmpi.tasks[i]);
        sched_run();
        exit(bad != 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    printf("%s, %d ranks on %d workers: %s\n", name, ranks, workers, status == 0 ? "good" : "bad");
    if (status != 0) bad++;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int workers = 1; workers <= 4; workers += 3) {
        run(woken, "woken", 1, 1000, workers);
        run(ordered, "ordered", 2, 50, workers);
        run(matched, "matched", 2, 60, workers);
        for (int ranks = 1; ranks <= 100; ranks += 33) run(summed, "summed", 1, ranks, workers);
    }
    return bad != 0;
}
