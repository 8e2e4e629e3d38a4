// SPDX-License-Identifier: Apache-2.0
//
// cache LIBRARY...: loads each library and prints, as fs.c does, what of its code would be changed, and with
// "kept" or "looked through" how that was known.  The folder is that of $CKPT_CODE_CACHE.
//
// cache forge LIBRARY: keeps an entry that is right but for one more place, in the middle of an instruction, and
// one that is right but for its order; prints what was used.
#define _GNU_SOURCE
#include "../../../fs_cache.c"

#include <dlfcn.h>
#include <stdio.h>

static struct fs_cache cache;

static struct object load(const char *path, struct link_map **m) {
    void *lib = dlopen(path, RTLD_LAZY);
    struct object o;
    if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, m) || !object_read(*m, &o)) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return o;
}

static size_t owned;

static void own(const struct object *o, const struct found *places) {
    for (size_t i = 0; i < places->count; i++)
        if (!object_has_code(o, places->at[i])) exit(2);
    owned += places->count;
}

// What the cache says of an entry, and whether the pages of all its places were asked for before that.
static void used(const char *what, const struct fs_key *key, const struct object *o, size_t places) {
    struct found got;
    owned = 0;
    bool is = fs_cache_get(&cache, key, o, own, &got);
    printf("%s: %d, own %s\n", what, is, owned == places ? "all" : owned ? "some" : "none");
    if (is) found_done(&got);
}

static void forge(const char *path) {
    struct link_map *m;
    struct object o = load(path, &m);
    struct fs_key key;
    struct found right = {0}, got;
    fs_cache_key(&cache, m, &o, &key);
    key.settled = true; // as if time had passed
    if (!key.bytes || !object_scan(&o, &right) || right.count < 2) exit(1);
    fs_cache_put(&cache, &key, &o, &right);
    used("right", &key, &o, right.count);
    uint8_t *first = right.at[0];
    right.at[0] = first + 1;
    fs_cache_put(&cache, &key, &o, &right);
    used("no prefix", &key, &o, right.count);
    right.at[0] = (uint8_t *)o.base + 64; // the headers
    fs_cache_put(&cache, &key, &o, &right);
    used("no code", &key, &o, right.count);
    right.at[0] = right.at[1];
    fs_cache_put(&cache, &key, &o, &right);
    used("twice", &key, &o, right.count);
    right.at[0] = first;
    for (int i = 0; i < 18; i++) { // about another file
        struct fs_key other = key;
        other.words[i] ^= 1;
        fs_cache_put(&cache, &other, &o, &right);
        if (fs_cache_get(&cache, &key, &o, NULL, &got)) printf("word %d does not matter\n", i);
    }
}

int main(int argc, char **argv) {
    struct link_map *self;
    if (dlinfo(dlopen(NULL, RTLD_LAZY), RTLD_DI_LINKMAP, &self)) return 1;
    fs_cache_begin();
    fs_cache_open(&cache, self);
    if (argc > 2 && !strcmp(argv[1], "forge")) {
        forge(argv[2]);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        struct link_map *m;
        struct object o = load(argv[i], &m);
        struct fs_key key;
        struct found found;
        fs_cache_key(&cache, m, &o, &key);
        bool kept = fs_cache_get(&cache, &key, &o, NULL, &found);
        if (!kept) {
            if (!object_scan(&o, &found)) printf("unknown %s\n", argv[i]);
            fs_cache_put(&cache, &key, &o, &found);
        }
        printf("object %s\n%s\n", argv[i], kept ? "kept" : "looked through");
        for (size_t k = 0; k < found.count; k++) printf("%lx\n", (uint64_t)found.at[k] - o.base);
        found_done(&found);
    }
    fs_cache_close(&cache);
    return 0;
}
