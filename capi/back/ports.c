// SPDX-License-Identifier: Apache-2.0
//
// ports.c: ports that the program opened.
//
// The name of a port is the MPI's below, and after a restart that MPI is another one.  The program keeps the name
// that it was given, and any rank may have been told of it.  So a port is an object of the tables: a restart opens it
// again, and then all ranks tell each other what each port of the saved job is called now.  A name that the program
// says is looked up in that list, and a name that the MPI says is turned back, so that the program sees one name as
// long as the port is open.  Names that are not in the list pass unchanged: those of ports of this run, of other jobs,
// and any other text.
//
// The list is made before the program runs, and does not change in this run: ranks that do not hear of a
// MPI_Close_port say the same of its name as the one that made the call, and nobody has to be told.
//
// A port that the MPI below cannot open, MPICH on UCX for one, is lost in this run.  It stays an object: a later
// restart tries again.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/object/comm.h"
#include "back/object/describe.h"
#include "back/ports.h"

// ---- ports of this rank ----

struct port {
    struct port *next;
    ckpt_vid vid;
    char *said;   // what the program calls it
    char *before; // what the MPI below did when the job was saved; NULL: it was opened in this run
    char *now;    // what it does now; NULL: it is lost
    char *why;    // ... for this reason
    char *info;   // hints; NULL: none
};
static struct port *own; // LOCK_PORTS

static void port_free(struct port *p) {
    if (p == NULL) return;
    free(p->said);
    free(p->before);
    free(p->now);
    free(p->why);
    free(p->info);
    free(p);
}

static void keep(struct port *p) {
    back_lock(LOCK_PORTS);
    p->next = own;
    own = p;
    back_unlock(LOCK_PORTS);
}

// A port whose name was lost keeps the last one that it had.
static void describe(struct writer *w, const struct port *p) {
    const char *now = p->now != NULL ? p->now : p->before;
    put(w, DESCRIBE_VERSION);
    put_bytes(w, p->said, strlen(p->said) + 1);
    put_bytes(w, now, strlen(now) + 1);
    put_bytes(w, p->info, p->info != NULL ? info_bytes(p->info) : 0);
}

// Has the port opened in this run be an object.  info is a content.
static int made(const char *name, const char *info) {
    struct port *p = calloc(1, sizeof *p);
    struct writer w = {0};
    size_t n = info != NULL ? info_bytes(info) : 0;
    if (p == NULL) return MPI_ERR_NO_MEM;
    p->said = strdup(name);
    p->now = strdup(name);
    p->info = n > 0 ? malloc(n) : NULL;
    p->vid = CKPT_VID_NONE;
    if (p->said != NULL && p->now != NULL && (n == 0 || p->info != NULL)) {
        if (n > 0) memcpy(p->info, info, n);
        describe(&w, p);
        if (!w.failed)
            p->vid =
                ckpt_vid_new(back.job, CKPT_KIND_PORT, (uint64_t)(uintptr_t)p, w.word, 4 * w.n, NULL, 0, 0);
    }
    free(w.word);
    if (p->vid == CKPT_VID_NONE) {
        port_free(p);
        return MPI_ERR_NO_MEM;
    }
    keep(p);
    return MPI_SUCCESS;
}

// The program has closed it.
static void gone(const char *said) {
    back_lock(LOCK_PORTS);
    struct port **at = &own;
    while (*at != NULL && strcmp((*at)->said, said) != 0) at = &(*at)->next;
    struct port *p = *at;
    if (p != NULL) *at = p->next;
    back_unlock(LOCK_PORTS);
    if (p != NULL) ckpt_vid_free(back.job, p->vid);
    port_free(p);
}

// ---- ports of the saved job, of all ranks ----

struct known {
    const char *said, *before, *now, *why; // now: empty when it is lost; why: the text of that error
};
static struct known *known;
static int nknown, nlost;

static const struct known *find(const char *said) {
    for (int i = 0; i < nknown; i++)
        if (strcmp(known[i].said, said) == 0) return &known[i];
    return NULL;
}

const char *back_port_now(const char *said) {
    const struct known *k = find(said);
    return k == NULL ? said : *k->now ? k->now : NULL;
}

