// SPDX-License-Identifier: Apache-2.0
//
// fs LIBRARY...: loads each library and prints what of its code would be changed: for each instruction that
// addresses memory through FS, but for those of stack protectors, the address of its prefix in the file.
// The line "unknown NAME" says that the library's code is not understood.
#define _GNU_SOURCE
#include "../../../fs_code.h"

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        struct link_map *m;
        void *lib = dlopen(argv[i], RTLD_LAZY);
        if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &m)) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        struct object o;
        struct found found = {0};
        printf("object %s\n", argv[i]);
        if (!object_read(m, &o) || !object_scan(&o, &found)) printf("unknown %s\n", argv[i]);
        for (size_t k = 0; k < found.count; k++) printf("%lx\n", (uint64_t)found.at[k] - o.base);
    }
    return 0;
}
