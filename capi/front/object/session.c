// SPDX-License-Identifier: Apache-2.0
//
// session.c: sessions.
//
// There is one real MPI.  It starts with the first session or with MPI_Init, whichever comes first, and
// ends with MPI_Finalize or with the process.  A session is a record in the application's memory.  Its
// process sets are the members of MPI_COMM_WORLD and of MPI_COMM_SELF.  Communicators from groups are made
// from MPI_COMM_WORLD, which exists whether the application may see it or not.
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "front/front.h"

struct session {
    ckpt_vid errhandler;
    int level;   // the thread level that it is said to have
    char *hints; // that it was made with
};

static int live; // sessions that are not finalized

static struct session *session_of(MPI_Session session) {
    return front_object(CKPT_KIND_SESSION, in_session(session));
}

// Calls the handler of the session; for what is not a session, that of MPI_COMM_SELF.
static int session_error(struct session *s, unsigned fn, long class) {
    if (s != NULL && CKPT_VID_INDEX(s->errhandler) == ERRH_RETURN) return front_code(class);
    return front_error(FRONT_COMM, VID_COMM_SELF, fn, class);
}

// For a process that ends with all sessions finalized, and never called MPI_Finalize.
static void finalize_at_exit(void) {
    if (front_sessions_only && front_state == FRONT_RUNNING && live == 0)
        front_call(CKPT_FN_MPI_FINALIZE, NULL);
}

static const char *const levels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                     "MPI_THREAD_MULTIPLE"};

static int level_of(const char *info) {
    const char *level = info ? info_value(info, "thread_level") : NULL;
    for (int i = 0; level != NULL && i < 4; i++)
        if (strcmp(level, levels[i]) == 0) return i;
    return -1;
}

// The thread level that Session_get_info names: the process has the one of MPI_Init or of its first session, and what
// MPIs say of later sessions that ask for another one differs.
static int said_level(const struct front_words *w, int asked) {
    int level = front_thread_level();
    if (w->mpich && w->release < RELEASE(4, 2)) return CANON_THREAD_MULTIPLE; // of every session
    if (w->mpich) return asked < 0 || w->release >= RELEASE(5, 0) ? level : asked;
    if (asked == CANON_THREAD_MULTIPLE && level < asked) return CANON_THREAD_SERIALIZED;
    return asked < 0 ? CANON_THREAD_SINGLE : asked;
}

static const char *strict_of(const char *hints) {
    const char *value = info_value(hints, "strict_finalize");
    return value != NULL && (strcmp(value, "1") == 0 || strcmp(value, "true") == 0) ? "1" : "0";
}

FRONT(int, Session_init, (MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session)) {
    if (front_state == FRONT_AFTER) front_not_running(CKPT_FN_MPI_SESSION_INIT);
    int asked = level_of(in_info(info));
    if (front_state == FRONT_BEFORE) {
        front_begin(asked < 0 ? CANON_THREAD_MULTIPLE : asked);
        front_sessions_only = 1;
        atexit(finalize_at_exit);
    }
    struct session *s = front_alloc(sizeof *s);
    const struct front_words w = front_words();
    const char *hints = in_info(info) ? in_info(info) : "";
    size_t n = info_bytes(hints);
    *s = (struct session){.errhandler = in_errh(errhandler),
                          .level = said_level(&w, asked),
                          .hints = memcpy(front_alloc(n), hints, n)};
    front_errhandler_hold(s->errhandler);
    live++;
    *session = out_session(front_object_new(CKPT_KIND_SESSION, s));
    return MPI_SUCCESS;
}

FRONT(int, Session_finalize, (MPI_Session * session)) {
    struct session *s = session_of(*session);
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_FINALIZE, CANON_ERRCLASS_ERR_SESSION);
    front_object_drop(CKPT_KIND_SESSION, in_session(*session));
    front_errhandler_release(s->errhandler);
    free(s->hints);
    free(s);
    live--;
    *session = MPI_SESSION_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Session_get_info, (MPI_Session session, MPI_Info *info_used)) {
    struct session *s = session_of(session);
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_GET_INFO, CANON_ERRCLASS_ERR_SESSION);
    const struct front_words w = front_words();
    *info_used = front_info_new(w.mpich ? "" : s->hints);
    front_info_set(*info_used, "thread_level", levels[s->level >= 0 && s->level < 4 ? s->level : 0]);
    if (w.mpich && w.release >= RELEASE(4, 2)) {
        front_info_set(*info_used, "strict_finalize", strict_of(s->hints));
        front_info_set(*info_used, "mpi_memory_alloc_kinds", FRONT_MEMORY_KINDS);
    }
    return MPI_SUCCESS;
}

FRONT(int, Session_toint, (MPI_Session session)) { return (int)in_session(session); }

FRONT(MPI_Session, Session_fromint, (int session)) { return out_session((ckpt_vid)session); }

// ---- process sets ----

static const char *const psets[] = {"mpi://WORLD", "mpi://SELF"};
enum { PSETS = sizeof psets / sizeof *psets };

static int pset_of(const char *name) {
#if FRONT_ABI == 2 // which ignores the case only of what follows
    if (strncmp(name, "mpi://", 6) != 0) return -1;
#endif
    for (int i = 0; i < PSETS; i++)
        if (strcasecmp(psets[i], name) == 0) return i;
    return -1;
}

FRONT(int, Session_get_num_psets, (MPI_Session session, MPI_Info info, int *npset_names)) {
    struct session *s = session_of(session);
    (void)info;
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_GET_NUM_PSETS, CANON_ERRCLASS_ERR_SESSION);
    *npset_names = PSETS;
    return MPI_SUCCESS;
}

