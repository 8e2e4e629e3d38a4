// SPDX-License-Identifier: Apache-2.0
//
// gate.S: the crossing between the halves.  gs:[-8] is the address of the thread record (struct thread in
// thread.h); offsets used here: 8 lower_fs, 16 upper_fs, 24 lower_sp, 32 upper_sp, 40 attention, 44 upcalls,
// 48 vdso_sp, 64 quick.
//
// The FS base is the upper half's in upper code.  While the thread is quick (lower_tls.c) no code of the
// lower half uses the FS base, so it stays as it is; else each crossing changes it.
//
// Without FSGSBASE (machine.h) all threads are quick, and the FS base is the upper half's in handlers as well.
//
// gate_code..gate_code_end is copied into the first page of the arena.  A thread that is interrupted anywhere
// in this code is then an ordinary upper thread whose context can be saved: after a restart the same code is
// at the same address.  So the code must be position independent, and its layout is part of the image
// version.
    .intel_syntax noprefix
    .text

    .set GATE_PAGE, 0x100000000000
    .set GATE_FUNCTIONS, GATE_PAGE + 0x100   // table of lower functions; CKPT_GATE_FUNCTIONS
    .set GATE_LIMIT, 1024
    .set NR_ATTENTION, 0x434b

// Makes RDI the FS base, before upper code begins or goes on.  Changes RAX, RCX, RSI, RDI and R11.
    .macro place_fs
    cmp byte ptr [rip + fsgsbase], 0
    jne 8f
    mov rsi, rdi
    mov edi, 0x1002                     // ARCH_SET_FS
    mov eax, 158                        // arch_prctl
    syscall
    jmp 9f
8:  wrfsbase rdi
9:
    .endm

    .globl gate_code, gate_commit, gate_in, gate_tail, gate_code_end
    .balign 64
// long gate(unsigned fn, const void *args)
gate_code:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8                          // for thread_hold: the modes of floating point
// Everything from here to gate_in can be done twice.  A handler that interrupts here, with the upper FS,
// sends the thread back to gate_commit, since the handler's own use of the gate overwrites upper_sp.
gate_commit:
    mov r11, gs:[-8]
    mov [r11 + 32], rsp
    cmp dword ptr [r11 + 64], 0
    jne gate_in
    mov rax, [r11 + 8]
    wrfsbase rax
gate_in:                                // this thread is in the lower half
    mov rsp, [r11 + 24]                   // docs/split-process.md P4: C to Go on a foreign stack is slow
    mov edi, edi
    mov rax, -38                        // -ENOSYS: the front is newer than this host
    cmp edi, GATE_LIMIT
    jae 1f
    movabs rax, [GATE_FUNCTIONS]
    mov rax, [rax + rdi*8]
    mov rdi, rsi
    call rax
1:  mov r11, gs:[-8]
    mov rsp, [r11 + 32]
    cmp dword ptr [r11 + 64], 0
    jne gate_tail
    mov rcx, [r11 + 16]
    wrfsbase rcx
gate_tail:                              // this thread is in the upper half
    mov r11, gs:[-8]                    // a thread that is stopped after this loads it again (reload_record)
    cmp dword ptr [r11 + 40], 0
    jne 3f
2:  add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
3:  mov rbx, rax                        // saved above
    mov eax, NR_ATTENTION               // trapped: the dispatcher delivers signals or parks
    syscall
    mov rax, rbx
    jmp 2b
gate_code_end:

// _Noreturn void host_resume_gate(struct thread *t, long result): leaves the gate call in which t was held
// when the image was made, with that result.  The registers that a call preserves are in the gate's frame.
    .globl host_resume_gate
host_resume_gate:
    mov rbx, rsi                        // RBX is in the gate's frame
    cmp qword ptr [rip + forget_components], 0
    je 1f
    call forget
1:
    mov r11, gs:[-8]
    mov rsp, [r11 + 32]
    ldmxcsr [rsp]
    fldcw [rsp + 4]
    mov rdi, [r11 + 16]
    place_fs
    mov rax, rbx
    movabs rdx, GATE_PAGE + 0x400       // CKPT_GATE_CODE
    lea r8, [rip + gate_code]
    lea r9, [rip + gate_tail]
    sub r9, r8
    add rdx, r9
    jmp rdx

// long host_upcall(void *fn, const long args[6]): calls application code from the lower half, on
// the upper stack below the innermost gate frame.
    .globl host_upcall
