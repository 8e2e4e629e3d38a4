// SPDX-License-Identifier: Apache-2.0
//
// pmix_abi.h: what pmix.c uses of the binary interface of PMIx, which its standard fixes: libpmix.so.2 may be of any
// version from 3 on.  libckpt is built without PMIx's headers; a test compares with them where they are installed.
#ifndef CKPT_PMIX_ABI_H
#define CKPT_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ABI_SUCCESS = 0,
    ABI_BOOL = 1,         // pmix_data_type_t
    ABI_UINT32 = 14,      //
    ABI_BYTE_OBJECT = 27, //
    ABI_GLOBAL = 3,       // pmix_scope_t
};

#define ABI_RANK_WILDCARD (UINT32_MAX - 1)
#define ABI_JOB_SIZE "pmix.job.size"
#define ABI_COLLECT_DATA "pmix.collect"

struct abi_proc {
    char nspace[256];
    uint32_t rank;
};

struct abi_bytes {
    char *bytes;
    size_t size;
};

struct abi_value {
    uint16_t type;
    union {
        bool flag;
        uint32_t uint32;
        struct abi_bytes bo;
        char *most[3]; // the largest of the members that are not used here: pmix_envar_t
    } data;
};

struct abi_info {
    char key[512];
    uint32_t flags;
    struct abi_value value;
};

#endif
