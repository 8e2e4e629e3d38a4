// SPDX-License-Identifier: Apache-2.0
//
// names.c: names that the program publishes.
//
// Published names live in a server outside of the job, which mostly ends with the job.  So the back lists the
// published names in upper-half memory, which images hold, and a restart publishes them again.  No thread is
// held for a checkpoint in these calls, so the list in an image is what the server had.
#include <stdio.h>

#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/names.h"
#include "back/object/comm.h"
#include "back/ports.h"

// The server gets the name that the port has below, for others who look it up.
static int publish(const ckpt_mpi_name *n) {
    MPI_Info info = back_info(n->info);
    int rc = MPI_Publish_name(n->service, info, back_port_now(n->port));
    back_info_done(&info);
    return rc;
}

// a name; its memory is the back's from then on
long back_Publish_name(const long *a) {
    ARGS(Publish_name) p = (const void *)a;
    ckpt_mpi_name *n = p->name;
    if (back_port_now(n->port) == NULL) return back_port_error(n->port);
    int rc = publish(n);
    if (rc == MPI_SUCCESS) {
        back_lock(LOCK_NAMES);
        n->next = back.state->names;
        back.state->names = n;
        back_unlock(LOCK_NAMES);
    }
    return back_error(rc);
}

// service, info, port, name out: the name that this rank gave to MPI_Publish_name, if this rank published it
long back_Unpublish_name(const long *a) {
    ARGS(Unpublish_name) p = (const void *)a;
    const char *port = back_port_now(p->port_name);
    if (port != NULL) { // else no server has it
        MPI_Info info = back_info(p->info);
        int rc = MPI_Unpublish_name(p->service_name, info, port);
        back_info_done(&info);
        if (rc != MPI_SUCCESS) return back_error(rc);
    }
    back_lock(LOCK_NAMES);
    ckpt_mpi_name **at = &back.state->names;
    while (*at != NULL && strcmp((*at)->service, p->service_name) != 0) at = &(*at)->next;
    ckpt_mpi_name *n = *at;
    if (n != NULL) *at = n->next;
    back_unlock(LOCK_NAMES);
    *p->gone = n;
    return 0;
}

// Looks at what a server that outlived the saved job still has.  0: the name leads to its port.
static int left(const ckpt_mpi_name *n) {
    char port[PORT_BYTES] = "";
    const char *now = back_port_now(n->port), *before = back_port_before(n->port);
    MPI_Info info = back_info(n->info);
    int rc = MPI_Lookup_name(n->service, info, port);
    if (rc == MPI_SUCCESS && strcmp(port, now) != 0) {
        rc = MPI_ERR_SERVICE; // somebody else's, unless it leads to where the port was
        if (strcmp(port, before) == 0) rc = MPI_Unpublish_name(n->service, info, port);
        if (rc == MPI_SUCCESS) rc = publish(n);
    }
    back_info_done(&info);
    return rc;
}

int back_names_open(char *why, size_t bytes) {
    int lost = 0;
    for (ckpt_mpi_name **at = &back.state->names, *n; (n = *at) != NULL;) {
        char text[MPI_MAX_ERROR_STRING] = "";
        const int lost_port = back_port_now(n->port) == NULL; // a later restart may have it
        int length, rc = lost_port ? MPI_SUCCESS : publish(n);
        if (rc == MPI_SUCCESS || left(n) == MPI_SUCCESS) {
            at = &n->next;
            continue;
        }
        *at = n->next; // the program may publish it; its memory is the front's, and little
        MPI_Error_string(rc, text, &length);
        text[strcspn(text, "\n")] = 0;
        if (lost++ == 0) snprintf(why, bytes, "\"%s\" (port \"%s\"): %s", n->service, n->port, text);
    }
    return lost;
}
