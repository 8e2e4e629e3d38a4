// SPDX-License-Identifier: Apache-2.0
//
// corners.c: what MPIs do where few programs look: no address for a result, statuses of requests that are
// null, large counts, errors of attribute functions, keyvals of another sort, error handlers
// that nobody set, hints, names.  Rank 0
// prints a line for each; the test compares them with those of a native run.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI // whose mpi.h has them no more
extern struct ompi_predefined_datatype_t ompi_mpi_lb, ompi_mpi_ub;
#define LB ((MPI_Datatype)(void *)&ompi_mpi_lb)
#define UB ((MPI_Datatype)(void *)&ompi_mpi_ub)
#else
#define LB MPI_LB
#define UB MPI_UB
#endif

static int rank;
static MPI_Comm unset; // of MPI_COMM_WORLD, before that got a handler

static const char *class_of(int code) {
    static char text[32];
    int class = -1;
    MPI_Error_class(code, &class);
    switch (class) {
    case MPI_SUCCESS:
        return "success";
    case MPI_ERR_ARG:
        return "MPI_ERR_ARG";
    case MPI_ERR_OTHER:
        return "MPI_ERR_OTHER";
    case MPI_ERR_KEYVAL:
        return "MPI_ERR_KEYVAL";
    case MPI_ERR_DIMS:
        return "MPI_ERR_DIMS";
    }
    snprintf(text, sizeof text, "class %d", class);
    return text;
}

static void say(const char *what, int code) {
    if (rank == 0) printf("= %s: %s\n", what, class_of(code)), fflush(stdout);
}

static void tell(const char *what, const char *answer) {
    if (rank == 0) printf("= %s: %s\n", what, answer), fflush(stdout);
}

// ---- statuses of requests that are null or inactive ----

static void status(const char *what, const MPI_Status *s) {
    int count = -9, cancelled = -9;
    MPI_Get_count(s, MPI_INT, &count);
    MPI_Test_cancelled(s, &cancelled);
    if (rank == 0)
        printf("= %s: source %s, tag %s, error %s, count %d, cancelled %d\n", what,
               s->MPI_SOURCE == MPI_ANY_SOURCE ? "any" : "wrong", s->MPI_TAG == MPI_ANY_TAG ? "any" : "wrong",
               s->MPI_ERROR == MPI_SUCCESS ? "0" : "left alone", count, cancelled);
}

