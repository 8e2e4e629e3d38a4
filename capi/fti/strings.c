// SPDX-License-Identifier: Apache-2.0
//
// strings.c: numbers of pieces that belong to names.  The names are saved as one more piece, which a program does not
// see: pairs of a number, of 4 bytes, and a text with its NUL.
#include <stdint.h>

#include "mpix_checkpoint.h"
#include "state.h"

struct name {
    int id;
    char *text;
};
static struct name *list;
static size_t names;
static char *table; // as it is saved

static struct name *find(const char *text) {
    for (size_t i = 0; i < names; i++)
        if (strcmp(list[i].text, text) == 0) return &list[i];
    return NULL;
}

static bool used(int id) {
    for (size_t i = 0; i < names; i++)
        if (list[i].id == id) return true;
    return fti_find(id) != NULL;
}

static bool add(int id, const char *text) {
    struct name *more = realloc(list, (names + 1) * sizeof *more);
    if (more == NULL) return false;
    list = more;
    if ((list[names].text = strdup(text)) == NULL) return false;
    list[names++].id = id;
    return true;
}

// Takes the names of the checkpoint that can be recovered, but for those that the program has given itself.
void strings_load(void) {
    size_t bytes = 0;
    if (MPIX_Checkpoint_saved(STRINGS_ID, &bytes) != 0 || bytes == 0) return;
    char *saved = malloc(bytes);
    if (saved == NULL) return;
    if (MPIX_Checkpoint_protect(STRINGS_ID, saved, bytes) == 0) {
        int r = MPIX_Checkpoint_recover_one(STRINGS_ID);
        MPIX_Checkpoint_unprotect(STRINGS_ID);
        for (size_t at = 0; r == 0 && at + sizeof(int32_t) < bytes;) {
            int32_t id;
            memcpy(&id, saved + at, sizeof id);
            at += sizeof id;
            size_t n = strnlen(saved + at, bytes - at);
            if (n == bytes - at) break;
            if (find(saved + at) == NULL && !add(id, saved + at)) break;
            at += n + 1;
        }
    }
    free(saved);
}

EXPORT int FTI_setIDFromString(const char *name) {
    BEGUN(FTI_NSCS);
    if (name == NULL || strlen(name) >= FTI_BUFS)
        return fti_fail(FTI_NSCS, "a name is NULL, or has more than %d characters", FTI_BUFS - 1);
    struct name *one = find(name);
    if (one != NULL) return one->id;
    int id = 0;
    while (used(id)) id++;
    return add(id, name) ? id : fti_fail(FTI_NSCS, "no memory");
}

EXPORT int FTI_getIDFromString(const char *name) {
    BEGUN(FTI_NSCS);
    struct name *one = name != NULL ? find(name) : NULL;
    return one != NULL ? one->id : -1;
}

bool strings_save(void) {
    size_t bytes = 0, at = 0;
    if (names == 0) return true;
    for (size_t i = 0; i < names; i++) bytes += sizeof(int32_t) + strlen(list[i].text) + 1;
    if ((table = malloc(bytes)) == NULL) return false;
    for (size_t i = 0; i < names; i++) {
        int32_t id = list[i].id;
        memcpy(table + at, &id, sizeof id);
        at += sizeof id;
        memcpy(table + at, list[i].text, strlen(list[i].text) + 1);
        at += strlen(list[i].text) + 1;
    }
    return MPIX_Checkpoint_protect(STRINGS_ID, table, bytes) == 0;
}

void strings_saved(void) {
    if (table == NULL) return;
    MPIX_Checkpoint_unprotect(STRINGS_ID);
    free(table);
    table = NULL;
}

void strings_end(void) {
    for (size_t i = 0; i < names; i++) free(list[i].text);
    free(list);
    list = NULL, names = 0;
}
