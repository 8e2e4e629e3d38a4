// SPDX-License-Identifier: Apache-2.0
//
// confine PROFILE COMMAND...: runs a command where the kernel forbids it what containers forbid, by a seccomp filter of our
// own. It goes by what the engines document for a container without privileges, and by what they answer:
//
//   docker     "Operation not permitted"; clone3 is not there, so that clone is used, whose flags a filter can see
//   podman     the same calls are not there at all (ENOSYS), for programs that try another way then only
//   strict     docker, and no process may look at another one (ptrace, process_vm_readv), as older engines had it
#include <asm/unistd.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int denied[] = {
    __NR_acct,
    __NR_add_key,
    __NR_bpf,
    __NR_clock_adjtime,
    __NR_clock_settime,
    __NR_delete_module,
    __NR_fanotify_init,
    __NR_finit_module,
    __NR_fsconfig,
    __NR_fsmount,
    __NR_fsopen,
    __NR_fspick,
    __NR_get_mempolicy,
    __NR_init_module,
    __NR_io_uring_enter,
    __NR_io_uring_register,
    __NR_io_uring_setup,
    __NR_ioperm,
    __NR_iopl,
    __NR_kcmp,
    __NR_kexec_file_load,
    __NR_kexec_load,
    __NR_keyctl,
    __NR_lookup_dcookie,
    __NR_mbind,
    __NR_migrate_pages,
    __NR_mount,
    __NR_mount_setattr,
    __NR_move_mount,
    __NR_move_pages,
    __NR_name_to_handle_at,
    __NR_nfsservctl,
    __NR_open_by_handle_at,
    __NR_open_tree,
    __NR_perf_event_open,
    __NR_pidfd_getfd,
    __NR_pivot_root,
    __NR_process_madvise,
    __NR_quotactl,
    __NR_reboot,
    __NR_request_key,
    __NR_set_mempolicy,
    __NR_setns,
    __NR_settimeofday,
    __NR_swapoff,
    __NR_swapon,
    __NR_syslog,
    __NR_umount2,
    __NR_unshare,
    __NR_userfaultfd,
    __NR_uselib,
    __NR_ustat,
    __NR_vhangup,
};
static const int foreign[] = {__NR_process_vm_readv, __NR_process_vm_writev, __NR_ptrace};

static struct sock_filter code[256];
static unsigned short n;

static void add(unsigned short op, unsigned k, unsigned char yes, unsigned char no) {
    code[n++] = (struct sock_filter){op, yes, no, k};
}

enum {
    LOAD = BPF_LD | BPF_W | BPF_ABS,
    IS = BPF_JMP | BPF_JEQ | BPF_K,
    SET = BPF_JMP | BPF_JSET | BPF_K,
    END = BPF_RET | BPF_K
};

static void answer(const int *calls, size_t count, int error) {
    for (size_t i = 0; i < count; i++) {
        add(IS, (unsigned)calls[i], 0, 1);
        add(END, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
    }
}

int main(int argc, char **argv) {
    const char *profile = argc > 2 ? argv[1] : "";
    int error = strcmp(profile, "podman") ? EPERM : ENOSYS, strict = !strcmp(profile, "strict");
    if (error == EPERM && !strict && strcmp(profile, "docker")) {
        fprintf(stderr, "usage: confine docker|podman|strict COMMAND...\n");
        return 2;
    }
    add(LOAD, offsetof(struct seccomp_data, arch), 0, 0);
    add(IS, AUDIT_ARCH_X86_64, 1, 0);
    add(END, SECCOMP_RET_ERRNO | EPERM, 0, 0);
    add(LOAD, offsetof(struct seccomp_data, nr), 0, 0);
    answer((int[]){__NR_clone3}, 1, ENOSYS);
    answer(denied, sizeof denied / sizeof *denied, error);
    if (strict) answer(foreign, sizeof foreign / sizeof *foreign, error);
    // New namespaces.
    add(IS, __NR_clone, 0, 3);
    add(LOAD, offsetof(struct seccomp_data, args[0]), 0, 0);
    add(SET,
        CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
            CLONE_NEWNET,
        0, 1);
    add(END, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
    add(LOAD, offsetof(struct seccomp_data, nr), 0, 0);
    // Of personality only what changes nothing that protects others: not the switch for addresses that are not random.
    add(IS, __NR_personality, 0, 5);
    add(LOAD, offsetof(struct seccomp_data, args[0]), 0, 0);
    add(IS, 0xffffffff, 3, 0);
    add(IS, 0, 2, 0);
    add(IS, 0x20000, 1, 0);
    add(END, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
    add(END, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog filter = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("confine: seccomp");
        return 1;
    }
    if (syscall(__NR_unshare, CLONE_NEWNS) == 0 || errno != error) {
        fprintf(stderr, "confine: what is forbidden is not forbidden: %s\n", strerror(errno));
        return 1;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
