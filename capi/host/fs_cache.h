// SPDX-License-Identifier: Apache-2.0
//
// fs_cache.h: where the code of objects addresses memory through FS, kept from one start to the next.
//
// Owns: the folder of the user in which this is kept, and the form of its files.
// May not know: how instructions are found, what is done with them.
#ifndef CKPT_FS_CACHE_H
#define CKPT_FS_CACHE_H

#include "fs_code.h"

struct fs_cache {
    int folder;         // -1: there is none
    uint64_t finder[4]; // the build of the program that finds instructions
    unsigned finder_bytes;
};

// Finds out where the folder may be: $CKPT_CODE_CACHE, of which "none" means nowhere, $XDG_CACHE_HOME/libckpt,
// $TMPDIR/libckpt-UID, /tmp/libckpt-UID.  To be called once, while there is one thread.
void fs_cache_begin(void);

// Opens the folder for the objects of one moment.  self is the program that finds instructions: what another
// build of it has found is not used.  None of these functions uses thread-local storage or the allocator,
// and none fails: without a folder nothing is found and nothing kept.
void fs_cache_open(struct fs_cache *c, const struct link_map *self);
void fs_cache_close(struct fs_cache *c);

// What tells one content of a file from another.  bytes is 0 where the file does not tell.
struct fs_key {
    uint64_t words[18];
    unsigned bytes;
    bool settled; // nobody has changed the file in the last moments
    char name[20];
};

// To be called before the object is looked through, for a file that changes meanwhile is then known as it was.
void fs_cache_key(const struct fs_cache *c, const struct link_map *m, const struct object *o,
                  struct fs_key *key);

// Called with the places of an entry, all of them in segments of code, before anything has looked at them.
typedef void places_own(const struct object *o, const struct found *places);

// True: found is what object_scan finds.  Else found is empty.  own may be NULL.
bool fs_cache_get(const struct fs_cache *c, const struct fs_key *key, const struct object *o, places_own *own,
                  struct found *found);

// Keeps what object_scan has found.
void fs_cache_put(const struct fs_cache *c, const struct fs_key *key, const struct object *o,
                  const struct found *found);

#endif
