// SPDX-License-Identifier: Apache-2.0
//
// Other programs: system, popen both ways, posix_spawn with file actions and of a missing file, vfork
// and exec, fork with a shared file offset, clone onto a stack of the child's own, exit statuses, and what a failing exec says.
// usage: spawn ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Works for a while without any child, so that there are moments for everything.
static uint64_t compute(uint64_t v) {
    for (int i = 0; i < 15000000; i++) v = v * 6364136223846793005u + 1442695040888963407u;
    return v;
}

static void show(const char *what, int status) {
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else
        printf("%s: signal %d\n", what, WTERMSIG(status));
}

static void run_shell(int i) {
    char command[100];
    snprintf(command, sizeof command, "echo from system %d; exit %d", i, i % 7);
    fflush(stdout);
    show("system", system(command));
}

static void read_from(int i) {
    char command[100], line[100] = "";
    snprintf(command, sizeof command, "echo $((%d * %d)) | tr 0-9 a-j", i + 1000, i + 77);
    FILE *f = popen(command, "r");
    if (f == NULL || fgets(line, sizeof line, f) == NULL) printf("popen: %s\n", strerror(errno));
    printf("popen read %s", line);
    show("pclose", pclose(f));
}

static void write_to(int i) {
    fflush(stdout);
    FILE *f = popen("tr a-z A-Z", "w");
    fprintf(f, "to be shouted %d\n", i);
    show("pclose", pclose(f));
}

static void spawn(void) {
    pid_t pid;
    char *missing[] = {"/no/such/program", NULL};
    printf("posix_spawn of a missing file: %s\n",
           strerror(posix_spawn(&pid, missing[0], NULL, NULL, missing, environ)));
    printf("posix_spawnp of a missing file: %s\n",
           strerror(posix_spawnp(&pid, "no-such-program", NULL, NULL, missing, environ)));
    char *folder[] = {"/", NULL};
    printf("posix_spawn of a directory: %s\n",
           strerror(posix_spawn(&pid, folder[0], NULL, NULL, folder, environ)));

    int p[2];
    if (pipe2(p, O_CLOEXEC) != 0) abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, p[1], 1);
    char *echo[] = {"sh", "-c", "echo spawned; exit 5", NULL};
    int e = posix_spawnp(&pid, "sh", &actions, NULL, echo, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(p[1]);
    char text[100] = "";
    ssize_t n = e == 0 ? read(p[0], text, sizeof text - 1) : 0;
    close(p[0]);
    int status = 0;
    if (e == 0) waitpid(pid, &status, 0);
    printf("posix_spawnp: %s, %zd bytes: %s", strerror(e), n, text);
    show("spawned", status);
}

static void fork_sharing_offset(int i) {
    FILE *f = tmpfile();
    int fd = fileno(f);
    if (write(fd, "parent ", 7) != 7) abort();
    pid_t pid = fork();
    if (pid == 0) {
        if (write(fd, "child ", 6) != 6) _exit(1);
        _exit(i % 100);
    }
    int status;
    waitpid(pid, &status, 0);
    show("forked", status);
    if (write(fd, "parent", 6) != 6) abort();
    char text[64] = "";
    if (pread(fd, text, sizeof text - 1, 0) < 0) abort();
    printf("file: %s\n", text);
    fclose(f);
}

static void vfork_exec(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "kill -TERM $$", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    show("vfork and exec", status);
    volatile int error = 0;
    pid = vfork();
    if (pid == 0) {
        execl("/no/such/program", "x", (char *)NULL);
        error = errno; // the memory is shared with the parent
        _exit(126);
    }
    waitpid(pid, &status, 0);
    show("vfork and failing exec", status);
    printf("its error: %s\n", strerror(error));
}

static int on_own_stack(void *number) {
    char here;
    return (char *)number < &here || &here < (char *)number - (64 << 10) ? 1 : ++*(int *)number;
}

// A copy of the process that begins on another stack, whose memory is its own, too.
static void clone_with_stack(void) {
    enum { BYTES = 64 << 10 };
    char *stack = malloc(BYTES);
    int *number = (int *)(stack + BYTES - 64), status;
    if (stack == NULL) abort();
    *number = 41;
    pid_t pid = clone(on_own_stack, number, SIGCHLD, number);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        printf("clone: %s\n", strerror(errno));
    } else {
        show("clone onto a stack", status);
        printf("the parent's number is %d\n", *number);
    }
    free(stack);
}

