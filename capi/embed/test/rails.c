// SPDX-License-Identifier: Apache-2.0
//
// Rails without a core: the scenarios that Go has too, and their way through checkpoints that succeed, fail and are
// given up.  With arguments: the scenarios of those files ("-": standard input) alone.
#include "../rails.c"
#include "../say.c"

#include "../../host/test/test.h"
#include "scenario.h"

static int ignored[8], nignored; // descriptors that are left out of images
int embed_ignore_fd(struct embed_job *job, int fd, bool on) {
    (void)job;
    if (fd == 99) return CKPT_E_ARG;
    if (on) {
        ignored[nignored++] = fd;
        return 0;
    }
    for (int i = 0; i < nignored; i++)
        if (ignored[i] == fd) ignored[i] = ignored[--nignored];
    return 0;
}

static struct embed_job job;
static ckpt_tables tables;
static char calls[2000]; // callbacks since the last look
static const char *why_failed;

static void (*handler)(void); // of the signals that have come
void embed_signals_take(struct embed_job *of) {
    CHECK(of == &job);
    tables.attention = 0;
    handler();
}

// A rail that notes what it is asked for, and answers as it is told.
struct noted {
    ckpt_rail *rail;
    const char *name;
    int quiet, close, reopen, connect; // answers
    bool add;                          // reopen adds the static endpoint
    void (*inside)(struct noted *);    // what connect does
    ckpt_endpoint stat, dynamic;
};

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    va_list args;
    size_t n = strlen(calls);
    if (n > 0) n += (size_t)snprintf(calls + n, sizeof calls - n, " ");
    va_start(args, format);
    vsnprintf(calls + n, sizeof calls - n, format, args);
    va_end(args);
}
static void were(const char *want, int line) {
    if (strcmp(calls, want) != 0) {
        printf("rails.c:%d: callbacks \"%s\", expected \"%s\"\n", line, calls, want);
        exit(1);
    }
    calls[0] = 0;
}
#define WERE(want) were(want, __LINE__)

static const char *failure_of(void *ctx) {
    CHECK(ctx == &job);
    return why_failed;
}
static int processes(void *ctx) {
    CHECK(ctx == &job);
    return 8;
}
static int rail_quiet(void *ctx) {
    struct noted *n = ctx;
    note("%s.quiet", n->name);
    return n->quiet;
}
static int rail_close(void *ctx) {
    struct noted *n = ctx;
    note("%s.close", n->name);
    for (int p = 0; p < 8; p++) CHECK(listed(n->rail, p) == NULL);
    SAME(ckpt_endpoint_add(&job.seen, &n->dynamic), CKPT_E_STATE); // not any more
    return n->close;
}
static ckpt_rail *opened; // already, when others open
static int rail_reopen(void *ctx, int why) {
    struct noted *n = ctx;
    if (opened != NULL && opened != n->rail) SAME(ckpt_rail_unregister(&job.seen, opened), CKPT_E_STATE);
    static const char *const names[] = {"", "continued", "restarted", "failed"};
    note("%s.%s", n->name, names[why]);
    if (n->add) {
        SAME(ckpt_endpoint_add(&job.seen, &n->stat), 0);
        CHECK(ckpt_elect(&job.seen, n->stat.process, 1, CKPT_MSG_EAGER) != NULL);
    }
    return n->reopen;
}
static int rail_connect(void *ctx, int process, ckpt_endpoint **out) {
    struct noted *n = ctx;
    note("%s.connect %d", n->name, process);
    if (n->inside != NULL) n->inside(n);
    if (n->connect == 0) *out = &n->dynamic;
    return n->connect;
}

static void begin(void) {
    embed_rails_end(&job);
    memset(&job, 0, sizeof job);
    job.seen.tables = &tables;
    job.ctx = &job;
    job.ops.size = sizeof job.ops;
    job.ops.ranks = processes;
    job.ops.failure = failure_of;
    why_failed = "no device";
    calls[0] = 0;
}

static struct noted rail(const char *name) { return (struct noted){.name = name, .quiet = 1, .add = true}; }