const char *back_port_before(const char *said) {
    const struct known *k = find(said);
    return k == NULL ? said : k->before;
}

const char *back_port_said(const char *now) {
    for (int i = 0; i < nknown; i++)
        if (strcmp(known[i].now, now) == 0) return known[i].said;
    return now;
}

long back_port_error(const char *said) {
    const struct known *k = find(said);
    return k == NULL || *k->now ? CANON_ERR(PORT) : back_error_own(CANON_ERR(PORT), k->why);
}

// Only the root can tell which port is meant, so it tells the others when that one is lost.  All ranks know whether
// there is any such port, and where there is none nothing is sent.
long back_port_meet(const char *said, int root, MPI_Comm comm, const char **now) {
    int rank, inter, rc = MPI_Comm_rank(comm, &rank), lost = 0;
    *now = said;
    if (rc == MPI_SUCCESS) rc = MPI_Comm_test_inter(comm, &inter);
    if (rc != MPI_SUCCESS || inter || nknown == 0) return 0; // the call itself says what is wrong
    if (rank == root) {
        *now = back_port_now(said);
        if (*now == NULL) lost = 1 + (int)(find(said) - known);
    }
    if (nlost == 0) return 0;
    rc = MPI_Bcast(&lost, 1, MPI_INT, root, comm);
    if (rc != MPI_SUCCESS) return back_error(rc);
    return lost > 0 && lost <= nknown ? back_error_own(CANON_ERR(PORT), known[lost - 1].why) : 0;
}

// ---- a restart ----

int back_rebuild_port(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    struct reader r = reader_of(descriptor, bytes);
    struct port *p = calloc(1, sizeof *p);
    if (p == NULL) return CKPT_E_SYSTEM;
    p->vid = vid;
    p->said = get_string(&r);
    p->before = get_string(&r);
    p->info = get_content(&r);
    if (r.failed || strlen(p->said) >= PORT_BYTES || strlen(p->before) >= PORT_BYTES) {
        port_free(p);
        return r.short_of_memory ? CKPT_E_SYSTEM : CKPT_E_CORRUPT;
    }
    char name[PORT_BYTES] = "", text[MPI_MAX_ERROR_STRING] = "";
    MPI_Info info = back_info(p->info);
    int length, rc = MPI_Open_port(info, name);
    back_info_done(&info);
    if (rc == MPI_SUCCESS) {
        p->now = strdup(name);
    } else {
        // The last line of what MPICH says is the reason.
        MPI_Error_string(rc, text, &length);
        while (length > 0 && text[length - 1] == '\n') text[--length] = 0;
        const char *last = strrchr(text, '\n');
        p->why = strdup(last != NULL ? last + 1 : text);
    }
    if (p->now == NULL && p->why == NULL) {
        port_free(p);
        return CKPT_E_SYSTEM;
    }
    keep(p);
    *real = (uint64_t)(uintptr_t)p;
    return 0;
}

// What a later image is to have: the name of now.
static int describe_again(const struct port *p) {
    struct writer w = {0};
    describe(&w, p);
    int rc = w.failed ? CKPT_E_SYSTEM : ckpt_vid_describe(back.job, p->vid, w.word, 4 * w.n, NULL, 0);
    free(w.word);
    return rc;
}

static char *put_text(char *at, const char *text) { return stpcpy(at, text) + 1; }

// What this rank says of its ports: four texts of each, the last one with the port's name before the reason.
static char *mine(int *bytes, int *lost, char *why, size_t room) {
    static const char lead[] = "this port was not opened again at the restart: ";
    size_t n = 1;
    *lost = 0;
    for (const struct port *p = own; p != NULL; p = p->next)
        n += strlen(p->said) + strlen(p->before) + (p->now ? strlen(p->now) : sizeof lead + strlen(p->why)) +
             4;
    char *all = n <= INT_MAX ? malloc(n) : NULL, *at = all;
    for (const struct port *p = own; all != NULL && p != NULL; p = p->next) {
        at = put_text(at, p->said);
        at = put_text(at, p->before);
        at = put_text(at, p->now != NULL ? p->now : "");
        if (p->now == NULL) {
            if ((*lost)++ == 0) snprintf(why, room, "\"%s\": %s", p->said, p->why);
            at = stpcpy(at, lead);
        }
        at = put_text(at, p->now == NULL ? p->why : "");
    }
    *bytes = (int)(at - all);
    return all;
}

