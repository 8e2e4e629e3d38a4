// SPDX-License-Identifier: Apache-2.0
//
// Bytes that are no threads: each byte of a sample changed, each length of it, and random changes of many.
// threads_check reads nothing but the bytes, and what it lets through has the form that threads_load needs.
#include "threads/check.c"

#include "test.h"

static void try(const uint8_t *bytes, size_t n) {
    char why[300] = "";
    void *copy = malloc(n ? n : 1); // of this size, so that reading behind it is seen
    memcpy(copy, bytes, n);
    if (threads_check(copy, n, why, sizeof why)) {
        CHECK(why[0] != 0);
    } else {
        const struct process_image *p = copy;
        size_t at = threads_begin(p), mains = 0, count = 0;
        CHECK(at <= n);
        for (; at < n; count++) {
            const struct thread_image *im = (const void *)((const char *)copy + at);
            CHECK(n - at >= sizeof *im && im->bytes >= sizeof *im && im->bytes <= n - at &&
                  im->bytes % 8 == 0);
            mains += im->main != 0;
            at += im->bytes;
        }
        CHECK(at == n && mains <= 1 && (!threads_spent(p) || threads_spent(p)->threads == count));
    }
    free(copy);
}

static void all(unsigned timers, int spent) {
    static uint8_t sample[1 << 16], changed[1 << 16];
    size_t n = sample_threads(sample, sizeof sample, timers, spent);
    char why[300];
    CHECK(n > 0 && threads_check(sample, n, why, sizeof why) == 0);
    for (size_t i = 0; i <= n; i++) try(sample, i);
    for (size_t i = 0; i < n; i++)
        for (int v = 0; v < 4; v++) {
            static const uint8_t with[] = {0, 1, 0x80, 0xff};
            memcpy(changed, sample, n);
            changed[i] = with[v];
            try(changed, n);
        }
    for (int k = 0; k < 20000; k++) {
        memcpy(changed, sample, n);
        // Behind the head, which is soon not one.
        for (uint64_t m = 1 + below(8); m; m--)
            changed[sizeof(struct process_image) + below(n - sizeof(struct process_image))] =
                (uint8_t)below(256);
        try(changed, n);
    }
    printf("threads_check: a sample of %zu bytes\n", n);
}

int main(void) {
    all(0, 0);
    all(2, 0);
    all(0, 1);
    all(2, 1);
    return 0;
}
