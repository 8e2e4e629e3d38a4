// SPDX-License-Identifier: Apache-2.0
//
// copy.c: reads a section "messages" from standard input with what the backs read it with, and writes it
// again with what they write it with.  Status 1: it is damaged.
#include <stdio.h>
#include <stdlib.h>

#include "back/gen/zz_section.h"

static char from[1 << 20], to[1 << 20];
static struct in x = {.p = from};
static struct out o = {.p = to, .room = sizeof to};

static int64_t count(size_t words) {
    int64_t n = in_count(&x, words);
    if (x.failed) exit(1);
    out(&o, n);
    return n;
}

static void message(void) {
    struct saved_message m;
    in_message(&x, &m);
    if (x.failed) exit(1);
    out_message(&o, &m);
}

#define COPY(name)             \
    do {                       \
        struct saved_##name v; \
        in_##name(&x, &v);     \
        if (x.failed) exit(1); \
        out_##name(&o, &v);    \
    } while (0)

static void request(void) {
    struct saved_head h;
    in_head(&x, &h);
    if (x.failed) exit(1);
    out_head(&o, &h);
    switch (h.state) {
    case STATE_DONE:
        COPY(done);
        break;
    case STATE_AWAITED:
        COPY(awaited);
        break;
    case STATE_POSTED:
        COPY(posted);
        break;
    case STATE_DEFERRED:
        COPY(deferred);
        break;
    case STATE_GENERALIZED:
        COPY(upper);
        break;
    case STATE_COLL: {
        struct saved_coll c;
        in_coll(&x, &c);
        if (x.failed) exit(1);
        ckpt_vid *own = calloc(c.types.n + 1, sizeof *own);
        if (own == NULL) exit(2);
        for (size_t i = 0; i < c.types.n; i++) own[i] = (ckpt_vid)word_of(&c.types, i);
        c.own_types = own;
        out_coll(&o, &c);
        free(own);
    }
    }
    if (h.flags & SAVED_PERSISTENT) COPY(persistent);
}

int main(void) {
    x.left = fread(from, 1, sizeof from, stdin);
    int64_t version = in(&x);
    out(&o, version);
    for (int64_t n = count(WORDS_MESSAGE); n > 0; n--) message();
    for (int64_t n = count(1 + WORDS_MESSAGE); n > 0; n--) {
        out(&o, in_vid(&x, 1u << CKPT_KIND_MESSAGE));
        message();
    }
    for (int64_t n = count(WORDS_HEAD); n > 0; n--) request();
    if (version == SAVE_VERSION_CLAIMS)
        for (int64_t n = count(WORDS_CLAIM); n > 0; n--) {
            struct saved_claim c;
            in_claim(&x, &c);
            out_claim(&o, &c);
        }
    if (x.failed || x.left != 0) return 1;
    return fwrite(to, 1, o.n, stdout) == o.n ? 0 : 2;
}
