// SPDX-License-Identifier: Apache-2.0
//
// pmi.c: libpmi.so.0, of which PGAS runtimes learn who they are and where their peers are. It has no server: rank 0
// keeps a TCP connection to each other rank, which a checkpoint saves. CKPT_RANK and CKPT_SIZE say who this is, the
// folder PMI_MEET is where rank 0 writes its port, once.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, FAIL = -1, MAX_RANKS = 64, MAX_KEY = 64, MAX_VALUE = 1024, TRIES = 2400, WAIT_MS = 50 };

// Lines of a key, a tab and a value.
struct text {
    char *bytes;
    size_t length;
};

static int rank, size, initialized;
static int links[MAX_RANKS]; // rank 0: one a peer; others: [0] alone
static struct text known;    // what all have after a barrier
static struct text news;     // what was put here since the last one

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "pmi: rank %d: ", rank);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    _exit(1);
}

static void append(struct text *t, const void *bytes, size_t length) {
    t->bytes = realloc(t->bytes, t->length + length + 1);
    if (t->bytes == NULL) give_up("no memory");
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
    t->bytes[t->length] = '\0';
}

static void clear(struct text *t) {
    free(t->bytes);
    *t = (struct text){0};
}

static void put(int fd, const void *bytes, size_t length) {
    for (const char *at = bytes; length > 0;) {
        ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) give_up("send: %s", strerror(errno));
        at += n;
        length -= (size_t)n;
    }
}

static void get(int fd, void *bytes, size_t length) {
    for (char *at = bytes; length > 0;) {
        ssize_t n = recv(fd, at, length, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) give_up("recv: %s", strerror(errno));
        if (n == 0) give_up("a peer has ended");
        at += n;
        length -= (size_t)n;
    }
}

static void put_text(int fd, const struct text *t) {
    uint64_t length = t->length;
    put(fd, &length, sizeof length);
    put(fd, t->bytes, t->length);
}

// What comes is appended.
static void get_text(int fd, struct text *t) {
    uint64_t length;
    get(fd, &length, sizeof length);
    char *bytes = malloc(length + 1);
    if (bytes == NULL) give_up("no memory");
    get(fd, bytes, length);
    append(t, bytes, length);
    free(bytes);
}

static int socket_of(struct sockaddr_in *at, unsigned port) {
    *at = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) give_up("socket: %s", strerror(errno));
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        give_up("TCP_NODELAY: %s", strerror(errno));
    return fd;
}

static void await_peers(const char *port_file) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    int listener = socket_of(&at, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, MAX_RANKS) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0)
        give_up("listen: %s", strerror(errno));
    char new[4096];
    if ((size_t)snprintf(new, sizeof new, "%s.new", port_file) >= sizeof new) give_up("PMI_MEET is too long");
    FILE *f = fopen(new, "we");
    if (f == NULL || fprintf(f, "%d\n", ntohs(at.sin_port)) < 0 || fclose(f) != 0 ||
        rename(new, port_file) != 0)
        give_up("%s: %s", port_file, strerror(errno));
    for (int n = 1; n < size;) {
        int32_t who;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) give_up("accept: %s", strerror(errno));
        get(fd, &who, sizeof who);
        if (who <= 0 || who >= size || links[who] != 0) give_up("rank %d connects", who);
        links[who] = fd;
        n++;
    }
    close(listener);
}