host_upcall:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov r11, gs:[-8]
    push qword ptr [r11 + 24]
    push qword ptr [r11 + 32]
    mov rcx, [r11 + 16]                 // without FSGSBASE it is this one at any time
    cmp byte ptr [rip + fsgsbase], 0
    je 1f
    rdfsbase rcx
1:  push rcx                            // 9 words and the return address: aligned to 16 again
    mov [r11 + 24], rsp
    inc dword ptr [r11 + 44]
    mov rbx, rdi
    mov r12, rsi
    mov rax, [r11 + 32]
    sub rax, 128
    and rax, -16
    cmp rcx, [r11 + 8]                  // a quick thread that came through the gate has the upper one
    jne 1f
    mov rcx, [r11 + 16]
    wrfsbase rcx
1:  cmp qword ptr [rip + forget_components], 0
    je 1f
    call forget                         // RAX stays
1:  mov rsp, rax
    mov rdi, [r12]
    mov rsi, [r12 + 8]
    mov rdx, [r12 + 16]
    mov rcx, [r12 + 24]
    mov r8, [r12 + 32]
    mov r9, [r12 + 40]
    call rbx
    mov r11, gs:[-8]
    mov rsp, [r11 + 24]
    dec dword ptr [r11 + 44]
    pop rcx
    cmp byte ptr [rip + fsgsbase], 0
    je 2f
    cmp dword ptr [r11 + 64], 0
    jne 1f
    mov rcx, [r11 + 8]                  // it may have ceased to be quick meanwhile (lower_tls.c)
1:  wrfsbase rcx
2:  pop qword ptr [r11 + 32]
    pop qword ptr [r11 + 24]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

// long host_cancelable(volatile uint32_t *attention, long nr, const long args[6])
    .globl host_cancelable, cancel_begin, cancel_end, cancel_out
host_cancelable:
    push rbx
    mov rbx, rdi
    mov rax, rsi
    mov r11, rdx
    mov rdi, [r11]
    mov rsi, [r11 + 8]
    mov rdx, [r11 + 16]
    mov r10, [r11 + 24]
    mov r8, [r11 + 32]
    mov r9, [r11 + 40]
cancel_begin:
    cmp dword ptr [rbx], 0
    jne cancel_out
    syscall
cancel_end:                             // the system call has returned: its result counts
    pop rbx
    ret
cancel_out:
    mov rax, -4
    pop rbx
    ret

// _Noreturn void host_sigreturn(ucontext_t *frame, uint64_t fs): continues at the context; frame is where the
// kernel expects a signal frame.
    .globl host_sigreturn
host_sigreturn:
    mov rsp, rdi
    mov rdi, rsi
    place_fs
    mov eax, 15
    syscall
    ud2

// _Noreturn void host_enter(uint64_t ip, uint64_t sp): starts the program as the kernel would.
    .globl host_enter
host_enter:
    mov rbx, rdi
    mov rsp, rsi
    mov r11, gs:[-8]
    mov rdi, [r11 + 16]
    place_fs
    mov r11, rbx
    xor eax, eax
    xor ebx, ebx
    xor ecx, ecx
    xor edx, edx
    xor esi, esi
    xor edi, edi
    xor ebp, ebp
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r12d, r12d
    xor r13d, r13d
    xor r14d, r14d
    xor r15d, r15d
    jmp r11

// long host_on_stack(long (*fn)(void *), void *arg, uint64_t sp)
    .globl host_on_stack
host_on_stack:
    push rbp
    mov rbp, rsp
    mov rax, rdi
    mov rdi, rsi
    mov rsp, rdx
    and rsp, -16
    call rax
    mov rsp, rbp
    pop rbp
    ret

// long host_vfork(long flags, void *child_stack, void (*child)(void *), void *arg): clone with
// CLONE_VM; the child runs child(arg) on child_stack and never returns here.
    .globl host_vfork
host_vfork:
    push rbx
    push r12
    mov rbx, rdx
    mov r12, rcx
    mov eax, 56
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    syscall
    test rax, rax
    jz 1f
    pop r12
    pop rbx
    ret
1:  mov rdi, r12
    and rsp, -16
    call rbx
    ud2

// The restorer for handlers that we install with the raw system call.
    .globl host_restorer
host_restorer:
    mov eax, 15
    syscall
    ud2

    .section .note.GNU-stack, "", @progbits
