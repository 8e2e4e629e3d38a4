// SPDX-License-Identifier: Apache-2.0
//
// provider.c: the soft adapter behind the machine's libibverbs: devices and contexts.
//
// libibverbs finds it by IBV_DRIVERS, and a device of it by the tree at SYSFS_PATH, where the kernel has no RDMA.
// internal/e2e/verbs makes both.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs/soft/provider/provider.h"

struct provider_port provider_port;

// A line of a file of the port; false: there is none.
static bool read_line(const char *sysfs, const char *name, char *line, int size) {
    char path[IBV_SYSFS_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/ports/1/%s", sysfs, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    bool is = fgets(line, size, f) != NULL;
    fclose(f);
    return is;
}

static bool read_gid(const char *sysfs, int index, union ibv_gid *gid, bool *v2) {
    char name[32], line[80];
    unsigned part[8];
    snprintf(name, sizeof name, "gids/%d", index);
    if (!read_line(sysfs, name, line, sizeof line) ||
        sscanf(line, "%x:%x:%x:%x:%x:%x:%x:%x", &part[0], &part[1], &part[2], &part[3], &part[4], &part[5],
               &part[6], &part[7]) != 8)
        return false;
    for (int i = 0; i < 16; i++) gid->raw[i] = (uint8_t)(part[i / 2] >> (i % 2 == 0 ? 8 : 0));
    snprintf(name, sizeof name, "gid_attrs/types/%d", index);
    *v2 = read_line(sysfs, name, line, sizeof line) && strncmp(line, "RoCE v2", 7) == 0;
    return true;
}

static void gid_of(void *who, uint8_t index, union ibv_gid *gid) {
    (void)who;
    *gid = provider_port.gid[index < provider_port.gids ? index : 0];
}

static struct abi_device *alloc_device(struct abi_sysfs_device *sysfs) {
    char line[80];
    struct provider_port *p = &provider_port;
    *p = (struct provider_port){.lid = 1};
    if (read_line(sysfs->path, "lid", line, sizeof line)) p->lid = (uint16_t)strtoul(line, NULL, 0);
    p->ethernet =
        read_line(sysfs->path, "link_layer", line, sizeof line) && strncmp(line, "Ethernet", 8) == 0;
    while (p->gids < PROVIDER_GIDS && read_gid(sysfs->path, p->gids, &p->gid[p->gids], &p->v2[p->gids]))
        p->gids++;
    return calloc(1, sizeof(struct abi_device));
}

static void uninit_device(struct abi_device *device) { free(device); }

static void free_context(struct ibv_context *context) {
    struct provider_context *c = provider_of(context);
    provider_release(context->cmd_fd);
    verbs_uninit_context(&c->verbs);
    free(c);
}

static struct verbs_context *alloc_context(struct ibv_device *device, int cmd_fd, void *data) {
    struct soft_net net;
    (void)data;
    int rc = provider_net(&net);
    net.gid = gid_of;
    if (rc == 0) rc = soft_start(&net, &provider_tell);
    if (rc == 0) rc = provider_catch(cmd_fd);
    if (rc != 0) {
        close(cmd_fd); // it is ours from the call on
        errno = rc;
        return NULL;
    }
    struct provider_context *c = _verbs_init_and_alloc_context(
        device, cmd_fd, sizeof *c, (struct verbs_context *)offsetof(struct provider_context, verbs), 0);
    if (c == NULL) {
        provider_release(cmd_fd);
        return NULL;
    }
    c->lid = provider_port.lid, c->ethernet = provider_port.ethernet, c->gids = provider_port.gids;
    c->events = provider_events(&c->verbs.context.async_fd, true);
    if (c->events < 0) {
        rc = errno;
        c->verbs.context.async_fd = -1;
        free_context(&c->verbs.context);
        errno = rc;
        return NULL;
    }
    c->verbs.context.num_comp_vectors = 1;
    struct abi_context_ops ops = provider_ops;
    ops.free_context = free_context;
    verbs_set_ops(&c->verbs, &ops);
    return &c->verbs;
}

static const struct abi_match match[] = {{.modalias = "rdma_device:*Nsoft*", .kind = ABI_MATCH_MODALIAS},
                                         {0}};

static const struct abi_device_ops device_ops = {.name = "ckptsoft",
                                                 .lowest_abi = 0,
                                                 .highest_abi = 1000,
                                                 .match = match,
                                                 .alloc_context = alloc_context,
                                                 .alloc_device = alloc_device,
                                                 .uninit_device = uninit_device};

static __attribute__((constructor)) void register_driver(void) { verbs_register_driver_34(&device_ops); }