// Its static endpoint leads to process 1, the dynamic one to 2.
static void add_rail(struct noted *n, int priority, unsigned flags) {
    ckpt_rail_ops ops = {.size = sizeof ops,
                         .name = n->name,
                         .priority = priority,
                         .flags = flags,
                         .connect = rail_connect,
                         .quiet = rail_quiet,
                         .close = rail_close,
                         .reopen = rail_reopen};
    SAME(ckpt_rail_register(&job.seen, &ops, n, &n->rail, NULL), 0);
    n->stat = (ckpt_endpoint){.rail = n->rail, .process = 1, .flags = CKPT_EP_STATIC};
    n->dynamic = (ckpt_endpoint){.rail = n->rail, .process = 2};
    SAME(ckpt_endpoint_add(&job.seen, &n->stat), 0);
}

static ckpt_endpoint *elect(int process) { return ckpt_elect(&job.seen, process, 8, CKPT_MSG_EAGER); }
static int route(int process, ckpt_endpoint **out, ckpt_error *error) {
    if (error != NULL) *error = (ckpt_error){.size = sizeof *error};
    return ckpt_route(&job.seen, process, 8, CKPT_MSG_EAGER, out, error);
}
static void says(const ckpt_error *error, const char *want) {
    if (strcmp(error->message, want) != 0) {
        printf("\"%s\", expected \"%s\"\n", error->message, want);
        exit(1);
    }
}

// ---- registration ----

static void registers_one(const ckpt_rail_ops *ops, int code, const char *why) {
    ckpt_rail *r = (ckpt_rail *)&job;
    ckpt_error error = {.size = sizeof error};
    SAME(ckpt_rail_register(&job.seen, ops, NULL, &r, &error), code);
    SAME(error.code, code);
    CHECK(r == NULL);
    says(&error, why);
}

static void registers(void) {
    begin();
    ckpt_rail_ops ops = {.size = 56, .name = "tcp", .quiet = rail_quiet};
    registers_one(
        &ops, CKPT_E_VERSION,
        "the runtime's ckpt_rail_ops has 56 bytes, and version 1.1 of rail.h has 64: its size is not set");
    ops.size = sizeof ops;
    registers_one(&ops, CKPT_E_ARG,
                  "rail tcp: close and reopen must be there, unless it is CKPT_RAIL_CHECKPOINTABLE");
    ops.close = rail_close, ops.reopen = rail_reopen, ops.flags = CKPT_RAIL_ON_DEMAND;
    registers_one(&ops, CKPT_E_ARG, "rail tcp: CKPT_RAIL_ON_DEMAND needs connect");
    ops.flags = 64;
    registers_one(&ops, CKPT_E_VERSION, "rail tcp: this libckpt does not know flag 0x40");
    ops.flags = 0, ops.name = NULL;
    registers_one(&ops, CKPT_E_ARG, "a rail must have a name");
    CHECK(job.seen.routes == NULL);

    // A runtime of a newer header: what it does not use is no obstacle.
    struct {
        ckpt_rail_ops ops;
        long more;
    } newer = {.ops = ops};
    newer.ops.size = sizeof newer, newer.ops.name = "new";
    ckpt_rail *r;
    SAME(ckpt_rail_register(&job.seen, &newer.ops, NULL, &r, NULL), 0);
    const struct ckpt_routes *routes = job.seen.routes;
    CHECK(routes != NULL && routes->processes == 8);
    newer.more = 1;
    registers_one(
        &newer.ops, CKPT_E_VERSION,
        "the runtime uses a part of ckpt_rail_ops (at byte 64) that this libckpt does not know: it was "
        "compiled against a newer ckpt.h than 1.1");
    SAME(ckpt_rail_unregister(&job.seen, r), 0);
    CHECK(job.seen.routes == routes); // it stays in place
    SAME(ckpt_rail_unregister(&job.seen, NULL), CKPT_E_ARG);
}

