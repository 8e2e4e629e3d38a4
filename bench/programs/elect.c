// SPDX-License-Identifier: Apache-2.0
//
// elect: what does the election of a rail cost a message?
//
//     elect BATCHES
//
// Three rails, each with an endpoint to every process and a gate, as a runtime's are.  A message takes the first,
// second or last of them by its size; processes take turns, so that each election reads another list.
#include "../../capi/embed/rails.c"
#include "../../capi/embed/say.c"
#include "../../capi/embed/signals.h"

#include "measure.h"

// Not on the way of an election.
int embed_ignore_fd(struct embed_job *job, int fd, bool on) { return (void)job, (void)fd, (void)on, 0; }
int ckpt_attend(ckpt_job *job) { return (void)job, 0; }
void embed_signals_take(struct embed_job *job) { (void)job; }

enum { PROCESSES = 64, RAILS = 3 };

static int processes(void *ctx) { return (void)ctx, PROCESSES; }
static int nothing(void *ctx) { return (void)ctx, 0; }
static int reopens(void *ctx, int why) { return (void)ctx, (void)why, 0; }

struct network {
    size_t least;
    ckpt_rail *rail;
    ckpt_endpoint endpoint[PROCESSES];
};
static int gate(void *ctx, size_t bytes, int kind) {
    return bytes >= ((const struct network *)ctx)->least && (kind & CKPT_MSG_RMA) == 0;
}

// As a runtime's send: not to be folded into the loop around it.
__attribute__((noipa)) static ckpt_endpoint *send_over(const ckpt_job *job, int process, size_t bytes) {
    return ckpt_elect(job, process, bytes, CKPT_MSG_EAGER);
}
__attribute__((noipa)) static ckpt_endpoint *empty(const ckpt_job *job, int process, size_t bytes) {
    __asm__ volatile("" : : "r"(job), "r"(bytes));
    return process < 0 ? (ckpt_endpoint *)(uintptr_t)job : NULL;
}

int main(int argc, char **argv) {
    static struct embed_job job;
    static struct network network[RAILS] = {{.least = 1 << 20}, {.least = 4096}, {.least = 0}};
    job.ops.size = sizeof job.ops;
    job.ops.ranks = processes;
    for (int r = 0; r < RAILS; r++) {
        struct network *n = &network[r];
        ckpt_rail_ops ops = {.size = sizeof ops,
                             .name = "rail",
                             .priority = RAILS - r,
                             .gate = gate,
                             .close = nothing,
                             .reopen = reopens};
        DEMAND(ckpt_rail_register(&job.seen, &ops, n, &n->rail, NULL) == 0);
        for (int p = 0; p < PROCESSES; p++) {
            n->endpoint[p] = (ckpt_endpoint){.rail = n->rail, .process = p};
            DEMAND(ckpt_endpoint_add(&job.seen, &n->endpoint[p]) == 0);
        }
    }
    struct measure m = measure_begin(argc, argv);
    const size_t bytes[RAILS] = {2 << 20, 8192, 64};
    static const char *const names[RAILS] = {"the first rail", "the second rail", "the third rail"};
    for (int r = 0; r < RAILS; r++)
        for (int p = 0; p < PROCESSES; p++)
            DEMAND(send_over(&job.seen, p, bytes[r]) == &network[r].endpoint[p]);
    int none = 0;
    MEASURE(&m, "a call that elects nothing", 1000, none += empty(&job.seen, call_ % PROCESSES, 64) == NULL);
    DEMAND(none != 0);
    none = 0;
    for (int r = 0; r < RAILS; r++)
        MEASURE(&m, names[r], 1000, none += send_over(&job.seen, call_ % PROCESSES, bytes[r]) == NULL);
    DEMAND(none == 0);
    return 0;
}
