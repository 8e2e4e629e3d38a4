// SPDX-License-Identifier: Apache-2.0
//
// net.c: where peers are. A gid says it all: address, port, and what proves that who calls has got it from its owner.
//
// Gids travel between the ranks of a job over its own network, which nobody else can read (rails/signaling).
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "verbs/tcp/tcp.h"

struct gid {
    uint8_t prefix[2]; // of addresses that are nobody's
    uint16_t port;     // network order
    struct in_addr at;
    uint64_t secret;
};
_Static_assert(sizeof(struct gid) == sizeof(union ibv_gid), "a gid");

enum { MULTICAST_LIDS = 0xc000 }; // from there on

static struct gid mine = {.prefix = {0xfd, 'c'}};
static uint32_t last;

static int claim(void *who, uint16_t lid, uint16_t port, uint32_t *number) {
    (void)who, (void)lid, (void)port;
    // Only this process must not have it, and 24 bits last for long: one that is in use is not met again soon.
    do last = (last + 1) & 0xffffff;
    while (last < 2);
    *number = last;
    return 0;
}

static void release(void *who, uint32_t number) { (void)who, (void)number; }

static void gid_of(void *who, uint8_t index, union ibv_gid *gid) {
    (void)who, (void)index;
    tcp_gid(gid);
}

static int find(void *who, const struct ibv_ah_attr *way, uint32_t number, struct soft_address *to) {
    struct gid gid;
    (void)who, (void)number;
    if (!way->is_global) return ENOENT;
    memcpy(&gid, &way->grh.dgid, sizeof gid);
    if (memcmp(gid.prefix, mine.prefix, sizeof gid.prefix) != 0) return ENOENT;
    *to =
        (struct soft_address){{.sin_family = AF_INET, .sin_port = gid.port, .sin_addr = gid.at}, gid.secret};
    return 0;
}

// The address of this machine: what CKPT_VERBS_ADDRESS says, else the first that others could reach, else loopback.
static int own_address(struct in_addr *at) {
    const char *said = getenv("CKPT_VERBS_ADDRESS");
    struct ifaddrs *all;
    if (said != NULL) return inet_aton(said, at) ? 0 : EADDRNOTAVAIL;
    at->s_addr = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&all) != 0) return errno;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) continue;
        if (!(one->ifa_flags & IFF_UP) || one->ifa_flags & IFF_LOOPBACK) continue;
        *at = ((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr;
        break;
    }
    freeifaddrs(all);
    return 0;
}

int tcp_start(const struct soft_tell *tell) {
    static bool started;
    if (started) return 0;
    int rc = own_address(&mine.at);
    if (rc != 0) return rc;
    if (getrandom(&mine.secret, sizeof mine.secret, 0) != sizeof mine.secret ||
        getrandom(&last, sizeof last, 0) != sizeof last)
        return EIO;
    struct soft_net net = {.listen = mine.at,
                           .secret = mine.secret,
                           .claim = claim,
                           .release = release,
                           .gid = gid_of,
                           .find = find};
    rc = soft_start(&net, tell);
    mine.port = htons(soft_port());
    started = rc == 0;
    return rc;
}

void tcp_gid(union ibv_gid *gid) { memcpy(gid, &mine, sizeof *gid); }

// Nobody is found by it: who has nothing else asks the job for the gid that goes with it (back/ids.c). There are programs
// that open no port without one, and that route by it.
uint16_t tcp_lid(void) { return (uint16_t)(1 + mine.secret % (MULTICAST_LIDS - 1)); }