static void endpoints(void) {
    begin();
    struct noted a = rail("a"), b = rail("b"), c = rail("c");
    add_rail(&b, 5, 0), add_rail(&a, 9, 0), add_rail(&c, 1, 0);
    CHECK(elect(1) == &a.stat && a.stat.next == &b.stat && b.stat.next == &c.stat && c.stat.next == NULL);
    ckpt_endpoint second = b.stat, far = b.stat, none = {.process = 1};
    SAME(ckpt_endpoint_add(&job.seen, &second), CKPT_E_STATE);
    far.process = 8;
    SAME(ckpt_endpoint_add(&job.seen, &far), CKPT_E_ARG);
    far.process = -1;
    SAME(ckpt_endpoint_add(&job.seen, &far), CKPT_E_ARG);
    SAME(ckpt_endpoint_add(&job.seen, &none), CKPT_E_ARG);
    CHECK(elect(8) == NULL && elect(-1) == NULL && elect(0) == NULL);
    ckpt_endpoint_remove(&job.seen, &b.stat);
    ckpt_endpoint_remove(&job.seen, &b.stat); // it is not there
    CHECK(elect(1) == &a.stat && a.stat.next == &c.stat);
    CHECK(b.stat.next == &c.stat); // who stands on it goes on
    SAME(ckpt_endpoint_add(&job.seen, &second), 0);
    CHECK(a.stat.next == &second && second.next == &c.stat);
    SAME(ckpt_rail_unregister(&job.seen, a.rail), 0);
    CHECK(elect(1) == &second);
    SAME(ckpt_rail_unregister(&job.seen, c.rail), 0);
    CHECK(second.next == NULL);
    ckpt_endpoint *e = NULL;
    ckpt_error error;
    SAME(route(8, &e, &error), CKPT_E_ARG);
    says(&error, "there is no process 8: the job has 8");
    SAME(route(-1, &e, &error), CKPT_E_ARG);
}

static void descriptors(void) {
    begin();
    struct noted a = rail("a"), b = rail("b");
    add_rail(&a, 5, 0), add_rail(&b, 4, 0);
    SAME(ckpt_rail_fd(a.rail, 5), 0);
    SAME(ckpt_rail_fd(a.rail, 6), 0);
    SAME(ckpt_rail_fd(b.rail, 7), 0);
    SAME(nignored, 3);
    SAME(ckpt_rail_fd(a.rail, -1), CKPT_E_ARG);
    SAME(ckpt_rail_fd(a.rail, 99), CKPT_E_ARG); // the core refuses it
    SAME(ckpt_rail_fd(NULL, 4), CKPT_E_ARG);
    SAME(ckpt_rail_unregister(&job.seen, a.rail), 0);
    SAME(nignored, 1);
    SAME(ignored[0], 7);
    // After a restart the number may be another file's, which is to be saved.
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    SAME(embed_rails_reopen(&job, CKPT_WHY_RESTARTED, NULL), 0);
    SAME(ckpt_rail_unregister(&job.seen, b.rail), 0);
    SAME(nignored, 1);
}

// ---- checkpoints ----

