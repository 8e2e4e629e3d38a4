// SPDX-License-Identifier: Apache-2.0
//
// front.h: what the files of the front share.
#ifndef VERBS_FRONT_H
#define VERBS_FRONT_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/private/gate.h"
#include "verbs/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

// Every function with this is one of libibverbs.map.
#define API __attribute__((visibility("default")))

// Calls the lower half.
#define CROSS(number, ...) ((long)front_cross((number), (const long[]){__VA_ARGS__}))
long front_cross(enum v_function number, const long *args);
long front_load(void); // 0, or an error number; once
extern struct v_root front_root;

// A result of ours as functions of libibverbs give it: NULL and errno, or the object.
#define FAILED(error, object) (free(object), errno = (int)(error), NULL)

struct v_context *front_context(struct ibv_context *context);
void front_fill(struct verbs_context *v); // slots.c
int front_bell(struct v_bell *bell);      // channel.c
void front_bell_end(struct v_bell *bell); // channel.c
int front_wait(struct v_bell *bell);      // channel.c
int front_no_fd(struct v_bell *bell);     // channel.c
// Of an object that has ended below: waits until the program has given its asynchronous events back.
void front_given_back(struct v_owed owed);                                          // channel.c
struct v_qp *front_qp(struct ibv_pd *pd, struct ibv_qp_init_attr_ex *attr, int ex); // qp.c
struct v_cq *front_cq(struct ibv_context *context, int cqe, void *cq_context,
                      struct ibv_comp_channel *channel, int vector); // cq.c
int front_build(struct v_qp *qp);                                    // qp_ex.c
struct ibv_qp *front_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_mw *front_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type); // window.c
int front_dealloc_mw(struct ibv_mw *mw);                                 // window.c
int front_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

#endif
