// SPDX-License-Identifier: Apache-2.0
//
// vdso.S: the vDSO that the upper half sees.  It is in the arena and calls the kernel's vDSO through the gate
// page.  So it stays valid after a restart under another kernel, and asking for the time costs what it costs
// without ckptrun.
//
// A thread that is inside the kernel's vDSO cannot be saved there.  So each function stores a stack pointer
// in the thread record (gs:[-8]; 48: vdso_sp): that of a frame whose first word is the address where to start
// over.  A handler that interrupts the kernel's code, or ours after the store, rewinds the thread to that
// address.  The address of the record is used right after it was loaded: a thread that is stopped between the
// two loads it again (reload_record in signal.c).
    .intel_syntax noprefix
    .text
    .set GATE_VDSO, 0x100000000000 + 32   // ckpt_gate_page.vdso
    .set GATE_CLOCKS, 0x100000000000 + 72 // ckpt_gate_page.clocks
    .set GATE_SPENT, 0x100000000000 + 104 // ckpt_gate_page.spent

// The application's clocks may be ahead of the kernel's (clocks.c).  A thread that is saved in here begins
// again, so it never adds one machine's shift to another machine's time.
    .macro shift_clock
    test eax, eax
    jnz 7f
    mov ecx, [rsp + 80]                   // the clock, as pushed
    cmp ecx, 9                            // unsigned: those of processes and devices are negative
    ja 7f
    movabs rdx, GATE_CLOCKS
    mov esi, 0x52                         // CLOCK_MONOTONIC, _RAW, _COARSE
    bt esi, ecx
    jc 6f
    mov esi, 0x280                        // CLOCK_BOOTTIME, _ALARM
    bt esi, ecx
    jnc 7f
    add rdx, 16
6:  mov rsi, [rsp + 72]                   // where the time is to go
    mov rcx, [rsi]
    mov rdi, [rsi + 8]
    add rcx, [rdx]
    add rdi, [rdx + 8]
    cmp rdi, 1000000000
    jl 5f
    sub rdi, 1000000000
    inc rcx
5:  mov [rsi], rcx
    mov [rsi + 8], rdi
7:
    .endm

// The clock of a process's or a thread's processor time has the number of its owner in its own, which after a restart is
// another one for the kernel: ckptrun gets such calls as any other (sys_clock_gettime). The kernel's vDSO would call
// the kernel as well. So it is with the caller's own after a restart (spent.c).
    .macro by_call number
    test edi, edi
    js 3f
    lea eax, [rdi - 2]                    // CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID
    cmp eax, 1
    ja 4f
    movabs rax, GATE_SPENT
    cmp dword ptr [rax], 0
    je 4f
3:  mov eax, \number
    syscall
    ret
4:
    .endm

    .macro forward name, index, after, before
    .globl __vdso_\name
    .type __vdso_\name, @function
    .balign 16
__vdso_\name:
    endbr64
9:  \before                               // asked anew after a restart: who answers may have changed
    push rdi
    push rsi
    push rdx
    push rbx                              // the kernel's code may have changed these when it is
    push rbp                              // interrupted, and only its own end puts them back
    push r12
    push r13
    push r14
    push r15
    lea rax, [rip + 8f]
    push rax                              // aligned: return address and ten words
    sub rsp, 8
    lea rax, [rsp + 8]
    mov rcx, gs:[-8]
    mov [rcx + 48], rax
    movabs rax, GATE_VDSO                 // load and call in one step: a thread that is saved before it
    call qword ptr [rax + 8 * \index]     // must not carry this process's address to the next
    \after
    mov rcx, gs:[-8]
    mov qword ptr [rcx + 48], 0
    add rsp, 88
    ret
8:  mov rcx, gs:[-8]
    mov qword ptr [rcx + 48], 0           // rewound: rsp is at the word that named us
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rdx
    pop rsi
    pop rdi
    jmp 9b
    .size __vdso_\name, . - __vdso_\name
    .endm

    forward clock_gettime, 0, shift_clock, "by_call 228"
    forward gettimeofday, 1
    forward time, 2
    forward clock_getres, 3, , "by_call 229"
    forward getcpu, 4

    .section .note.GNU-stack, "", @progbits