static void succeeds(void) {
    begin();
    struct noted ib = rail("ib"), shm = rail("shm"), tcp = rail("tcp");
    add_rail(&tcp, 0, CKPT_RAIL_ON_DEMAND), add_rail(&ib, 20, 0),
        add_rail(&shm, 10, CKPT_RAIL_CHECKPOINTABLE);
    SAME(ckpt_endpoint_add(&job.seen, &shm.dynamic), 0);
    for (int why = CKPT_WHY_CONTINUED; why <= CKPT_WHY_RESTARTED; why++) {
        ckpt_endpoint *e;
        SAME(ckpt_endpoint_add(&job.seen, &ib.dynamic), 0);
        tcp.quiet = 0;
        SAME(embed_rails_quiet(&job, NULL), 0); // all are asked each time
        WERE("ib.quiet shm.quiet tcp.quiet");
        CHECK(elect(1) == &ib.stat && elect(2) == &ib.dynamic);
        SAME(route(3, &e, NULL), CKPT_E_AGAIN); // draining: nothing new
        WERE("");
        SAME(ckpt_rail_unregister(&job.seen, ib.rail), CKPT_E_STATE);
        tcp.quiet = 1;
        SAME(embed_rails_quiet(&job, NULL), 1);
        WERE("ib.quiet shm.quiet tcp.quiet");
        SAME(embed_rails_close(&job, NULL), 0);
        WERE("ib.close tcp.close");
        CHECK(elect(1) == &shm.stat && elect(2) == &shm.dynamic && shm.stat.next == NULL);
        SAME(route(3, &e, NULL), CKPT_E_AGAIN);
        SAME(ckpt_rail_unregister(&job.seen, ib.rail), CKPT_E_STATE);
        opened = tcp.rail;
        SAME(embed_rails_reopen(&job, why, NULL), 0);
        opened = NULL;
        WERE(why == CKPT_WHY_CONTINUED ? "tcp.continued ib.continued" : "tcp.restarted ib.restarted");
        CHECK(elect(1) == &ib.stat && ib.stat.next == &shm.stat && shm.stat.next == &tcp.stat);
        CHECK(elect(2) == &shm.dynamic); // the other one comes on demand
    }
}

// Given up before anything was closed: nobody need know.
static void refused(void) {
    begin();
    struct noted a = rail("a"), b = rail("b");
    add_rail(&a, 5, 0), add_rail(&b, 4, CKPT_RAIL_LAZY);
    ckpt_error error = {.size = sizeof error};
    a.quiet = CKPT_E_PEER, why_failed = "process 3 does not acknowledge";
    SAME(embed_rails_quiet(&job, &error), CKPT_E_PEER);
    says(&error, "rail a: quiet: process 3 does not acknowledge");
    WERE("a.quiet b.quiet");
    SAME(embed_rails_reopen(&job, CKPT_WHY_FAILED, &error), 0);
    WERE("");
    CHECK(elect(1) == &a.stat && a.rail->state == OPEN && b.rail->state == OPEN);
    SAME(ckpt_rail_unregister(&job.seen, a.rail), 0);
}

// Given up after all are closed, here or by another process.
static void given_up(void) {
    begin();
    struct noted a = rail("a"), b = rail("b"), c = rail("c");
    add_rail(&a, 5, 0), add_rail(&b, 4, 0), add_rail(&c, 3, 0);
    ckpt_error error = {.size = sizeof error};
    SAME(embed_rails_quiet(&job, NULL), 1);
    WERE("a.quiet b.quiet c.quiet");
    b.close = CKPT_E_SYSTEM, c.close = -77, why_failed = "";
    SAME(embed_rails_close(&job, &error), CKPT_E_SYSTEM);
    says(&error, "rail b cannot be closed: the runtime does not say why (code -3)");
    WERE("a.close b.close c.close"); // the others too: reopen is collective
    SAME(embed_rails_reopen(&job, CKPT_WHY_FAILED, &error), 0);
    WERE("c.failed b.failed a.failed");
    CHECK(elect(1) == &a.stat && a.stat.next == &b.stat && b.stat.next == &c.stat);
    b.close = c.close = 0;
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    SAME(embed_rails_reopen(&job, CKPT_WHY_FAILED, NULL), 0);
    WERE("a.quiet b.quiet c.quiet a.close b.close c.close c.failed b.failed a.failed");
}

