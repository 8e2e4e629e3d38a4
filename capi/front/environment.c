// SPDX-License-Identifier: Apache-2.0
//
// environment.c: MPI_INFO_ENV says how the program was started.  Open MPI fills it in; MPICH leaves it empty before 5,
// and then says the command.
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "front/front.h"

static char **arguments;

// The arguments are kept here, since /proc/self/cmdline has those of ckptrun.
__attribute__((constructor)) static void remember(int argc, char **argv) {
    (void)argc;
    arguments = argv;
}

static void fill_command(MPI_Info env, int whole) {
    char text[MPI_MAX_INFO_VAL];
    if (arguments == NULL || arguments[0] == NULL) return;
    const char *slash = whole ? NULL : strrchr(arguments[0], '/');
    PMPI_Info_set(env, "command", slash ? slash + 1 : arguments[0]);
    size_t n = 0;
    for (char **a = arguments + 1; *a != NULL && n < sizeof text; a++)
        n += (size_t)snprintf(text + n, sizeof text - n, n ? " %s" : "%s", *a);
    if (n > 0) PMPI_Info_set(env, "argv", text);
}

static void fill_job(MPI_Info env, int level) {
    static const char *const levels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                         "MPI_THREAD_MULTIPLE"};
    char text[MPI_MAX_INFO_VAL];
    struct utsname machine;
    int ranks;
    PMPI_Comm_size(out_comm(VID_COMM_WORLD), &ranks);
    snprintf(text, sizeof text, "%d", ranks);
    PMPI_Info_set(env, "maxprocs", text);
    PMPI_Info_set(env, "soft", text);
    if (uname(&machine) == 0) {
        PMPI_Info_set(env, "host", machine.nodename);
        PMPI_Info_set(env, "arch", machine.machine);
    }
    if (getcwd(text, sizeof text) != NULL) PMPI_Info_set(env, "wdir", text);
    if (level >= 0 && level < 4) PMPI_Info_set(env, "thread_level", levels[level]);
}

void front_info_environment(int level) {
    const struct front_words w = front_words();
    MPI_Info env;
    PMPI_Info_create(&env);
    if (!w.mpich || w.release >= RELEASE(5, 0)) fill_command(env, w.release >= RELEASE(5, 0));
    if (!w.mpich) fill_job(env, level);
    front_info_env = in_info_vid(env);
}