// A descriptor of the child, of the next number, that tells when it ends; with a copy of the memory, and borrowing it.
static void clone_with_descriptor(void) {
    enum { BYTES = 64 << 10 };
    static const int ways[] = {0, CLONE_VM | CLONE_VFORK};
    int next = dup(0), fd = -1;
    close(next);
    char *stack = malloc(BYTES);
    if (stack == NULL) abort();
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        int *number = (int *)(stack + BYTES - 64);
        *number = 6;
        pid_t pid = clone(on_own_stack, number, SIGCHLD | CLONE_PIDFD | ways[i], number, &fd);
        struct pollfd end = {.fd = fd, .events = POLLIN};
        siginfo_t info = {0};
        printf("clone with a descriptor: %d", pid > 0 && fd == next && fcntl(fd, F_GETFD) == FD_CLOEXEC);
        printf(" %d", poll(&end, 1, 60000));
        printf(" %d", waitid(P_PIDFD, (id_t)fd, &info, WEXITED));
        printf(" %d %d\n", info.si_pid == pid, info.si_status);
        close(fd);
    }
    free(stack);
    errno = 0;
    pid_t none = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_PIDFD | CLONE_PARENT_SETTID, 0, &fd, 0, 0);
    if (none == 0) _exit(1);
    printf("clone with a descriptor and an id: %d (%s)\n", none, strerror(errno));
}

static void wakes(int sig) { (void)sig; }

// A child that waits hears what others send it, also what a write to a broken pipe would.
static void wake_child(void) {
    int ready[2], status;
    char c;
    if (pipe(ready) != 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, wakes);
        if (write(ready[1], "", 1) != 1) _exit(1);
        pause();
        _exit(3);
    }
    if (read(ready[0], &c, 1) != 1) abort();
    // Sent again, as it may come before the child waits.
    do kill(pid, SIGPIPE);
    while (usleep(10000), waitpid(pid, &status, WNOHANG) == 0);
    close(ready[0]), close(ready[1]);
    show("child that was sent SIGPIPE", status);
}

// Numbers of descriptors are what the kernel would give, and wrong flags are told before wrong numbers.
static void numbers(void) {
    int next = dup(0);
    close(next);
    int made = (int)syscall(SYS_memfd_secret, 0), unused = errno;
    printf("memfd_secret gives the next number, or none: %d\n",
           made == next || (made < 0 && unused == ENOSYS));
    if (made >= 0) printf("closed: %d\n", close(made));
    const long above = 7l << 32; // what a register has above an int means nothing
    long copy = syscall(SYS_dup, above | 0);
    printf("of an int: %d %d", copy == next, (int)syscall(SYS_dup2, above | 0, copy) == copy);
    printf(" %d", (int)syscall(SYS_fcntl, above | copy, above | F_GETFD));
    printf(" %d %d\n", (int)syscall(SYS_close, above | copy), (int)syscall(SYS_close, above | copy));
    printf("dup3 with wrong flags: %d", dup3(900, 5, -1));
    printf(" (%s)\n", strerror(errno));
    void *nothing = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, next, 0);
    printf("mmap of a closed number: %d (%s)\n", nothing != MAP_FAILED, strerror(errno));
    // Without a number left, nothing is made or emptied, either.
    char name[] = "/tmp/numbers-XXXXXX", other[sizeof name + 1];
    struct rlimit was, none;
    int file = mkstemp(name);
    if (file < 0 || write(file, "content", 7) != 7 || getrlimit(RLIMIT_NOFILE, &was) != 0) abort();
    none = was, none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    int emptied = open(name, O_WRONLY | O_TRUNC), error = errno;
    printf("open without a number: %d (%s)", emptied, strerror(error));
    strcat(strcpy(other, name), "+");
    int created = open(other, O_WRONLY | O_CREAT, 0600);
    setrlimit(RLIMIT_NOFILE, &was);
    printf(" %d, %ld bytes are left, %d file is made\n", created, (long)lseek(file, 0, SEEK_END),
           unlink(other) == 0);
    unlink(name);
    close(file);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    uint64_t v = 1;
    pid_t self = getpid(), parent_of_child = 0;
    for (int i = 0; i < rounds; i++) {
        v = compute(v);
        run_shell(i);
        v = compute(v);
        read_from(i);
        write_to(i);
        v = compute(v);
        spawn();
        fork_sharing_offset(i);
        v = compute(v);
        vfork_exec();
        clone_with_stack();
        clone_with_descriptor();
        numbers();
        wake_child();
        int p[2];
        if (pipe(p) != 0) abort();
        pid_t child = fork();
        if (child == 0) {
            pid_t pp = getppid();
            _exit(write(p[1], &pp, sizeof pp) != sizeof pp);
        }
        if (read(p[0], &parent_of_child, sizeof parent_of_child) != sizeof parent_of_child) abort();
        pid_t ended = wait(NULL);
        close(p[0]);
        close(p[1]);
        printf("child: its parent is %s, waited for %s, no more: %s\n",
               parent_of_child == self ? "me" : "another", ended == child ? "it" : "another",
               wait(NULL) < 0 ? strerror(errno) : "?");
        fflush(stdout);
    }
    printf("pid %s, result %016lx\n", self == getpid() ? "same" : "changed", (unsigned long)v);
    return 0;
}
