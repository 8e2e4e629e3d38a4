// SPDX-License-Identifier: Apache-2.0
//
// tools.c: functions of the tools interface that take objects of MPI, and events.  The rest of the
// interface is generated.
#include "front/front.h"

#define BIND_COMM (T_BIND_BASE + 1)
#define BIND_DATATYPE (T_BIND_BASE + 2)
#define BIND_FILE (T_BIND_BASE + 4)
#define BIND_OP (T_BIND_BASE + 6)
#define BIND_REQUEST (T_BIND_BASE + 7)
#define BIND_WIN (T_BIND_BASE + 8)
#define BIND_MESSAGE (T_BIND_BASE + 9)

// The id of the object that a variable is bound to; CKPT_VID_NONE for no object, or for one that only the
// front has.
static ckpt_vid object_of(int bind, const void *object) {
    if (object == NULL) return CKPT_VID_NONE;
    switch (bind) {
    case BIND_COMM:
        return in_comm(*(const MPI_Comm *)object);
    case BIND_DATATYPE:
        return in_type(*(const MPI_Datatype *)object);
    case BIND_FILE:
        return in_file(*(const MPI_File *)object);
    case BIND_OP:
        return in_op(*(const MPI_Op *)object);
    case BIND_REQUEST:
        return in_request(*(const MPI_Request *)object);
    case BIND_WIN:
        return in_win(*(const MPI_Win *)object);
    case BIND_MESSAGE:
        return in_message(*(const MPI_Message *)object);
    default:
        return CKPT_VID_NONE;
    }
}

FRONT(int, T_cvar_handle_alloc, (int cvar_index, void *obj_handle, void *handle, int *count)) {
    int bind = T_BIND_BASE, none = 0, rc;
    rc = PMPI_T_cvar_get_info(cvar_index, NULL, &none, NULL, NULL, NULL, NULL, &none, &bind, NULL);
    if (rc != MPI_SUCCESS) return rc;
    const struct T_cvar_handle_alloc_words a = {.cvar_index = cvar_index,
                                                .obj_handle = object_of(bind, obj_handle),
                                                .handle = handle,
                                                .count = count};
    return front_code(front_call_always(CKPT_FN_MPI_T_CVAR_HANDLE_ALLOC, &a));
}

FRONT(int, T_pvar_handle_alloc, (void *session, int pvar_index, void *obj_handle, void *handle, int *count)) {
    int bind = T_BIND_BASE, none = 0, rc;
    rc = PMPI_T_pvar_get_info(pvar_index, NULL, &none, NULL, NULL, NULL, NULL, NULL, &none, &bind, NULL, NULL,
                              NULL);
    if (rc != MPI_SUCCESS) return rc;
    const struct T_pvar_handle_alloc_words a = {.session = session,
                                                .pvar_index = pvar_index,
                                                .obj_handle = object_of(bind, obj_handle),
                                                .handle = handle,
                                                .count = count};
    return front_code(front_call_always(CKPT_FN_MPI_T_PVAR_HANDLE_ALLOC, &a));
}

// ---- events: neither of the two MPIs has events ----

#define INDEX_ERROR front_code(CANON_ERRCLASS_T_ERR_INVALID_INDEX)
#define HANDLE_ERROR front_code(CANON_ERRCLASS_T_ERR_INVALID_HANDLE)

FRONT(int, T_event_get_num, (int *num_events)) {
    *num_events = 0;
    return MPI_SUCCESS;
}
FRONT(int, T_source_get_num, (int *num_sources)) {
    *num_sources = 0;
    return MPI_SUCCESS;
}
FRONT(int, T_category_get_num_events, (int cat_index, int *num_events)) {
    (void)cat_index;
    *num_events = 0;
    return MPI_SUCCESS;
}
FRONT(int, T_category_get_events, (int cat_index, int len, int *indices)) {
    (void)cat_index, (void)len, (void)indices;
    return MPI_SUCCESS;
}
FRONT(int, T_event_get_index, (const char *name, int *event_index)) {
    (void)name, (void)event_index;
    return front_code(CANON_ERRCLASS_T_ERR_INVALID_NAME);
}

FRONT(int, T_event_get_info, (void)) { return INDEX_ERROR; }
FRONT(int, T_event_handle_alloc, (void)) { return INDEX_ERROR; }
FRONT(int, T_source_get_info, (void)) { return INDEX_ERROR; }
FRONT(int, T_source_get_timestamp, (void)) { return INDEX_ERROR; }
FRONT(int, T_event_callback_get_info, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_callback_set_info, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_copy, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_get_source, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_get_timestamp, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_handle_free, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_handle_get_info, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_handle_set_info, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_read, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_register_callback, (void)) { return HANDLE_ERROR; }
FRONT(int, T_event_set_dropped_handler, (void)) { return HANDLE_ERROR; }
