// SPDX-License-Identifier: Apache-2.0
//
// tmpirun: starts the processes of a job on this machine.
//
//     tmpirun [-n PROCESSES] [-r RANKS] [-w WORKERS] [--slots DIR | --restart DIR[@EPOCH]] COMMAND [ARGUMENT...]
//
// --slots has the job save each rank apart, without ckptrun, and --restart continue it so, in any number of processes.
// Each process gets CKPT_RANK and CKPT_SIZE, TMPI_RANKS and TMPI_WORKERS where they are given (ranks and kernel threads
// of a process), and TMPI_MEET, a folder in which the processes find each other.  When one fails the others are
// ended.  The exit status is that of the first that failed; 128 and the signal's number when it died of one.
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4096 };
static pid_t pids[MOST];
static int processes = 1;
static char meet[256];

static void end_all(int signal) {
    for (int i = 0; i < processes; i++)
        if (pids[i] > 0) kill(pids[i], signal);
}

// The launcher was asked to end: so are the processes.
static void forward(int signal) { end_all(signal); }

static void remove_meet(void) {
    DIR *folder = opendir(meet);
    for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;)
        if (e->d_name[0] != '.') unlinkat(dirfd(folder), e->d_name, 0);
    if (folder != NULL) closedir(folder);
    rmdir(meet);
}

static void put(const char *name, long n) {
    char text[32];
    snprintf(text, sizeof text, "%ld", n);
    setenv(name, text, 1);
}

static long number(const char *text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (end != text && *end == 0 && n >= 1 && n <= MOST) return n;
    fprintf(stderr, "tmpirun: %s is not a number from 1 to %d\n", text, MOST);
    exit(2);
}

static void start(int process, char **argv) {
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        fprintf(stderr, "tmpirun: fork: %s\n", strerror(errno));
        end_all(SIGKILL);
        exit(71);
    }
    pids[process] = pid;
    if (pid > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a job does not outlive its launcher
    if (getppid() != parent) _exit(71);
    put("CKPT_RANK", process);
    execvp(argv[0], argv);
    fprintf(stderr, "tmpirun: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int main(int argc, char **argv) {
    const struct option options[] = {
        {"slots", required_argument, NULL, 's'}, {"restart", required_argument, NULL, 'c'}, {0}};
    for (int c; (c = getopt_long(argc, argv, "+n:r:w:", options, NULL)) != -1;) {
        if (c == 's' || c == 'c') put("TMPI_SLOTS", 1);
        if (c == 's') setenv("CKPT_DIR", optarg, 1);
        if (c == 'c') setenv("CKPT_RESTART", optarg, 1);
        if (c == 'n') processes = (int)number(optarg);
        if (c == 'r') put("TMPI_RANKS", number(optarg));
        if (c == 'w') put("TMPI_WORKERS", number(optarg));
        if (c == '?') optind = argc;
    }
    if (optind >= argc) {
        fprintf(
            stderr,
            "tmpirun [-n PROCESSES] [-r RANKS] [-w WORKERS] [--slots DIR | --restart DIR] COMMAND [ARGUMENT...]\n");
        return 2;
    }
    const char *tmp = getenv("TMPDIR");
    snprintf(meet, sizeof meet, "%s/tmpi-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(meet) == NULL) {
        fprintf(stderr, "tmpirun: %s: %s\n", meet, strerror(errno));
        return 71;
    }
    setenv("TMPI_MEET", meet, 1);
    put("CKPT_SIZE", processes);
    struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART};
    const int ends[] = {SIGHUP, SIGINT, SIGTERM};
    for (int i = 0; i < 3; i++) sigaction(ends[i], &action, NULL);
    for (int i = 0; i < processes; i++) start(i, argv + optind);

    int result = 0, status;
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR;) {
        for (int i = 0; i < processes; i++)
            if (pid > 0 && pids[i] == pid) pids[i] = 0;
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (pid <= 0 || code == 0 || result != 0) continue;
        result = code;
        end_all(SIGKILL);
    }
    remove_meet();
    return result;
}
