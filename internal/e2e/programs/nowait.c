// SPDX-License-Identifier: Apache-2.0
//
// nowait.c: calls that no signal ends are not ended by one.  Signals with a handler, and without SA_RESTART, come
// all the time while the program makes such calls; the last line is "nowait: good".
//
//   nowait SECONDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static int bad;

static void on_signal(int sig) {
    (void)sig;
    signals++;
}

static void is(int ok, const char *what) {
    if (ok || bad > 20) return;
    printf("%s: %s\n", what, strerror(errno)), fflush(stdout);
    bad++;
}

int main(int argc, char **argv) {
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGALRM, &act, NULL);
    pid_t child = fork();
    if (child == 0) {
        struct itimerval none = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &none, NULL);
        for (;;) pause();
    }
    struct sockaddr_un name = {.sun_family = AF_UNIX}; // gets an abstract name
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    is(listener >= 0 && bind(listener, (void *)&name, sizeof name.sun_family) == 0 &&
           listen(listener, 1) == 0,
       "listen");
    int sem = semget(IPC_PRIVATE, 1, 0600);
    char file[] = "/tmp/nowait-XXXXXX";
    int fd = mkstemp(file);
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 3);
    struct itimerval fast = {{0, 60}, {0, 60}};
    setitimer(ITIMER_REAL, &fast, NULL);
    while (time(NULL) < end) {
        is(fcntl(fd, F_GETFD) >= 0, "F_GETFD");
        is(fcntl(fd, F_GETFL) >= 0, "F_GETFL");
        is(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "F_SETFD");
        int copy = fcntl(fd, F_DUPFD, 20);
        is(copy >= 20, "F_DUPFD");
        is(dup2(fd, copy) == copy, "dup2");
        is(close(copy) == 0, "close");
        int again = open(file, O_RDWR);
        is(again >= 0 && write(again, "x", 1) == 1 && close(again) == 0, "open of a file");
        is(waitpid(child, NULL, WNOHANG) == 0, "waitpid, WNOHANG");
        is(accept(listener, NULL, NULL) < 0 && errno == EAGAIN, "accept, O_NONBLOCK");
        struct sembuf down = {0, -1, IPC_NOWAIT};
        is(sem < 0 || (semop(sem, &down, 1) < 0 && errno == EAGAIN), "semop, IPC_NOWAIT");
        struct stat st;
        is(fstat(fd, &st) == 0 && stat(file, &st) == 0, "stat");
    }
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
    unlink(file);
    if (sem >= 0) semctl(sem, 0, IPC_RMID);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    is(signals > 1000, "the signals came");
    if (!bad) printf("nowait: good\n");
    return bad != 0;
}
