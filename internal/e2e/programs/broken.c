// SPDX-License-Identifier: Apache-2.0
//
// Signals of writes that cannot be: SIGPIPE where nobody reads, SIGXFSZ above the limit of a file's size.  Each is the
// program's, whether it has a handler, ignores the signal or is ended by it.
// usage: broken ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t heard;
static void hear(int sig) { heard += sig; }

static int wrong;

static void check(int good, const char *what, int sig, long round) {
    if (good || wrong++ > 10) return;
    printf("round %ld: %s: %s\n", round, strsignal(sig), what);
}

static void disposition(int sig, void (*handler)(int)) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(sig, &a, NULL);
}

static void try(int sig, int fd, int error, long round) {
    disposition(sig, SIG_IGN);
    check(write(fd, "12345678", 8) == -1 && errno == error, "ignored, another error", sig, round);
    disposition(sig, hear);
    heard = 0;
    check(write(fd, "12345678", 8) == -1 && errno == error, "caught, another error", sig, round);
    check(heard == sig, "was not heard", sig, round);
    disposition(sig, SIG_DFL);
}

// In a child: the limit would be one of images, too.
static int child(int sig, int fd, long round) {
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (sig == SIGXFSZ) {
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, 100});
            lseek(fd, 100, SEEK_SET);
            try(sig, fd, EFBIG, round);
            if (wrong) _exit(1);
        }
        _exit(write(fd, "12345678", 8) == 8 ? 2 : 3);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == sig;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    FILE *f = tmpfile();
    if (!f) return 2;
    for (long round = 0; round < rounds; round++) {
        int fd[2];
        if (pipe(fd) != 0) return 2;
        close(fd[0]);
        for (int i = 0; i < 1000; i++) try(SIGPIPE, fd[1], EPIPE, round);
        check(child(SIGPIPE, fd[1], round), "did not end a child", SIGPIPE, round);
        check(child(SIGXFSZ, fileno(f), round), "did not end a child", SIGXFSZ, round);
        close(fd[1]);
        if (round % 20 == 19) printf("%ld\n", round), fflush(stdout);
    }
    printf(wrong ? "broken: %d wrong\n" : "broken: good\n", wrong);
    return wrong != 0;
}
