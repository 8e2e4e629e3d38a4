// SPDX-License-Identifier: Apache-2.0
//
// jobs.c: communication with processes of other jobs: jobs that this one starts, and jobs that this
// one meets at a port.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

// Makes a call that makes a communicator from parent; v is where the back put its id.
static int made(unsigned fn, ckpt_vid parent, const void *a, const ckpt_vid *v, MPI_Comm *newcomm) {
    long rc = front_call(fn, a);
    if (rc != 0) return front_error(FRONT_COMM, parent, fn, rc);
    *newcomm = front_comm_made(parent, *v);
    return MPI_SUCCESS;
}

// ---- starting processes ----

// The arguments that describe the programs count on the root only.
static int spawn(unsigned fn, int count, char **commands, char ***argvs, const int *maxprocs,
                 const MPI_Info *infos, int root, MPI_Comm comm, MPI_Comm *intercomm, int *errcodes) {
    int rank = -1;
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const ckpt_slot *s = front_slot(fn, CKPT_KIND_COMM, parent);
    if (!front_is_null(CKPT_KIND_COMM, s)) rank = s->rank;
    if (rank != root) count = 0;
    const char **contents = front_alloc((size_t)(count > 0 ? count : 1) * sizeof *contents);
    for (int i = 0; i < count; i++) contents[i] = in_info(infos[i]);
    const struct Comm_spawn_words a = {.count = count,
                                       .commands = commands,
                                       .argvs = argvs,
                                       .maxprocs = maxprocs,
                                       .infos = contents,
                                       .root = root,
                                       .comm = parent,
                                       .intercomm = &v,
                                       .errcodes = errcodes,
                                       .abi = FRONT_ABI_NAME};
    int rc = made(fn, parent, &a, &v, intercomm);
    free(contents);
    for (int i = 0; rc != MPI_SUCCESS && errcodes != NULL && i < count; i++)
        for (int k = 0; k < maxprocs[i]; k++, errcodes++) *errcodes = front_code(*errcodes);
    return rc;
}

FRONT(int, Comm_spawn,
      (const char *command, char **argv, int maxprocs, MPI_Info info, int root, MPI_Comm comm,
       MPI_Comm *intercomm, int *errcodes)) {
    char *commands[] = {(char *)command};
    return spawn(CKPT_FN_MPI_COMM_SPAWN, 1, commands, argv ? &argv : NULL, &maxprocs, &info, root, comm,
                 intercomm, errcodes);
}

FRONT(int, Comm_spawn_multiple,
      (int count, char **commands, char ***argvs, const int *maxprocs, const MPI_Info *infos, int root,
       MPI_Comm comm, MPI_Comm *intercomm, int *errcodes)) {
    return spawn(CKPT_FN_MPI_COMM_SPAWN_MULTIPLE, count, commands, argvs, maxprocs, infos, root, comm,
                 intercomm, errcodes);
}

// Each call must return the same handle of the communicator, so the back remembers its id.
FRONT(int, Comm_get_parent, (MPI_Comm * parent)) {
    ckpt_vid v = VID_COMM_NULL;
    const struct Comm_get_parent_words a = {.parent = &v};
    long rc = front_call(CKPT_FN_MPI_COMM_GET_PARENT, &a);
    if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_COMM_GET_PARENT, rc);
    *parent = CKPT_VID_INDEX(v) ? out_comm(v) : MPI_COMM_NULL;
    return MPI_SUCCESS;
}

// ---- ports ----

// Names of ports are as long as the real MPI makes them.
enum { PORT_BYTES = 4096 };

static int port_out(unsigned fn, const char *port, char *out, int class) {
    size_t n = strlen(port);
    if (n >= MPI_MAX_PORT_NAME) return front_error(FRONT_COMM, VID_COMM_WORLD, fn, class);
    memcpy(out, port, n + 1);
    return MPI_SUCCESS;
}

FRONT(int, Open_port, (MPI_Info info, char *port_name)) {
    char port[PORT_BYTES] = "";
    const struct Open_port_words a = {.info = in_info(info), .port_name = port};
    long rc = front_call(CKPT_FN_MPI_OPEN_PORT, &a);
    if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_OPEN_PORT, rc);
    return port_out(CKPT_FN_MPI_OPEN_PORT, port, port_name, CANON_ERRCLASS_ERR_PORT);
}

FRONT(int, Lookup_name, (const char *service_name, MPI_Info info, char *port_name)) {
    char port[PORT_BYTES] = "";
    const struct Lookup_name_words a = {
        .service_name = service_name, .info = in_info(info), .port_name = port};
    long rc = front_call(CKPT_FN_MPI_LOOKUP_NAME, &a);
    if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_LOOKUP_NAME, rc);
    return port_out(CKPT_FN_MPI_LOOKUP_NAME, port, port_name, CANON_ERRCLASS_ERR_NAME);
}

// A published name and what is kept with it, in one block.
static ckpt_mpi_name *name_new(const char *service, const char *info, const char *port) {
    size_t s = strlen(service) + 1, p = strlen(port) + 1, i = info_bytes(info);
    ckpt_mpi_name *name = front_alloc(sizeof *name + s + p + i);
    char *text = (char *)(name + 1);
    name->service = memcpy(text, service, s);
    name->port = memcpy(text + s, port, p);
    if (info) name->info = memcpy(text + s + p, info, i);
    return name;
}

FRONT(int, Publish_name, (const char *service_name, MPI_Info info, const char *port_name)) {
    ckpt_mpi_name *name = name_new(service_name, in_info(info), port_name);
    const struct Publish_name_words a = {.name = name};
    long rc = front_call(CKPT_FN_MPI_PUBLISH_NAME, &a);
    if (rc == 0) return MPI_SUCCESS;
    free(name);
    return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_PUBLISH_NAME, rc);
}

FRONT(int, Unpublish_name, (const char *service_name, MPI_Info info, const char *port_name)) {
    ckpt_mpi_name *gone = NULL;
    const struct Unpublish_name_words a = {
        .service_name = service_name, .info = in_info(info), .port_name = port_name, .gone = &gone};
    long rc = front_call(CKPT_FN_MPI_UNPUBLISH_NAME, &a);
    free(gone);
    if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_UNPUBLISH_NAME, rc);
    return MPI_SUCCESS;
}

// The name of the port counts on the root only.
static int meet(unsigned fn, const char *port_name, MPI_Info info, int root, MPI_Comm comm,
                MPI_Comm *newcomm) {
    ckpt_vid parent = in_comm(comm), v = VID_COMM_NULL;
    const struct Comm_accept_words a = {
        .port_name = port_name, .info = in_info(info), .root = root, .comm = parent, .newcomm = &v};
    return made(fn, parent, &a, &v, newcomm);
}

FRONT(int, Comm_accept, (const char *port_name, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)) {
    return meet(CKPT_FN_MPI_COMM_ACCEPT, port_name, info, root, comm, newcomm);
}

FRONT(int, Comm_connect, (const char *port_name, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)) {
    return meet(CKPT_FN_MPI_COMM_CONNECT, port_name, info, root, comm, newcomm);
}

FRONT(int, Comm_join, (int fd, MPI_Comm *intercomm)) {
    ckpt_vid v = VID_COMM_NULL;
    const struct Comm_join_words a = {.fd = fd, .intercomm = &v};
    return made(CKPT_FN_MPI_COMM_JOIN, VID_COMM_SELF, &a, &v, intercomm);
}
