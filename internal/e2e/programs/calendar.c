// SPDX-License-Identifier: Apache-2.0
//
// calendar: a program that sees another calendar, as on a node whose clock is wrong.
//
//     calendar FOLDER PROGRAM [ARGUMENT...]
//
// FOLDER/HOST, where HOST is the name of the node, has the seconds by which CLOCK_REALTIME is ahead there; it may change
// at any time. The kernel has one such clock for all namespaces, but programs read it in the vDSO, which is memory of
// theirs: functions there are replaced by others that ask the kernel and add the seconds. A system call of
// the program's own is not seen, nor times of files, which a server's calendar says as well.
//
// The program is this process, so that signals and the end are its own. A process that is nobody's child changes the vDSO
// when it has begun, and again when the seconds have changed.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "calendar: %s: %s\n", what, strerror(errno));
    _exit(125);
}

// Where the seconds stand in each, as a signed 32-bit number.
struct function {
    const char *name;
    int seconds;
    const unsigned char *code;
    size_t bytes;
};
static const unsigned char clock_gettime_code[] = {
    0xb8, 228,  0,    0, 0,       // mov eax, SYS_clock_gettime
    0x0f, 0x05,                   // syscall
    0x85, 0xc0,                   // test eax, eax
    0x75, 0x10,                   // jnz out
    0x85, 0xff,                   // test edi, edi: CLOCK_REALTIME
    0x74, 0x05,                   // jz add
    0x83, 0xff, 5,                // cmp edi, CLOCK_REALTIME_COARSE
    0x75, 0x07,                   // jne out
    0x48, 0x81, 0x06, 0, 0, 0, 0, // add: add qword [rsi], seconds
    0xc3,                         // out: ret
};
static const unsigned char gettimeofday_code[] = {
    0xb8, 96,   0,    0, 0,       // mov eax, SYS_gettimeofday
    0x0f, 0x05,                   // syscall
    0x85, 0xc0,                   // test eax, eax
    0x75, 0x0c,                   // jnz out
    0x48, 0x85, 0xff,             // test rdi, rdi
    0x74, 0x07,                   // jz out
    0x48, 0x81, 0x07, 0, 0, 0, 0, // add qword [rdi], seconds
    0xc3,                         // out: ret
};
static const unsigned char time_code[] = {
    0x57,                      // push rdi
    0x31, 0xff,                // xor edi, edi
    0xb8, 201,  0,    0, 0,    // mov eax, SYS_time
    0x0f, 0x05,                // syscall
    0x5f,                      // pop rdi
    0x48, 0x05, 0,    0, 0, 0, // add rax, seconds
    0x48, 0x85, 0xff,          // test rdi, rdi
    0x74, 0x03,                // jz out
    0x48, 0x89, 0x07,          // mov [rdi], rax
    0xc3,                      // out: ret
};
static const struct function functions[] = {
    {"__vdso_clock_gettime", 23, clock_gettime_code, sizeof clock_gettime_code},
    {"__vdso_gettimeofday", 19, gettimeofday_code, sizeof gettimeofday_code},
    {"__vdso_time", 13, time_code, sizeof time_code},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static int memory = -1; // of the program

static void get(uint64_t at, void *to, size_t bytes) {
    if (pread(memory, to, bytes, (off_t)at) != (ssize_t)bytes) fail("its memory cannot be read");
}

// The address of the vDSO, as the kernel told the program.
static uint64_t vdso(pid_t pid) {
    char path[64];
    Elf64_auxv_t a;
    snprintf(path, sizeof path, "/proc/%d/auxv", pid);
    FILE *f = fopen(path, "r");
    if (!f) fail(path);
    while (fread(&a, sizeof a, 1, f) == 1)
        if (a.a_type == AT_SYSINFO_EHDR) {
            fclose(f);
            return a.a_un.a_val;
        }
    fail("it has no vDSO");
    return 0;
}

static void find(uint64_t base, uint64_t at[FUNCTIONS]) {
    Elf64_Ehdr e;
    Elf64_Shdr s;
    get(base, &e, sizeof e);
    for (int i = 0; i < e.e_shnum; i++) {
        get(base + e.e_shoff + (uint64_t)i * sizeof s, &s, sizeof s);
        if (s.sh_type != SHT_DYNSYM) continue;
        Elf64_Shdr names;
        get(base + e.e_shoff + s.sh_link * sizeof names, &names, sizeof names);
        for (uint64_t n = 0; n < s.sh_size / sizeof(Elf64_Sym); n++) {
            Elf64_Sym sym;
            char name[32] = "";
            get(base + s.sh_offset + n * sizeof sym, &sym, sizeof sym);
            get(base + names.sh_offset + sym.st_name, name, sizeof name - 1);
            for (int f = 0; f < FUNCTIONS; f++)
                if (strcmp(name, functions[f].name) == 0 && sym.st_size >= functions[f].bytes)
                    at[f] = base + sym.st_value;
        }
    }
    for (int f = 0; f < FUNCTIONS; f++)
        if (!at[f]) fail(functions[f].name);
}

static int32_t seconds_of(const char *path) {
    int seconds = 0;
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%d", &seconds) != 1) seconds = 0;
    fclose(f);
    return seconds;
}

static void set(const uint64_t at[FUNCTIONS], int32_t seconds) {
    for (int f = 0; f < FUNCTIONS; f++)
        if (pwrite(memory, &seconds, sizeof seconds, (off_t)at[f] + functions[f].seconds) != sizeof seconds)
            _exit(0); // it has ended
}

static void watch(pid_t pid, const char *file, int go) {
    int status;
    if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXEC)) fail("ptrace");
    if (write(go, "", 1) != 1) fail("pipe");
    // The first stop is that of exec; a signal that comes before is the program's.
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status) &&
           status >> 8 != (SIGTRAP | PTRACE_EVENT_EXEC << 8))
        ptrace(PTRACE_CONT, pid, 0, status >> 16 ? 0 : WSTOPSIG(status));
    if (!WIFSTOPPED(status)) _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    if ((memory = open(path, O_RDWR | O_CLOEXEC)) < 0) fail(path);
    uint64_t at[FUNCTIONS] = {0};
    find(vdso(pid), at);
    for (int f = 0; f < FUNCTIONS; f++)
        if (pwrite(memory, functions[f].code, functions[f].bytes, (off_t)at[f]) !=
            (ssize_t)functions[f].bytes)
            fail("its vDSO cannot be written to");
    int32_t is = seconds_of(file);
    set(at, is);
    if (ptrace(PTRACE_DETACH, pid, 0, 0)) fail("ptrace");
    for (;; usleep(20000)) {
        int32_t to = seconds_of(file);
        char mapped;
        if (pread(memory, &mapped, 1, (off_t)at[0]) != 1) _exit(0);
        if (to != is) set(at, is = to);
    }
}

int main(int argc, char **argv) {
    char host[HOST_NAME_MAX + 1] = "", file[PATH_MAX];
    int go[2];
    char byte;
    if (argc < 3) {
        fprintf(stderr, "usage: calendar FOLDER PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    if (gethostname(host, sizeof host - 1) || pipe2(go, O_CLOEXEC)) fail("gethostname, pipe");
    snprintf(file, sizeof file, "%s/%s", argv[1], host);
    pid_t me = getpid(), child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        if (fork() != 0) _exit(0);
        setsid();
        // The launcher waits for the end of what the program says.
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 0), dup2(null, 1);
        close(go[0]);
        watch(me, file, go[1]);
    }
    waitpid(child, NULL, 0);
    close(go[1]);
    if (read(go[0], &byte, 1) != 1) return 125;
    execvp(argv[2], argv + 2);
    fail(argv[2]);
}
