// SPDX-License-Identifier: Apache-2.0
//
// info.h: the content of an info, as fronts keep it and backs are told: key NUL value NUL ... NUL.
#ifndef CKPT_CANON_INFO_H
#define CKPT_CANON_INFO_H

#include <stddef.h>
#include <string.h>

// The key behind this one and its value; empty at the end.
static inline const char *info_next(const char *key) {
    key += strlen(key) + 1;
    return key + strlen(key) + 1;
}

// Bytes of a content, its last NUL included; 0 for NULL.
static inline size_t info_bytes(const char *content) {
    const char *p = content;
    if (content == NULL) return 0;
    while (*p) p = info_next(p);
    return (size_t)(p - content) + 1;
}

// The same of max bytes that came from elsewhere, behind which there is a NUL: 0 when they are no content.
static inline size_t info_bytes_within(const char *content, size_t max) {
    size_t n = 0;
    while (n < max && content[n] != 0) {
        n += strlen(content + n) + 1;              // key
        if (n < max) n += strlen(content + n) + 1; // value
    }
    return n < max ? n + 1 : 0;
}

// Where the key stands in a content; NULL: nowhere, or no content.
static inline const char *info_key(const char *content, const char *key) {
    for (const char *p = content; p != NULL && *p; p = info_next(p))
        if (strcmp(p, key) == 0) return p;
    return NULL;
}

// The value of the key; NULL: there is no such key.
static inline const char *info_value(const char *content, const char *key) {
    const char *at = info_key(content, key);
    return at != NULL ? at + strlen(at) + 1 : NULL;
}

#endif
