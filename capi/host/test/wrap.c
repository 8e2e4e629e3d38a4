// SPDX-License-Identifier: Apache-2.0
//
// What a program that the program starts is given: its environment and arguments, and what ckptrun takes out of
// them again.
#include "../wrap.c"

#include "test.h"

struct host host;

_Noreturn void die(int status, const char *format, ...) {
    printf("die: %s\n", format);
    exit(status ? status : 1);
}
// The launcher's descriptor 7 is 300 here.
int fds_launcher(struct call *c, const char *entry) {
    (void)c;
    return !strcmp(entry, "PMI_FD=7") ? 300 : -1;
}

static void is_list(char *const *got, const char *const *want) {
    size_t i = 0;
    for (; got[i] && want[i]; i++)
        if (strcmp(got[i], want[i])) {
            printf("entry %zu is %s, expected %s\n", i, got[i], want[i]);
            exit(1);
        }
    CHECK(!got[i] && !want[i]);
}

#define LIBRARY "/opt/lib/ckpt/enter.so"
#define ENTER "CKPT_ENTER=/opt/bin/ckptrun\x1f--dir\x1f/d\x1f"

static void outfit_is(char *const *envp, const char *const *want) {
    struct outfit o = {0};
    char **e = wrap_environment(NULL, envp, &o);
    CHECK(e);
    is_list(e, want);
    wrap_free(&o);
    CHECK(!o.at);
}

static void leaving(void) {
    char *env[] = {"A=1", "PMI_FD=7", "LD_PRELOAD=/x.so", NULL};
    host.launched = true;
    outfit_is(env, (const char *const[]){"A=1", "PMI_FD=300", "LD_PRELOAD=/x.so:" LIBRARY, ENTER, NULL});
    char *empty[] = {"LD_PRELOAD=", "CKPT_ENTER=old", NULL};
    outfit_is(empty, (const char *const[]){"LD_PRELOAD=" LIBRARY, ENTER, NULL});
    char *twice[] = {"LD_PRELOAD=/x.so", "LD_PRELOAD=/y.so", NULL};
    outfit_is(twice, (const char *const[]){"LD_PRELOAD=/x.so:" LIBRARY, "LD_PRELOAD=/y.so", ENTER, NULL});
    outfit_is(NULL, (const char *const[]){"LD_PRELOAD=" LIBRARY, ENTER, NULL});
    host.mpi = true; // the MPI program is found: what it starts is none
    outfit_is(env, (const char *const[]){"A=1", "PMI_FD=300", "LD_PRELOAD=/x.so", ENTER, NULL});
    host.mpi = false;

    struct outfit o = {0};
    char *argv[] = {"name", "-x", NULL};
    const char *want[] = {"/opt/bin/ckptrun", "--dir", "/d", "--argv0", "name", "--", "/p", "-x", NULL};
    is_list(wrap_arguments("/p", argv, &o), want);
    wrap_free(&o);
    want[4] = "";
    want[7] = NULL;
    is_list(wrap_arguments("/p", NULL, &o), want);
    wrap_free(&o);
}

static void arrives(const char *preload, const char *left, bool with) {
    char *list = NULL, *env[4] = {"A=1", NULL};
    int n = 1;
    if (preload) {
        setenv("LD_PRELOAD", preload, 1);
        list = malloc(strlen(preload) + 12);
        CHECK(list);
        sprintf(list, "LD_PRELOAD=%s", preload);
        env[n++] = list;
    }
    if (with) env[n++] = ENTER;
    SAME(wrap_arrived(env), with);
    CHECK(!strcmp(env[0], "A=1"));
    if (left) {
        CHECK(!strncmp(env[1], "LD_PRELOAD=", 11) && !strcmp(env[1] + 11, left) && !env[2]);
        CHECK(!strcmp(getenv("LD_PRELOAD"), left));
    } else {
        CHECK(!env[1]);
        CHECK(!preload || !getenv("LD_PRELOAD"));
    }
    free(list);
}

int main(void) {
    char *again[] = {"--dir", "/d", NULL};
    host.libdir = "/opt/lib";
    host.ckptrun = "/opt/bin/ckptrun";
    host.again = again;
    arrives(NULL, NULL, false);
    arrives(LIBRARY, NULL, true);
    arrives("/x.so:" LIBRARY, "/x.so", true);
    arrives(LIBRARY " /x.so", "/x.so", true);
    arrives("/x.so:" LIBRARY ":/y.so", "/x.so:/y.so", true);
    arrives("/x.so:/y" LIBRARY, "/x.so:/y" LIBRARY, false); // another one
    arrives(LIBRARY ":" LIBRARY, NULL, true);
    wrap_begin();
    leaving();
    host.libdir = "/with space"; // cannot be named in a list
    name_library();
    char *env[] = {"A=1", NULL};
    outfit_is(env, (const char *const[]){"A=1", ENTER, NULL});
    free(variable);
    printf("wrap: good\n");
    return 0;
}
