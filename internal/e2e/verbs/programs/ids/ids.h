// SPDX-License-Identifier: Apache-2.0
//
// ids.h: ids of librdmacm, and what comes of them, one line each.
#ifndef IDS_H
#define IDS_H

#include <stdbool.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

typedef struct rdma_event_channel channel;
typedef struct rdma_cm_id id;

_Noreturn void die(const char *what);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// A step by its name: what it returned, and errno.
void step(const char *name, int result);
void good(const char *name, int result); // which must be 0

channel *new_channel(void);
id *new_id(channel *c, enum rdma_port_space ps);
struct sockaddr_in address(const char *ip, int port);
id *listener(channel *c, enum rdma_port_space ps, int port);
// An id on the way to a port of this host, up to where it may connect.
id *caller(channel *c, enum rdma_port_space ps, int port);
void queue_pair(id *i);
int calls(id *i, const char *data); // rdma_connect
int takes(id *i, const char *data); // rdma_accept, with a queue pair of its own

// The next event of a channel: it is printed behind a word, and given back. The id, of which that may be the last.
id *next(const char *word, channel *c, enum rdma_cm_event_type want);
id *next_status(const char *word, channel *c, enum rdma_cm_event_type want, int *status);
bool waits(channel *c, int ms); // there is an event within this time
void none(const char *word, channel *c);
void gone(id *i); // with its queue pair

// Each id sends to the other, and looks at what it got.
void sends(id *i, char filler);
void receives(id *i, char filler);
void ready_to_receive(id *i);

// Until somebody makes a file; the line that is printed before says that all is there.
void hold(const char *file);

void server(int port, const char *file);
void client(int port, const char *file);

#endif
