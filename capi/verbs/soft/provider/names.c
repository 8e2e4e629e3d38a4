// SPDX-License-Identifier: Apache-2.0
//
// names.c: queue pairs of all processes, by number: a directory with a file for each.
//
// The directory is the "wire" of a test: adapters that share it reach each other. A file says which process has
// the number, where it listens, behind which lid, and which gids it has there.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "verbs/soft/provider/provider.h"

enum { NUMBERS = 1 << 24, FIRST = 2 };

static const char *directory;
static uint32_t last;

static int path_of(char *path, size_t size, uint32_t number) {
    int n = snprintf(path, size, "%s/%06x", directory, number);
    return n > 0 && (size_t)n < size ? 0 : ENAMETOOLONG;
}

static bool read_name(const char *path, int *pid, unsigned *port, unsigned *lid) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    bool good = fscanf(f, "%d %u %u", pid, port, lid) == 3;
    fclose(f);
    return good;
}

// The name appears with its content, by a link: whoever finds it can read it.
static int write_name(const char *path, uint16_t port, uint16_t lid) {
    char fresh[4200];
    int pid, n = snprintf(fresh, sizeof fresh, "%s/.%d", directory, (int)getpid());
    unsigned other_port, other_lid;
    if (n <= 0 || (size_t)n >= sizeof fresh) return ENAMETOOLONG;
    FILE *f = fopen(fresh, "we");
    if (f == NULL) return errno;
    fprintf(f, "%d %u %u\n", (int)getpid(), port, lid);
    for (int i = 0; i < provider_port.gids; i++) {
        for (int k = 0; k < 16; k++) fprintf(f, "%02x", provider_port.gid[i].raw[k]);
        fprintf(f, " %d\n", provider_port.v2[i]);
    }
    if (fclose(f) != 0) return errno;
    int rc = link(fresh, path) == 0 ? 0 : errno;
    // A process that was killed leaves its names behind.
    if (rc == EEXIST && read_name(path, &pid, &other_port, &other_lid) && kill(pid, 0) != 0 && errno == ESRCH)
        rc = rename(fresh, path) == 0 ? 0 : errno;
    (void)unlink(fresh);
    return rc;
}

static int claim(void *who, uint16_t lid, uint16_t port, uint32_t *number) {
    (void)who;
    for (int tries = 0; tries < 1 << 16; tries++) {
        char path[4200];
        last = (last + 1) % NUMBERS;
        if (last < FIRST) continue;
        int rc = path_of(path, sizeof path, last);
        if (rc == 0) rc = write_name(path, port, lid);
        if (rc == EEXIST) continue;
        if (rc == 0) *number = last;
        return rc;
    }
    return ENOMEM;
}

static void release(void *who, uint32_t number) {
    char path[4200];
    (void)who;
    if (path_of(path, sizeof path, number) == 0) (void)unlink(path);
}

static bool is_ipv4(const char *hex) { return strncmp(hex, "00000000000000000000ffff", 24) == 0; }

// Whether a way on Ethernet leads to who has this name: by a gid of it, from one of ours of the same type and family.
static bool leads(const char *path, const struct ibv_ah_attr *way) {
    char line[80], to[33], from[33];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    for (int k = 0; k < 16; k++) {
        snprintf(to + 2 * k, 3, "%02x", way->grh.dgid.raw[k]);
        snprintf(from + 2 * k, 3, "%02x", provider_port.gid[way->grh.sgid_index].raw[k]);
    }
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, to, 32) == 0 && is_ipv4(to) == is_ipv4(from) &&
                (line[33] == '1') == provider_port.v2[way->grh.sgid_index];
    fclose(f);
    return found;
}

static int find(void *who, const struct ibv_ah_attr *way, uint32_t number, struct soft_address *to) {
    char path[4200];
    int pid;
    unsigned port, there;
    (void)who;
    if (path_of(path, sizeof path, number) != 0 || !read_name(path, &pid, &port, &there) ||
        (provider_port.ethernet ? !leads(path, way) : there != way->dlid))
        return ENOENT;
    to->secret = 0; // who can read the directory may connect
    to->at = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return 0;
}

// Numbers begin anywhere, so that no two processes, and no two lives of one, have the same; or where a test says.
int provider_net(struct soft_net *net) {
    const char *first = getenv("CKPTSOFT_FIRST");
    directory = getenv("CKPTSOFT_DIR");
    if (directory == NULL || access(directory, W_OK | X_OK) != 0) return directory == NULL ? ENOENT : errno;
    if (first != NULL)
        last = (uint32_t)strtoul(first, NULL, 0) - 1;
    else if (getrandom(&last, sizeof last, 0) != sizeof last)
        return EIO;
    last %= NUMBERS;
    *net = (struct soft_net){.listen.s_addr = htonl(INADDR_LOOPBACK),
                             .claim = claim,
                             .release = release,
                             .find = find,
                             .by_lid = !provider_port.ethernet};
    return 0;
}
