// SPDX-License-Identifier: Apache-2.0
//
// entry.c: the library's one symbol, the functions behind the gate, the lists of objects.
#include "verbs/back/lower.h"

#include <stdarg.h>

struct v_root *root;
struct verbs_host verbs_host;
uint32_t lists_lock;

void list_add(struct v_node **list, struct v_node *node) {
    take(&lists_lock);
    node->next = *list;
    node->at = list;
    if (*list) (*list)->at = &node->next;
    *list = node;
    give(&lists_lock);
}

void list_remove(struct v_node *node) {
    take(&lists_lock);
    *node->at = node->next;
    if (node->next) node->next->at = node->at;
    give(&lists_lock);
}

void say(const char *format, ...) {
    char line[500];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    verbs_host.say(line);
}

static long (*const functions[V_FUNCTIONS])(const long *) = {
    [V_DEVICES] = f_devices,
    [V_OPEN] = f_open,
    [V_CLOSE] = f_close,
    [V_DEVICE] = f_device,
    [V_DEVICE_EX] = f_device_ex,
    [V_PORT] = f_port,
    [V_GID] = f_gid,
    [V_GID_EX] = f_gid_ex,
    [V_GID_TABLE] = f_gid_table,
    [V_PKEY] = f_pkey,
    [V_PD] = f_pd,
    [V_PD_END] = f_pd_end,
    [V_MR] = f_mr,
    [V_MR_END] = f_mr_end,
    [V_CHANNEL] = f_channel,
    [V_CHANNEL_END] = f_channel_end,
    [V_CQ] = f_cq,
    [V_CQ_RESIZE] = f_cq_resize,
    [V_CQ_END] = f_cq_end,
    [V_EVENT] = f_event,
    [V_ASYNC_EVENT] = f_async,
    [V_SRQ] = f_srq,
    [V_SRQ_MODIFY] = f_srq_modify,
    [V_SRQ_QUERY] = f_srq_query,
    [V_SRQ_END] = f_srq_end,
    [V_QP] = f_qp,
    [V_QP_MODIFY] = f_qp_modify,
    [V_QP_QUERY] = f_qp_query,
    [V_QP_END] = f_qp_end,
    [V_AH] = f_ah,
    [V_AH_END] = f_ah_end,
    [V_MULTICAST] = f_multicast,
    [V_SEND] = f_send,
    [V_RECEIVE] = f_receive,
    [V_SRQ_RECEIVE] = f_srq_receive,
    [V_POLL] = f_poll,
    [V_ARM] = f_arm,
    [V_TEXT] = f_text,
    [V_RATE] = f_rate,
    [V_MR_AGAIN] = f_mr_again,
    [V_MW] = f_mw,
    [V_MW_END] = f_mw_end,
    [V_BIND] = f_bind,
};

static int load(uint64_t at) {
    struct v_root *r = (struct v_root *)at;
    if (verbs_host.ranks > 1 && verbs_host.rank >= V_RANKS) {
        say("rank %d: a job of processes that use InfiniBand can have %d of them", verbs_host.rank, V_RANKS);
        return ENOSYS;
    }
    r->rank = verbs_host.ranks ? verbs_host.rank : 0;
    r->ranks = verbs_host.ranks;
    r->fixed = verbs_host.ranks > 1;
    root = r;
    if (!r->devices) return 0;
    const char *wrong = real_without_devices(); // it is a restarted program
    if (wrong) say("no InfiniBand device here, and not over TCP either: %s", wrong);
    return 0;
}

static int used(void) { return root && root->contexts; }
static uint64_t root_at(void) { return (uint64_t)root; }

static int over_tcp(void) { return real_over_tcp; }

static const struct verbs_calls calls = {
    .used = used,
    .root = root_at,
    .tcp = over_tcp,
    .holds = drain_holds,
    .descriptors = bells,
    .turn = drain_turn,
    .end = drain_end,
    .answer = ids_answer,
    .make = make_again,
};

__attribute__((visibility("default"))) const struct verbs_back *ckpt_verbs_entry(
    const struct verbs_host *host, char *why, size_t bytes) {
    static const struct verbs_back back = {VERBS_BACK_VERSION, V_FUNCTIONS, functions, load, &calls};
    if (host->version != VERBS_BACK_VERSION) {
        snprintf(why, bytes, "the installation mixes two versions");
        return NULL;
    }
    verbs_host = *host;
    const char *wrong = real_open();
    if (wrong) {
        snprintf(why, bytes, "%s", wrong);
        return NULL;
    }
    return &back;
}
