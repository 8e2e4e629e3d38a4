// SPDX-License-Identifier: Apache-2.0
//
// hold.c: linked into the programs of CRIU's suite (--wrap=fork, setsid and test_daemon). They put themselves into the
// background, and who started them tells by that that they are ready. ckptrun saves the process that it started, so
// they stay in the foreground, and make the file ZDTM_READY.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

pid_t __real_fork(void), __real_setsid(void);
pid_t __wrap_fork(void), __wrap_setsid(void);
void __real_test_daemon(void), __wrap_test_daemon(void);

// The first one is that into the background.
pid_t __wrap_fork(void) {
    static int begun;
    return begun++ ? __real_fork() : 0;
}

// So is this, and it fails for a process that leads its group.
pid_t __wrap_setsid(void) {
    static int led;
    pid_t id = __real_setsid();
    return led++ ? id : getpid();
}

void __wrap_test_daemon(void) {
    const char *ready = getenv("ZDTM_READY");
    __real_test_daemon();
    if (ready != NULL) close(open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
}
