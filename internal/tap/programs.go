// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Places on the stack of a program.
const (
	stackKey   = -16 // 16 bytes
	stackValue = -32 // 16 bytes
	stackShort = -40 // 8 bytes
)

// loadKey is the key of a call under way: thread (R7 has it) and function (R0 has it).
func loadKey() asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.RFP, stackKey, asm.R7, asm.DWord),
		asm.StoreMem(asm.RFP, stackKey+8, asm.R0, asm.DWord),
	}
}

// pointer has a register point into the stack.
func pointer(r asm.Register, at int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Reg(r, asm.RFP), asm.Add.Imm(r, at)}
}

// watched leaves the program when the process is none of ours. R6 is the context, R7 the thread from here on.
func watched(processes *ebpf.Map) asm.Instructions {
	p := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, stackShort, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, processes.FD()),
	}
	p = append(p, pointer(asm.R2, stackShort)...)
	return append(p, asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"))
}

func out() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return()}
}

// begun remembers when the call of the key began. value is where it is.
func begun(underWay *ebpf.Map) asm.Instructions {
	p := asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, stackValue, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, underWay.FD()),
	}
	p = append(p, pointer(asm.R2, stackKey)...)
	p = append(p, pointer(asm.R3, stackValue)...)
	return append(p, asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
}

// ended adds the call of the key to the sums: thread and function, R9 has the latter, by the time since begun.
func ended(underWay, sums *ebpf.Map) asm.Instructions {
	p := asm.Instructions{asm.LoadMapPtr(asm.R1, underWay.FD())}
	p = append(p, pointer(asm.R2, stackKey)...)
	p = append(p,
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"), // it began before we looked
		asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.Sub.Reg(asm.R0, asm.R8),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.LoadMapPtr(asm.R1, underWay.FD()))
	p = append(p, pointer(asm.R2, stackKey)...)
	p = append(p,
		asm.FnMapDeleteElem.Call(),
		asm.StoreMem(asm.RFP, stackKey, asm.R7, asm.DWord),
		asm.StoreMem(asm.RFP, stackKey+8, asm.R9, asm.DWord),
		asm.LoadMapPtr(asm.R1, sums.FD()))
	p = append(p, pointer(asm.R2, stackKey)...)
	p = append(p,
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "add"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, stackValue, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, stackValue+8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, sums.FD()))
	p = append(p, pointer(asm.R2, stackKey)...)
	p = append(p, pointer(asm.R3, stackValue)...)
	p = append(p,
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.LoadMapPtr(asm.R1, sums.FD()))
	p = append(p, pointer(asm.R2, stackKey)...)
	return append(p,
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("add"),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord), // calls
		asm.Add.Imm(asm.R0, 8),
		asm.StoreXAdd(asm.R0, asm.R8, asm.DWord)) // nanoseconds
}

func join(parts ...asm.Instructions) (p asm.Instructions) {
	for _, part := range parts {
		p = append(p, part...)
	}
	return p
}

// cookie is the number of the function, which was given when the probe was attached.
func cookie() asm.Instructions {
	return asm.Instructions{asm.Mov.Reg(asm.R1, asm.R6), asm.FnGetAttachCookie.Call()}
}

// functionEntry and functionReturn are for uprobes.
func functionEntry(processes, underWay *ebpf.Map) asm.Instructions {
	return join(watched(processes), cookie(), loadKey(), begun(underWay), out())
}

func functionReturn(processes, underWay, sums *ebpf.Map) asm.Instructions {
	return join(watched(processes), cookie(), asm.Instructions{asm.Mov.Reg(asm.R9, asm.R0)}, loadKey(), ended(underWay, sums), out())
}

// systemCall marks the number of a system call among those of functions.
const systemCall = 1 << 30

// underCall is the function by which the system call of a thread is under way: a thread has one at a time.
const underCall = systemCall

// systemEntry is for the raw tracepoint sys_enter: its second argument is the number.
func systemEntry(processes, underWay, numbers *ebpf.Map) asm.Instructions {
	return join(watched(processes),
		asm.Instructions{
			asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord),
			asm.StoreMem(asm.RFP, stackValue, asm.R8, asm.DWord),
			asm.StoreMem(asm.RFP, stackKey, asm.R7, asm.DWord),
			asm.LoadMapPtr(asm.R1, numbers.FD()),
		}, pointer(asm.R2, stackKey), pointer(asm.R3, stackValue),
		asm.Instructions{
			asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(),
			asm.Mov.Imm(asm.R0, underCall),
		}, loadKey(), begun(underWay), out())
}

func systemReturn(processes, underWay, numbers, sums *ebpf.Map) asm.Instructions {
	return join(watched(processes),
		asm.Instructions{asm.StoreMem(asm.RFP, stackKey, asm.R7, asm.DWord), asm.LoadMapPtr(asm.R1, numbers.FD())},
		pointer(asm.R2, stackKey),
		asm.Instructions{
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R9, asm.R0, 0, asm.DWord),
			asm.Or.Imm(asm.R9, systemCall),
			asm.Mov.Imm(asm.R0, underCall),
		}, loadKey(), ended(underWay, sums), out())
}