FRONT(int, Session_get_nth_pset,
      (MPI_Session session, MPI_Info info, int n, int *pset_len, char *pset_name)) {
    struct session *s = session_of(session);
    (void)info;
    if (s == NULL || n < 0 || n >= PSETS)
        return session_error(s, CKPT_FN_MPI_SESSION_GET_NTH_PSET,
                             s ? CANON_ERRCLASS_ERR_ARG : CANON_ERRCLASS_ERR_SESSION);
    size_t room = *pset_len > 0 ? (size_t)*pset_len : 0, need = strlen(psets[n]) + 1;
    if (room > 0) {
        size_t copy = need <= room ? need - 1 : room - 1;
        memcpy(pset_name, psets[n], copy);
        pset_name[copy] = 0;
    } else {
        *pset_len = (int)need;
    }
    return MPI_SUCCESS;
}

FRONT(int, Session_get_pset_info, (MPI_Session session, const char *pset_name, MPI_Info *info)) {
    struct session *s = session_of(session);
    int i = s ? pset_of(pset_name) : -1;
    if (i < 0)
        return session_error(s, CKPT_FN_MPI_SESSION_GET_PSET_INFO,
                             s ? CANON_ERRCLASS_ERR_ARG : CANON_ERRCLASS_ERR_SESSION);
    const ckpt_slot *comm =
        front_slot(CKPT_FN_MPI_SESSION_GET_PSET_INFO, CKPT_KIND_COMM, i ? VID_COMM_SELF : VID_COMM_WORLD);
    char size[16], *p = size + sizeof size - 1;
    *p = 0;
    for (int n = comm->size; n > 0 || *p == 0; n /= 10) *--p = (char)('0' + n % 10);
    PMPI_Info_create(info);
    return PMPI_Info_set(*info, "mpi_size", p);
}

FRONT(int, Group_from_session_pset, (MPI_Session session, const char *pset_name, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_FROM_SESSION_PSET, newgroup != NULL);
    struct session *s = session_of(session);
    int i = s ? pset_of(pset_name) : -1;
    if (i < 0)
        return session_error(s, CKPT_FN_MPI_GROUP_FROM_SESSION_PSET,
                             s ? CANON_ERRCLASS_ERR_ARG : CANON_ERRCLASS_ERR_SESSION);
    return PMPI_Comm_group(out_comm(i ? VID_COMM_SELF : VID_COMM_WORLD), newgroup);
}

// ---- communicators from groups ----

// Gives different tags to calls that are under way at the same time.
static int tag_of(const char *stringtag) {
    uint32_t h = 2166136261u;
    for (const char *p = stringtag; p != NULL && *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return (int)(h % 32000u);
}

FRONT(int, Comm_create_from_group,
      (MPI_Group group, const char *stringtag, MPI_Info info, MPI_Errhandler errhandler, MPI_Comm *newcomm)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_COMM_CREATE_FROM_GROUP, newcomm != NULL);
    (void)info;
    int rc = PMPI_Comm_create_group(out_comm(VID_COMM_WORLD), group, tag_of(stringtag), newcomm);
    if (rc == MPI_SUCCESS && *newcomm != MPI_COMM_NULL) rc = PMPI_Comm_set_errhandler(*newcomm, errhandler);
    return rc;
}

FRONT(int, Intercomm_create_from_groups,
      (MPI_Group local_group, int local_leader, MPI_Group remote_group, int remote_leader,
       const char *stringtag, MPI_Info info, MPI_Errhandler errhandler, MPI_Comm *newintercomm)) {
    (void)info;
    MPI_Comm world = out_comm(VID_COMM_WORLD), local;
    const ckpt_mpi_group *remote = in_group(remote_group);
    int tag = tag_of(stringtag);
    if (remote == NULL || remote_leader < 0 || remote_leader >= remote->size)
        return FRONT_ERR(CKPT_FN_MPI_INTERCOMM_CREATE_FROM_GROUPS, GROUP);
    int rc = PMPI_Comm_create_group(world, local_group, tag, &local);
    if (rc != MPI_SUCCESS) return rc;
    rc = PMPI_Intercomm_create(local, local_leader, world, remote->world[remote_leader], tag, newintercomm);
    PMPI_Comm_free(&local);
    if (rc == MPI_SUCCESS) rc = PMPI_Comm_set_errhandler(*newintercomm, errhandler);
    return rc;
}

// ---- error handlers ----

FRONT(int, Session_create_errhandler, (void *function, MPI_Errhandler *errhandler)) {
    *errhandler = front_errhandler_new(function, FRONT_COMM, 0);
    return MPI_SUCCESS;
}

FRONT(int, Session_set_errhandler, (MPI_Session session, MPI_Errhandler errhandler)) {
    struct session *s = session_of(session);
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_SET_ERRHANDLER, CANON_ERRCLASS_ERR_SESSION);
    front_errhandler_hold(in_errh(errhandler));
    front_errhandler_release(s->errhandler);
    s->errhandler = in_errh(errhandler);
    return MPI_SUCCESS;
}

FRONT(int, Session_get_errhandler, (MPI_Session session, MPI_Errhandler *errhandler)) {
    struct session *s = session_of(session);
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_GET_ERRHANDLER, CANON_ERRCLASS_ERR_SESSION);
    front_errhandler_hold(s->errhandler);
    *errhandler = out_errh(s->errhandler);
    return MPI_SUCCESS;
}

FRONT(int, Session_call_errhandler, (MPI_Session session, int errorcode)) {
    struct session *s = session_of(session);
    if (s == NULL) return session_error(s, CKPT_FN_MPI_SESSION_CALL_ERRHANDLER, CANON_ERRCLASS_ERR_SESSION);
    front_errhandler_raise(s->errhandler, (long)session, CKPT_FN_MPI_SESSION_CALL_ERRHANDLER, errorcode);
    return MPI_SUCCESS;
}
