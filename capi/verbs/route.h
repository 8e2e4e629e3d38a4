// SPDX-License-Identifier: Apache-2.0
//
// route.h: the 40 bytes before a datagram.  They are a route header; of a message that came over Ethernet in a packet of
// IPv4, the last 20 of them are that packet's header.
#ifndef CKPT_VERBS_ROUTE_H
#define CKPT_VERBS_ROUTE_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/ip.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t route_checksum(struct iphdr h) {
    uint16_t words[sizeof h / 2];
    uint32_t sum = 0;
    h.check = 0;
    memcpy(words, &h, sizeof h);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t) ~(sum + (sum >> 16));
}

// The header of IPv4, if it is one: what is before it may be anything, even what looks like a route header.
static inline int route_ipv4(const struct ibv_grh *grh, struct iphdr *to) {
    memcpy(to, (const char *)grh + sizeof *grh - sizeof *to, sizeof *to);
    if (to->version != 4 || to->ihl != 5) return 0;
    return ntohl(grh->version_tclass_flow) >> 28 != 6 || to->check == route_checksum(*to);
}

// On Ethernet an address of IPv4 is the gid ::ffff:a.b.c.d.
static inline union ibv_gid route_gid(uint32_t address) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    memcpy(gid.raw + 12, &address, 4);
    return gid;
}

// The address of such a gid.
static inline int route_address(const union ibv_gid *gid, uint32_t *address) {
    union ibv_gid same;
    memcpy(address, gid->raw + 12, 4);
    same = route_gid(*address);
    return !memcmp(&same, gid, sizeof same);
}

#endif
