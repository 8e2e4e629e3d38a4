// SPDX-License-Identifier: Apache-2.0
//
// fds.h: to which half a descriptor belongs, and its number there (fds.c).
#ifndef FDS_H
#define FDS_H

#include <sys/resource.h>
#include <stdbool.h>

#include "hostgo.h"

struct call;
struct closed_file;
struct fd_table;
struct statx;
struct thread;
struct timespec;

// Numbers below are the application's: FD_MOST or FD_FEW (hostgo.h).  Libraries of the lower half may still use select, so some numbers below its 1024 are left to them.
extern int fd_fence;
#define FD_OWN 64 // descriptors that ckptrun and the real MPI need at least, from fd_fence on
// again: numbers below fd_fence are the application's already; argv: it has those that an argument names, too.
void fds_give_back(void); // the launcher's descriptors, to a runtime in the upper half
void fds_isolate(bool again, char *const *argv);
// entry: NAME=NUMBER of an environment.  If it names a descriptor of the launcher, returns the new number,
// else -1.
int fds_launcher(struct call *c, const char *entry);
bool is_used(struct call *c, long argument); // the application has a descriptor of that number
int fds_used(int *list, int max);            // numbers below fd_fence that the application has
int fds_place(int number, int from, bool cloexec);
int fds_original(int i); // high-numbered dup of the launcher's descriptor i, or -1
// The descriptor table of t, or of the process when t is NULL.
struct fd_table *fds_of(struct thread *t);
// Under host.lock: limits.c is what asks.
long fds_limit(struct fd_table *f, const struct rlimit *new, struct rlimit *old);
rlim_t fds_soft_for_exec(struct thread *t);
bool fds_select(struct call *c); // no set of this select names a closed descriptor
void fds_forked(void);
void fds_abort_job(int status); // has MPICH's launcher end the other ranks
void fds_vfork_begin(struct thread *t);
void fds_vfork_end(struct thread *t);

// made.c: names that the application gives to files, noted for a restart.
void made_log(int fd, int folder, uint64_t at, uint64_t bytes); // host_ops.made
bool made_begins(long dir, long path,
                 uint64_t ino); // before what may make it; false: it is there, or nobody wants to know
void made_note(int fd);         // afterwards
bool made_logs(void);           // whether anybody wants to know
int made_file(void);            // its descriptor, -1: none
struct made_name;
bool made_sized(struct made_name *r, int64_t size, int fd); // the path is that of fd; -1: none
struct made_spoilt;
bool made_spoils(const struct made_name *head, const struct made_spoilt *what, const char *path,
                 const char *renamed);
long made_path(long dir, long path,
               char *absolute); // its length, with room for 2 * 4096 bytes; 0: there is none

// spoilt.c: what the application is about to take from files that were there at the checkpoint.
void spoilt_again(int folder, uint64_t at, uint64_t bytes);           // a checkpoint is taken
void spoilt_content(struct call *c, long dir, long path, long flags); // is about to be opened
void spoilt_grows(int fd);                                            // is open to append
int spoilt_folder(void);                                              // its descriptor, -1: none
void spoilt_openat2(struct call *c);
void spoilt_made(const struct statx *st); // that was not there at the checkpoint

bool fds_has(int fd); // whether it is the application's

// locks.c: record locks of the application.
void locks_taken(void);     // there may be some
void locks_close(int high); // of a descriptor that was moved to another number
void locks_forked(void);    // in a child, which has none
void locks_closed(void);    // the application has closed something

// appended.c: files that the application appends to.
void appended_again(void);                      // a checkpoint is taken
void appended_opens(int fd, long flags);        // has been opened, and was there
void appended_closes(int fd);                   // is about to be closed.  Without locks: it writes to a file
long fd_path(int fd, char *path, size_t bytes); // closed.c: as readlink returns it

// closed.c: files that the application has written to and closed, until they are known to be durable.
void closed_note(int fd); // is about to be closed
int closed_file(int i, struct closed_file *out);
void closed_safe(uint64_t number);

struct socket_name;
void names_set(const struct socket_name *list, int n);

struct visitor;
int visitors_list(struct visitor *to, int max);
void visitors_set(const struct visitor *from, int n);
void visitors_closed(void);           // a descriptor was closed
long visitors_accept(struct call *c); // accept and accept4; a number of the lower half

void fronts_scan(void);
const char *front_for(const char *path); // the front that stands in for path's file, or NULL

#endif