static void cannot_reopen(void) {
    begin();
    struct noted a = rail("a"), b = rail("b");
    ckpt_endpoint *e;
    ckpt_error error = {.size = sizeof error};
    add_rail(&a, 5, CKPT_RAIL_ON_DEMAND), add_rail(&b, 4, 0);
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    a.reopen = CKPT_E_SYSTEM; // after it has added its endpoint
    SAME(embed_rails_reopen(&job, CKPT_WHY_RESTARTED, &error), 0);
    CHECK(elect(1) == &b.stat && b.stat.next == NULL);
    calls[0] = 0;
    SAME(route(3, &e, &error), CKPT_E_PEER);
    says(&error, "no route to process 3: a: broken: no device; b: no endpoint");
    SAME(ckpt_endpoint_add(&job.seen, &a.dynamic), CKPT_E_STATE);
    // A broken rail is not closed, but opened with those of the other processes.
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    WERE("b.quiet b.close");
    b.reopen = CKPT_E_PEER;
    SAME(embed_rails_reopen(&job, CKPT_WHY_CONTINUED, &error), CKPT_E_PEER);
    says(&error, "no rail could be opened: b: no device; a: no device");
    WERE("b.continued a.continued");
    CHECK(elect(1) == NULL);
    a.reopen = b.reopen = 0;
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    SAME(embed_rails_reopen(&job, CKPT_WHY_CONTINUED, &error), 0);
    WERE("b.continued a.continued");
    CHECK(elect(1) == &a.stat && a.stat.next == &b.stat);
}

static void lazy(void) {
    begin();
    struct noted a = rail("a"), b = rail("b");
    ckpt_endpoint *e;
    add_rail(&a, 5, CKPT_RAIL_LAZY | CKPT_RAIL_ON_DEMAND), add_rail(&b, 4, CKPT_RAIL_LAZY);
    for (int i = 0; i < 2; i++) {
        // Nobody needs them between the two checkpoints; a restart is not forgotten over one that continues.
        CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
        WERE(i == 0 ? "a.quiet b.quiet a.close b.close" : "");
        SAME(route(3, &e, NULL), CKPT_E_AGAIN); // not in a checkpoint
        SAME(embed_rails_reopen(&job, i == 0 ? CKPT_WHY_RESTARTED : CKPT_WHY_CONTINUED, NULL), 0);
        WERE("");
    }
    CHECK(elect(1) == NULL);
    SAME(route(1, &e, NULL), 0);
    CHECK(e == &a.stat);
    WERE("a.restarted");
    SAME(route(2, &e, NULL), 0);
    WERE("a.connect 2");
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    WERE("a.quiet a.close");
    SAME(embed_rails_reopen(&job, CKPT_WHY_CONTINUED, NULL), 0);
    b.add = false, a.reopen = CKPT_E_SYSTEM;
    ckpt_error error;
    SAME(route(1, &e, &error), CKPT_E_PEER);
    says(&error, "no route to process 1: a: broken: no device; b: no endpoint");
    WERE("a.continued b.restarted");
    // A lazy rail that is broken is due again after the next one.
    a.reopen = 0;
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    SAME(embed_rails_reopen(&job, CKPT_WHY_FAILED, NULL), 0);
    WERE("b.quiet b.close");
    // Another process asks for an endpoint: the rail opens itself, and what was learned is forgotten.
    a.rail->peer[4] = PEER_NEVER;
    SAME(ckpt_endpoint_add(&job.seen, &a.dynamic), 0);
    CHECK(elect(2) == &a.dynamic && a.rail->state == OPEN);
    a.dynamic.process = 3, a.inside = NULL;
    SAME(route(4, &e, NULL), CKPT_E_PEER); // an endpoint to another process is none
    WERE("a.connect 4 b.failed");
    SAME(ckpt_rail_unregister(&job.seen, b.rail), 0);
}

// ---- connects that meet ----

static ckpt_endpoint crossed;
static int nested;

static void other_side_first(struct noted *n) {
    crossed = n->dynamic;
    SAME(ckpt_endpoint_add(&job.seen, &crossed), 0);
}
static void lists_itself(struct noted *n) { SAME(ckpt_endpoint_add(&job.seen, &n->dynamic), 0); }
static void hears_of_it(struct noted *n) {
    other_side_first(n);
    SAME(ckpt_endpoint_add(&job.seen, &n->dynamic), CKPT_E_STATE);
}
static void others_ask(struct noted *n) {
    ckpt_endpoint *e;
    (void)n;
    nested = route(2, &e, NULL); // as another task would, while connect has switched
}
static void signal_brings_it(void) {
    note("signal");
    SAME(ckpt_endpoint_add(&job.seen, &crossed), 0);
}