// The texts of all ranks, one after the other; they stay.
static char *everybodys(const char *mine_, int bytes, int *total) {
    size_t ranks = (size_t)back.size;
    int *counts = malloc(ranks * sizeof *counts), *places = malloc(ranks * sizeof *places);
    int rc = counts != NULL && places != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    char *all = NULL;
    long sum = 0;
    if (rc == MPI_SUCCESS) rc = MPI_Allgather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, back.control);
    for (size_t i = 0; rc == MPI_SUCCESS && i < ranks; i++) {
        places[i] = (int)sum;
        sum += counts[i];
        if (sum > INT_MAX) rc = MPI_ERR_COUNT; // on all ranks
    }
    if (rc == MPI_SUCCESS && (all = malloc((size_t)sum + 1)) == NULL) rc = MPI_ERR_NO_MEM;
    if (rc == MPI_SUCCESS && sum > 0)
        rc = MPI_Allgatherv(mine_, bytes, MPI_CHAR, all, counts, places, MPI_CHAR, back.control);
    free(counts);
    free(places);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "telling all ranks which ports are open");
        free(all);
        return NULL;
    }
    *total = (int)sum;
    return all;
}

int back_ports_open(int *lost, char *why, size_t bytes) {
    int n, total, rc = 0;
    char *told = mine(&n, lost, why, bytes);
    char *all = told != NULL ? everybodys(told, n, &total) : NULL;
    free(told);
    if (all == NULL) return CKPT_E_SYSTEM;
    int texts = 0;
    for (int i = 0; i < total; i++) texts += all[i] == 0;
    if (texts > 0) known = calloc((size_t)texts / 4 + 1, sizeof *known);
    if (texts > 0 && known == NULL) return CKPT_E_SYSTEM;
    const char *at = all;
    for (int i = 0; i < texts / 4; i++) {
        const char **field[] = {&known[i].said, &known[i].before, &known[i].now, &known[i].why};
        for (int f = 0; f < 4; f++) {
            *field[f] = at;
            at += strlen(at) + 1;
        }
        nlost += *known[i].now == 0;
    }
    nknown = texts / 4;
    if (nknown == 0) free(all);
    for (const struct port *p = own; rc == 0 && p != NULL; p = p->next) rc = describe_again(p);
    return rc;
}

// ---- calls of the program ----

// The MPI below may give a new port the name that the program has for another one, which was opened in a former run:
// MPICH makes it of an address and a small number.  Such a port is closed, after another one was opened.
long back_Open_port(const long *a) {
    enum { TRIES = 64 };
    ARGS(Open_port) p = (const void *)a;
    char *taken[TRIES];
    int ntaken = 0, rc;
    MPI_Info info = back_info(p->info);
    while ((rc = MPI_Open_port(info, p->port_name)) == MPI_SUCCESS && find(p->port_name) != NULL) {
        char *name = ntaken < TRIES ? strdup(p->port_name) : NULL;
        if (name == NULL) {
            MPI_Close_port(p->port_name);
            rc = MPI_ERR_NO_MEM;
            break;
        }
        taken[ntaken++] = name;
    }
    back_info_done(&info);
    while (ntaken > 0) {
        MPI_Close_port(taken[--ntaken]);
        free(taken[ntaken]);
    }
    if (rc == MPI_SUCCESS && (rc = made(p->port_name, p->info)) != MPI_SUCCESS) MPI_Close_port(p->port_name);
    return back_error(rc);
}

// A port that is lost has nothing to close below, and the program is done with it.
long back_Close_port(const long *a) {
    ARGS(Close_port) p = (const void *)a;
    const char *now = back_port_now(p->port_name);
    int rc = now != NULL ? MPI_Close_port(now) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS) gone(p->port_name);
    return back_error(rc);
}