static void find_rank_0(const char *port_file) {
    for (int n = 0; n < TRIES; n++) {
        unsigned port = 0;
        FILE *f = fopen(port_file, "re");
        if (f != NULL) {
            if (fscanf(f, "%u", &port) != 1) give_up("%s has no port", port_file);
            fclose(f);
            struct sockaddr_in at;
            int fd = socket_of(&at, port);
            if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
                give_up("connect to port %u: %s", port, strerror(errno));
            int32_t who = rank;
            put(fd, &who, sizeof who);
            links[0] = fd;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    }
    give_up("rank 0 did not write %s", port_file);
}

static int number(const char *name) {
    const char *v = getenv(name);
    if (v == NULL) give_up("%s is not set", name);
    return atoi(v);
}

// The functions of PMI 1 that runtimes call, as their headers declare them.
int PMI_Init(int *spawned);
int PMI_Initialized(int *is);
int PMI_Finalize(void);
int PMI_Abort(int status, const char text[]);
int PMI_Get_rank(int *to);
int PMI_Get_size(int *to);
int PMI_Barrier(void);
int PMI_KVS_Get_my_name(char name[], int length);
int PMI_KVS_Get_name_length_max(int *to);
int PMI_KVS_Get_key_length_max(int *to);
int PMI_KVS_Get_value_length_max(int *to);
int PMI_KVS_Put(const char kvs[], const char key[], const char value[]);
int PMI_KVS_Commit(const char kvs[]);
int PMI_KVS_Get(const char kvs[], const char key[], char value[], int length);

int PMI_Init(int *spawned) {
    *spawned = 0;
    rank = number("CKPT_RANK");
    size = number("CKPT_SIZE");
    const char *meet = getenv("PMI_MEET");
    if (meet == NULL) give_up("PMI_MEET is not set");
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size) give_up("rank %d of %d", rank, size);
    char port_file[4000];
    if ((size_t)snprintf(port_file, sizeof port_file, "%s/port", meet) >= sizeof port_file)
        give_up("PMI_MEET is too long");
    if (rank == 0)
        await_peers(port_file);
    else
        find_rank_0(port_file);
    initialized = 1;
    return SUCCESS;
}

int PMI_Initialized(int *is) {
    *is = initialized;
    return SUCCESS;
}

int PMI_Finalize(void) {
    for (int r = 0; r < size; r++)
        if (links[r] != 0) close(links[r]);
    initialized = 0;
    return SUCCESS;
}

int PMI_Abort(int status, const char text[]) {
    fprintf(stderr, "pmi: rank %d: %s\n", rank, text);
    _exit(status == 0 ? 1 : status);
}

int PMI_Get_rank(int *to) {
    *to = rank;
    return SUCCESS;
}

int PMI_Get_size(int *to) {
    *to = size;
    return SUCCESS;
}

// Each gives rank 0 its news, and gets all of them.
int PMI_Barrier(void) {
    struct text all = {0};
    if (rank == 0) {
        append(&all, news.bytes != NULL ? news.bytes : "", news.length);
        for (int r = 1; r < size; r++) get_text(links[r], &all);
        for (int r = 1; r < size; r++) put_text(links[r], &all);
    } else {
        put_text(links[0], &news);
        get_text(links[0], &all);
    }
    append(&known, all.bytes, all.length);
    clear(&all);
    clear(&news);
    return SUCCESS;
}

int PMI_KVS_Get_my_name(char name[], int length) {
    return snprintf(name, (size_t)length, "job") < length ? SUCCESS : FAIL;
}

int PMI_KVS_Get_name_length_max(int *to) {
    *to = MAX_KEY;
    return SUCCESS;
}

int PMI_KVS_Get_key_length_max(int *to) {
    *to = MAX_KEY;
    return SUCCESS;
}

int PMI_KVS_Get_value_length_max(int *to) {
    *to = MAX_VALUE;
    return SUCCESS;
}

int PMI_KVS_Put(const char kvs[], const char key[], const char value[]) {
    (void)kvs;
    if (strlen(key) >= MAX_KEY || strlen(value) >= MAX_VALUE || strpbrk(key, "\t\n") != NULL ||
        strchr(value, '\n') != NULL)
        return FAIL;
    append(&news, key, strlen(key));
    append(&news, "\t", 1);
    append(&news, value, strlen(value));
    append(&news, "\n", 1);
    return SUCCESS;
}

int PMI_KVS_Commit(const char kvs[]) {
    (void)kvs; // the barrier that must follow does it
    return SUCCESS;
}

// The last that was put under a key counts.
int PMI_KVS_Get(const char kvs[], const char key[], char value[], int length) {
    (void)kvs;
    const char *found = NULL;
    size_t key_length = strlen(key);
    for (const char *line = known.bytes; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1)
        if (strncmp(line, key, key_length) == 0 && line[key_length] == '\t') found = line + key_length + 1;
    if (found == NULL) return FAIL;
    size_t n = strcspn(found, "\n");
    if (n >= (size_t)length) return FAIL;
    memcpy(value, found, n);
    value[n] = '\0';
    return SUCCESS;
}