static void statuses(void) {
    MPI_Request null = MPI_REQUEST_NULL, two[2] = {null, null}, inactive;
    MPI_Status s, all[2];
    int flag, index, box;
#define WITH(call, said)               \
    do {                               \
        memset(&s, 0x55, sizeof s);    \
        memset(all, 0x55, sizeof all); \
        call;                          \
        status(#call, said);           \
    } while (0)
    WITH(MPI_Request_get_status(null, &flag, &s), &s);
    WITH(MPI_Wait(&null, &s), &s);
    WITH(MPI_Test(&null, &flag, &s), &s);
    WITH(MPI_Waitany(2, two, &index, &s), &s);
    WITH(MPI_Testany(2, two, &index, &flag, &s), &s);
    WITH(MPI_Testany(1, &null, &index, &flag, &s), &s);
    tell("its flag, its index", flag == 1 && index == MPI_UNDEFINED ? "true, undefined" : "other ones");
    WITH(MPI_Testall(2, two, &flag, all), all + 1);
    MPI_Recv_init(&box, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &inactive);
    WITH(MPI_Wait(&inactive, &s), &s);
    WITH(MPI_Test(&inactive, &flag, &s), &s);
#ifdef OPEN_MPI // MPICH leaves the status alone, here and where a receive is from nobody
    WITH(MPI_Testany(1, &inactive, &index, &flag, &s), &s);
#else
    MPI_Testany(1, &inactive, &index, &flag, &s);
#endif
    tell("its flag, its index", flag == 1 && index == MPI_UNDEFINED ? "true, undefined" : "other ones");
    WITH(MPI_Request_get_status(inactive, &flag, &s), &s);
    MPI_Request_free(&inactive);
}

// ---- MPI_Testany of one request ----

static void any_of_one(void) {
    MPI_Request r;
    MPI_Status s;
    int in = 0, out = 7, flag = 7, index = 7, count = -1;
    MPI_Irecv(&in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &r);
    MPI_Testany(1, &r, &index, &flag, &s);
    tell("a receive without a message",
         !flag && index == MPI_UNDEFINED && r != MPI_REQUEST_NULL ? "goes on" : "ends");
    MPI_Send(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF);
    for (flag = 0; !flag;) MPI_Testany(1, &r, &index, &flag, &s);
    MPI_Get_count(&s, MPI_INT, &count);
    tell("a receive with its message",
         index == 0 && r == MPI_REQUEST_NULL && in == 7 && s.MPI_SOURCE == 0 && s.MPI_TAG == 3 && count == 1
             ? "ends, with its status"
             : "is something else");
#ifdef OPEN_MPI
    MPI_Irecv(&in, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_SELF, &r);
    for (flag = 0; !flag;) MPI_Testany(1, &r, &index, &flag, &s);
    tell("a receive from nobody", index == 0 && s.MPI_SOURCE == MPI_PROC_NULL && s.MPI_TAG == MPI_ANY_TAG
                                      ? "is from nobody"
                                      : "is from somebody");
#endif
}

// ---- counts of statuses ----

static void counts(void) {
    const MPI_Count of[] = {60, 0x80000000, 0x3654321f71234567, 0x7654321f71234567, 0x7654321ff1234567};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int cancelled = 0; cancelled < 2; cancelled++) {
            MPI_Status s;
            MPI_Count bytes = -1;
            int flag = -1;
            memset(&s, 0x55, sizeof s);
            MPI_Status_set_cancelled(&s, cancelled);
            MPI_Status_set_elements_x(&s, MPI_BYTE, of[i]);
            MPI_Get_elements_x(&s, MPI_BYTE, &bytes);
            MPI_Test_cancelled(&s, &flag);
            if (rank == 0)
                printf("= count %#llx: %#llx, cancelled %d\n", (long long)of[i], (long long)bytes, flag);
        }
}

// ---- no address for a result ----