static void connects(void) {
    ckpt_endpoint *e;
    struct noted a = rail("a");
    static void (*const insides[])(struct noted *) = {NULL, other_side_first, lists_itself, hears_of_it,
                                                      others_ask};
    for (int i = 0; i < 5; i++) {
        begin();
        add_rail(&a, 5, CKPT_RAIL_ON_DEMAND);
        a.inside = insides[i];
        SAME(route(2, &e, NULL), 0);
        CHECK(e == (i == 1 || i == 3 ? &crossed : &a.dynamic) && elect(2) == e && e->next == NULL);
        WERE("a.connect 2"); // one connect at a time
        if (i == 4) SAME(nested, CKPT_E_AGAIN);
    }
    // While one is being made the other side's comes, by a signal that ckpt_route looks for.
    begin();
    add_rail(&a, 5, CKPT_RAIL_ON_DEMAND);
    a.inside = NULL, a.connect = CKPT_E_AGAIN;
    SAME(route(2, &e, NULL), CKPT_E_AGAIN);
    CHECK(elect(2) == NULL);
    crossed = a.dynamic, handler = signal_brings_it, tables.attention = CKPT_ATTEND_SIGNAL;
    SAME(route(2, &e, NULL), 0);
    CHECK(e == &crossed && elect(2) == &crossed);
    WERE("a.connect 2 signal");
    SAME(ckpt_endpoint_add(&job.seen, &a.dynamic), CKPT_E_STATE); // the second one
    // A checkpoint that is asked for is the runtime's to look for.
    tables.attention = CKPT_ATTEND_CHECKPOINT, a.connect = CKPT_E_NOTSUP;
    SAME(route(3, &e, NULL), CKPT_E_PEER);
    SAME(route(3, &e, NULL), CKPT_E_PEER);
    WERE("a.connect 3");
    tables.attention = 0;
    // Open again, it is asked again.
    CHECK(embed_rails_quiet(&job, NULL) == 1 && embed_rails_close(&job, NULL) == 0);
    SAME(embed_rails_reopen(&job, CKPT_WHY_CONTINUED, NULL), 0);
    calls[0] = 0;
    SAME(route(3, &e, NULL), CKPT_E_PEER);
    WERE("a.connect 3");
}

// A sentence that is longer than an error has room for is cut.
static void long_sentence(void) {
    begin();
    char name[60];
    ckpt_rail_ops ops = {.size = sizeof ops, .name = name, .flags = CKPT_RAIL_CHECKPOINTABLE};
    for (int i = 0; i < 40; i++) {
        ckpt_rail *r;
        snprintf(name, sizeof name, "a-rail-with-quite-a-long-name-%02d", i);
        SAME(ckpt_rail_register(&job.seen, &ops, NULL, &r, NULL), 0);
    }
    ckpt_endpoint *e;
    ckpt_error error;
    SAME(route(3, &e, &error), CKPT_E_PEER);
    SAME(strlen(error.message), sizeof error.message - 1);
    struct {
        size_t size;
        int code;
        char message[12];
    } small = {.size = sizeof small};
    SAME(ckpt_route(&job.seen, 3, 8, CKPT_MSG_EAGER, &e, (ckpt_error *)&small), CKPT_E_PEER);
    CHECK(strcmp(small.message, "no route to") == 0);
}

int main(int argc, char **argv) {
    int elections = 0;
    for (int i = 1; i < argc; i++) elections += play_file(argv[i]);
    if (argc > 1) {
        printf("%d elections\n", elections);
        return 0;
    }
    registers();
    endpoints();
    descriptors();
    succeeds();
    refused();
    given_up();
    cannot_reopen();
    lazy();
    connects();
    long_sentence();
    begin();
    static const char *const files[] = {"order", "demand", "states"};
    for (int i = 0; i < 3; i++) {
        char name[100];
        snprintf(name, sizeof name, "rails/testdata/%s.txt", files[i]);
        elections += play_file(name);
    }
    CHECK(elections > 50);
    printf("rails: %d elections of scenarios\n", elections);
    return 0;
}
