// SPDX-License-Identifier: Apache-2.0
//
// device.c: devices, and what can be asked of them.
#include "verbs/front/front.h"

#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
// For ever: programs keep devices longer than lists.
static struct v_device *device_of(const struct v_about *a) {
    struct v_device *d;
    for (d = front_root.devices; d; d = d->next)
        if (!strcmp(d->d.name, a->name)) return d;
    d = calloc(1, sizeof *d);
    if (!d) return NULL;
    memcpy(d->d.name, a->name, sizeof a->name);
    memcpy(d->d.dev_name, a->dev_name, sizeof a->dev_name);
    memcpy(d->d.dev_path, a->dev_path, sizeof a->dev_path);
    memcpy(d->d.ibdev_path, a->ibdev_path, sizeof a->ibdev_path);
    d->d.node_type = a->node_type;
    d->d.transport_type = a->transport_type;
    d->guid = a->guid;
    d->index = a->index;
    d->next = front_root.devices;
    return front_root.devices = d;
}

enum { DEVICES = 64 };

API struct ibv_device **ibv_get_device_list(int *num) {
    if (num) *num = 0;
    long r = front_load();
    if (r) {
        errno = (int)r;
        return NULL;
    }
    struct v_about *about = calloc(DEVICES, sizeof *about);
    if (!about) return NULL;
    long n = CROSS(V_DEVICES, (long)about, DEVICES);
    if (n < 0) return FAILED(-n, about);
    struct ibv_device **list = calloc((size_t)n + 1, sizeof *list);
    pthread_mutex_lock(&mutex);
    for (long i = 0; list && i < n; i++)
        if (!(list[i] = (struct ibv_device *)device_of(&about[i]))) {
            free(list);
            list = NULL;
        }
    pthread_mutex_unlock(&mutex);
    free(about);
    if (!list) errno = ENOMEM;
    if (list && num) *num = (int)n;
    return list;
}

API void ibv_free_device_list(struct ibv_device **list) { free(list); }

API const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

API __be64 ibv_get_device_guid(struct ibv_device *device) { return v_of(v_device, d, device)->guid; }

API int ibv_get_device_index(struct ibv_device *device) { return v_of(v_device, d, device)->index; }

struct v_context *front_context(struct ibv_context *context) {
    return v_of(v_context, v.context, context);
}

API struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct v_context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->v.sz = sizeof c->v;
    c->v.context.device = device;
    c->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    // Programs may duplicate it, to import the device elsewhere; that is refused.
    c->v.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (c->v.context.cmd_fd < 0) return FAILED(errno, c);
    pthread_mutex_init(&c->v.context.mutex, NULL);
    front_fill(&c->v);
    long r = front_bell(&c->bell);
    c->v.context.async_fd = c->bell.fd;
    if (!r) r = CROSS(V_OPEN, (long)c);
    if (r) {
        front_bell_end(&c->bell);
        close(c->v.context.cmd_fd);
        return FAILED(r, c);
    }
    return &c->v.context;
}

API int ibv_close_device(struct ibv_context *context) {
    struct v_context *c = front_context(context);
    long r = CROSS(V_CLOSE, (long)c);
    if (r) return (int)r;
    front_bell_end(&c->bell);
    close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    free(c);
    return 0;
}

API int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    return (int)CROSS(V_DEVICE, (long)front_context(context), (long)attr);
}

// Programs that are older than the fields of ibv_port_attr after phys_state have a shorter structure.
API int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
    struct ibv_port_attr all;
    memset(&all, 0, sizeof all);
    long r = CROSS(V_PORT, (long)front_context(context), port, (long)&all);
    if (!r) memcpy(attr, &all, offsetof(struct ibv_port_attr, port_cap_flags2));
    return (int)r;
}

// Returns -1 and sets errno, as libibverbs' function does.
static int minus(long r) {
    if (!r) return 0;
    errno = (int)r;
    return -1;
}

API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    return minus(CROSS(V_GID, (long)front_context(context), port, index, (long)gid));
}

API int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                          struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
    return (int)CROSS(V_GID_EX, (long)front_context(context), port, index, (long)entry, flags, (long)size);
}

API ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                                 uint32_t flags, size_t size) {
    return CROSS(V_GID_TABLE, (long)front_context(context), (long)entries, (long)max, flags, (long)size);
}

// Of rdma-core's own programs: 0 is InfiniBand or RoCE version 1, 1 is RoCE version 2.
API int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);
API int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type) {
    struct ibv_gid_entry e;
    int r = _ibv_query_gid_ex(context, port, index, &e, 0, sizeof e);
    if (r) return minus(r);
    *type = e.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

API int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    return minus(CROSS(V_PKEY, (long)front_context(context), port, index, (long)pkey));
}

API int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
    __be16 one;
    for (int i = 0; ibv_query_pkey(context, port, i, &one) == 0; i++)
        if (one == pkey) return i;
    return -1;
}

API const char *ibv_get_sysfs_path(void);
API const char *ibv_get_sysfs_path(void) {
    const char *path = getenv("SYSFS_PATH");
    return path ? path : "/sys";
}

API int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
API int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size) {
    char path[IBV_SYSFS_PATH_MAX + 300];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, buf, size);
    close(fd);
    if (n > 0 && buf[n - 1] == '\n')
        buf[--n] = 0;
    else if (n >= 0 && (size_t)n < size)
        buf[n] = 0;
    return (int)n;
}

// A forked child never sees a device, and the lower half forks by itself to save the program: memory that were hidden
// from forks would be missing in the image (docs/verbs.md).
API int ibv_fork_init(void) { return 0; }
API enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
API int ibv_dontfork_range(void *base, size_t size);
API int ibv_dontfork_range(void *base, size_t size) { return (void)base, (void)size, 0; }
API int ibv_dofork_range(void *base, size_t size);
API int ibv_dofork_range(void *base, size_t size) { return (void)base, (void)size, 0; }