static void nothing(void) {
    MPI_Group group;
    MPI_Comm dup;
    int one = 0;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    say("MPI_Comm_size", MPI_Comm_size(MPI_COMM_WORLD, NULL));
    say("MPI_Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, NULL));
    say("MPI_Comm_split", MPI_Comm_split(dup, 0, 0, NULL));
    say("MPI_Comm_create", MPI_Comm_create(dup, group, NULL));
    say("MPI_Isend", MPI_Isend(&one, 1, MPI_INT, 0, 0, MPI_COMM_SELF, NULL) == MPI_SUCCESS
                         ? MPI_SUCCESS
                         : MPI_ERR_ARG); // Open MPI says it is the request that is wrong
#ifndef OPEN_MPI                         // which says something else of each, or ends the process
    int range[1][3] = {{0, 0, 1}};
    say("MPI_Comm_group", MPI_Comm_group(MPI_COMM_WORLD, NULL));
    say("MPI_Comm_get_info", MPI_Comm_get_info(dup, NULL));
    say("MPI_Group_rank", MPI_Group_rank(group, NULL));
    say("MPI_Group_size", MPI_Group_size(group, NULL));
    say("MPI_Group_union", MPI_Group_union(group, group, NULL));
    say("MPI_Group_range_incl", MPI_Group_range_incl(group, 1, range, NULL));
    say("MPI_Group_range_excl", MPI_Group_range_excl(group, 1, range, NULL));
    say("MPI_Group_translate_ranks", MPI_Group_translate_ranks(group, 1, &one, group, NULL));
    say("MPI_Type_contiguous", MPI_Type_contiguous(2, MPI_INT, NULL));
    say("MPI_Type_vector", MPI_Type_vector(2, 1, 2, MPI_INT, NULL));
    say("MPI_Type_size", MPI_Type_size(MPI_INT, NULL));
    say("MPI_Info_create", MPI_Info_create(NULL));
#endif
    MPI_Comm_free(&dup);
    MPI_Group_free(&group);
}

// ---- attributes ----

static int returned, deletes;

static int no_copy(MPI_Comm c, int k, void *extra, void *in, void *out, int *flag) {
    (void)c, (void)k, (void)extra, (void)in, (void)out;
    *flag = 1;
    return returned;
}

static int no_type_copy(MPI_Datatype t, int k, void *extra, void *in, void *out, int *flag) {
    (void)t, (void)k, (void)extra, (void)in, (void)out;
    *flag = 1;
    return returned;
}

static int no_delete(MPI_Comm c, int k, void *value, void *extra) {
    (void)c, (void)k, (void)value, (void)extra;
    deletes++;
    return returned;
}

static int free_keyval(MPI_Comm c, int k, void *value, void *extra) {
    (void)c, (void)value, (void)extra;
    return MPI_Comm_free_keyval(&k);
}

static void user_errors(void) {
    int class, code, key, got;
    MPI_Comm first, second;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "ours");
    MPI_Comm_create_keyval(no_copy, no_delete, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_set_errhandler(first, MPI_ERRORS_RETURN);
    MPI_Comm_set_attr(first, key, &key);
    returned = code;
    got = MPI_Comm_dup(first, &second);
    tell("a duplicate whose attribute cannot be copied", got == MPI_SUCCESS ? "made" : "not made");
#ifndef OPEN_MPI // its code is lost there
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_string(got, text, &(int){0});
    tell("the error", got == code ? text : "another");
    got = MPI_Comm_delete_attr(first, key);
    tell("the error of its function for deleting", got == code && deletes == 1 ? "the same" : "another");
#endif
    returned = MPI_SUCCESS;
    MPI_Comm_free(&first);
    MPI_Comm_free_keyval(&key);
}

static void type_errors(void) {
    MPI_Datatype type, dup = MPI_INT;
    int key;
    MPI_Type_create_keyval(no_type_copy, MPI_TYPE_NULL_DELETE_FN, &key, NULL);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_set_attr(type, key, &key);
    returned = MPI_ERR_OTHER;
    int rc = MPI_Type_dup(type, &dup);
    returned = MPI_SUCCESS;
    tell("a datatype whose attribute cannot be copied", rc == MPI_SUCCESS ? "made" : "not made");
#ifndef OPEN_MPI // which leaves one that was freed
    tell("its handle", dup == MPI_DATATYPE_NULL ? "null" : "something");
#endif
    MPI_Type_free(&type);
    MPI_Type_free_keyval(&key);
}

static void keyvals(void) {
    int key, copy, type_key;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_keyval, &key, NULL);
    copy = key;
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_set_attr(comm, key, NULL);
    say("freeing what has a keyval that its function frees", MPI_Comm_free(&comm));
#ifndef OPEN_MPI // there, a keyval that was freed is not freed again
    say("freeing the keyval again", MPI_Comm_free_keyval(&key));
    say("freeing a copy of it", MPI_Comm_free_keyval(&copy));
#endif
    (void)copy;
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL);
    tell("freeing a keyval of datatypes as one of communicators",
         MPI_Comm_free_keyval(&type_key) == MPI_SUCCESS ? "success" : "an error");
}

// ---- communicators ----

static void communicators(void) {
    MPI_Comm cart = MPI_COMM_SELF;
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(unset, &handler);
    tell("the handler of a duplicate", handler == MPI_ERRORS_ARE_FATAL ? "fatal" : "another");
    MPI_Errhandler_free(&handler);
    int rc = MPI_Cart_create(MPI_COMM_WORLD, 2, (int[]){97, 89}, (int[]){0, 0}, 0, &cart);
    tell("a grid of too few processes", rc == MPI_SUCCESS ? "made" : "not made");
#ifndef OPEN_MPI // which leaves the handle alone, and has the handler that was MPI_COMM_WORLD's
    tell("its handle", cart == MPI_COMM_NULL ? "null" : "something");
    say("an error where no handler was set", MPI_Comm_split(unset, 0, 0, NULL));
    // What a machine has is not compared, but that the calls work.
    MPI_Comm part = MPI_COMM_SELF;
    MPI_Info info;
    say("parts that nobody names",
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, MPI_INFO_NULL, &part));
    tell("the communicator", part == MPI_COMM_NULL ? "null" : "something");
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_hw_resource_type", "nothing of a machine");
    say("parts that there are not",
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
    tell("the communicator", part == MPI_COMM_NULL ? "null" : "something");
    MPI_Info_free(&info);
    MPI_Info_create(&info);
    say("parts of any sort", MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &part));
    int named = 0;
    char resource[64];
    MPI_Info_get(info, "mpi_hw_resource_type", 63, resource, &named);
    tell("their name", named == (part != MPI_COMM_NULL) ? "as it must be" : "wrong");
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
    MPI_Info_set(info, "nbhd_common_dirname", ".");
    say("those who see a directory",
        MPI_Comm_split_type(MPI_COMM_WORLD, MPIX_COMM_TYPE_NEIGHBORHOOD, 0, info, &part));
    tell("the communicator", part == MPI_COMM_NULL ? "null" : "something");
    MPI_Comm_free(&part);
    MPI_Info_free(&info);
