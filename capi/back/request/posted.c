// SPDX-License-Identifier: Apache-2.0
//
// posted.c: the memory for what receives were posted with, in pages by the index of their requests.
#include <stdlib.h>

#include "back/request/posted.h"

struct posted *back_posted_pages[CKPT_PAGES];
uint64_t back_posted_serial;

struct posted *back_posted_page(uint32_t page) {
    struct posted *fresh = calloc(CKPT_PAGE_SLOTS, sizeof *fresh), *none = NULL;
    if (fresh != NULL && !__atomic_compare_exchange_n(&back_posted_pages[page], &none, fresh, 0,
                                                      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        free(fresh);
    return back_posted_pages[page];
}