#endif
}

// ---- hints ----

static void hints(const char *what, MPI_Info info) {
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    int keys = 0, flag;
    MPI_Info_get_nkeys(info, &keys);
    for (int i = 0; i < keys; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &flag);
        if (rank == 0) printf("= %s: %s=%s\n", what, key, value);
    }
    MPI_Info_free(&info);
}

static void comm_hints(const char *what, MPI_Comm comm, int end) {
    MPI_Info info;
    MPI_Comm_get_info(comm, &info);
    hints(what, info);
    if (end) MPI_Comm_free(&comm);
}

static void win_hints(const char *what, MPI_Win win, MPI_Info given) {
    MPI_Info info;
    MPI_Win_get_info(win, &info);
    hints(what, info);
    if (given != MPI_INFO_NULL) {
        MPI_Win_set_info(win, given);
        MPI_Win_get_info(win, &info);
        hints("the same after MPI_Win_set_info", info);
    }
    MPI_Win_free(&win);
}

static void all_hints(void) {
    static const char *const given[][2] = {{"nobody knows it", "really"},
                                           {"mpi_assert_no_any_tag", "true"},
                                           {"mpi_assert_allow_overtaking", "false"},
                                           {"no_locks", "true"},
                                           {"accumulate_ops", "same_op"},
                                           {"accumulate_ordering", "none"},
                                           {"same_size", "true"}};
    MPI_Info info;
    MPI_Comm comm, again;
    MPI_Win win;
    void *base;
    int word;
    MPI_Info_create(&info);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) MPI_Info_set(info, given[i][0], given[i][1]);
    comm_hints("MPI_COMM_WORLD", MPI_COMM_WORLD, 0);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    comm_hints("MPI_Comm_dup_with_info", comm, 0);
    MPI_Comm_dup(comm, &again);
    comm_hints("a duplicate of that", again, 1);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_info(comm, info);
    comm_hints("MPI_Comm_set_info", comm, 1);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, info, &comm);
    comm_hints("MPI_Comm_split_type", comm, 0);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &again);
    comm_hints("the same of that without hints", again, 1);
    MPI_Comm_free(&comm);
    MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    win_hints("MPI_Win_create", win, MPI_INFO_NULL);
    MPI_Win_create(&word, sizeof word, 1, info, MPI_COMM_WORLD, &win);
    win_hints("MPI_Win_create with hints", win, MPI_INFO_NULL);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    win_hints("MPI_Win_allocate", win, info);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    win_hints("MPI_Win_create_dynamic", win, info);
    if (MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS)
        win_hints("MPI_Win_allocate_shared", win, MPI_INFO_NULL);
    else
        tell("MPI_Win_allocate_shared", "an error"); // of MPICH 5, where it sees several nodes
    MPI_Info_free(&info);
}

// How the program was called; what a launcher adds is not compared.
static void environment(const char *called) {
    char value[MPI_MAX_INFO_VAL + 1];
    int flag;
    const char *slash = strrchr(called, '/');
    MPI_Info_get(MPI_INFO_ENV, "command", MPI_MAX_INFO_VAL, value, &flag);
    tell("the command", !flag                                    ? "not there"
                        : strcmp(value, called) == 0             ? "as it was called"
                        : slash && strcmp(value, slash + 1) == 0 ? "without its directory"
                                                                 : value);
    MPI_Info_get(MPI_INFO_ENV, "argv", MPI_MAX_INFO_VAL, value, &flag);
    tell("its arguments", flag ? value : "not there");
}

// ---- names ----

static void names(void) {
    static const MPI_Datatype types[] = {MPI_CHAR,
                                         MPI_BYTE,
                                         MPI_LONG_LONG,
                                         MPI_LONG_LONG_INT,
                                         MPI_C_COMPLEX,
                                         MPI_C_FLOAT_COMPLEX,
                                         MPI_C_DOUBLE_COMPLEX,
                                         MPI_C_BOOL,
                                         MPI_2INT,
                                         MPI_DOUBLE_INT,
                                         MPI_AINT,
                                         MPI_COUNT,
                                         MPI_PACKED,
                                         MPI_COMPLEX,
                                         MPI_DOUBLE_COMPLEX,
                                         MPI_INTEGER,
                                         MPI_REAL8,
                                         MPI_2INTEGER,
                                         MPI_CXX_BOOL,
                                         MPI_WCHAR};
    char name[MPI_MAX_OBJECT_NAME];
    int n;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        MPI_Type_get_name(types[i], name, &n), tell("a datatype", name);
    MPI_Type_get_name(LB, name, &n), tell("a datatype", name);
    MPI_Type_get_name(UB, name, &n), tell("a datatype", name);
}

// ---- markers of bounds, which MPI has no more, but both libraries ----

static void bounds(void) {
    const int lengths[] = {1, 4, 1};
    const MPI_Aint at[] = {-3, 0, 6};
    const MPI_Datatype types[] = {LB, MPI_BYTE, UB};
    MPI_Datatype type;
    MPI_Aint lb = -1, extent = -1;
    int size = -1;
    say("a datatype with markers", MPI_Type_create_struct(3, lengths, at, types, &type));
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_size(type, &size);
    MPI_Type_free(&type);
    if (rank == 0) printf("= markers: lower bound %ld, extent %ld, size %d\n", (long)lb, (long)extent, size);
    tell("markers in Fortran", MPI_Type_f2c(MPI_Type_c2f(LB)) == LB && MPI_Type_f2c(MPI_Type_c2f(UB)) == UB
                                   ? "the same"
                                   : "others");
#ifdef OPEN_MPI
    tell("numbers in Fortran",
         MPI_Type_f2c(4) == LB && MPI_Type_f2c(3) == UB ? "those of its mpif.h" : "others");
#endif
}

#if MPI_VERSION >= 4
static void sessions(void) {
    static const char *const names[] = {"mpi://SELF", "mpi://self", "MPI://World"};
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    for (int i = 0; i < 3; i++) {
        MPI_Group group = MPI_GROUP_NULL;
        int rc = MPI_Group_from_session_pset(session, names[i], &group), n = -1;
        if (rc == MPI_SUCCESS) MPI_Group_size(group, &n), MPI_Group_free(&group);
        tell(names[i], rc ? "no set" : n == 1 ? "one process" : "all processes");
    }
    MPI_Info info;
    MPI_Session_get_info(session, &info);
    hints("a session", info);
    MPI_Session_finalize(&session);
    tell("its handle when it is finalized", session == MPI_SESSION_NULL ? "null" : "something");
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    MPI_Info_set(info, "strict_finalize", "true");
    MPI_Session_init(info, MPI_ERRORS_RETURN, &session);
    MPI_Info_free(&info);
    MPI_Session_get_info(session, &info);
    hints("a session that asks for more", info);
    MPI_Session_finalize(&session);
}
#endif

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifdef OPEN_MPI
    if (rank == 0) printf("compiled for openmpi %d.%d\n", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION);
#else
    if (rank == 0)
        printf("compiled for mpich %d.%d\n", MPICH_NUMVERSION / 10000000, MPICH_NUMVERSION / 100000 % 100);
#endif
    MPI_Comm_dup(MPI_COMM_WORLD, &unset);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    communicators();
    statuses();
    any_of_one();
    counts();
    nothing();
    user_errors();
    type_errors();
    keyvals();
    all_hints();
    environment(argv[0]);
    names();
    bounds();
#if MPI_VERSION >= 4
    sessions();
#endif
    MPI_Comm_free(&unset);
    tell("corners", "done");
    MPI_Finalize();
    return 0;
}
