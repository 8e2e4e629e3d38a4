// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

var chapterTitles = [][2]string{{"p2p", "Point to point"}, {"coll", "Collectives and operations"},
	{"comm", "Communicators, groups, attributes"}, {"topo", "Topologies"}, {"type", "Datatypes"},
	{"env", "Environment, info, errors"}, {"rma", "Windows"}, {"io", "Files"}, {"tools", "Tools"},
	{"large", "MPI 4: large counts"}, {"mpi4", "MPI 4: others"}}

// The implementations of the table's columns: a program that was built against an MPI runs above the same MPI.
const (
	mpich = iota
	openmpi
	implementations
)

var implementationNames = [implementations]string{"MPICH 4.0", "Open MPI 4.1"}

// What the table says of a function.
const (
	savedFate  = "saved and rebuilt"
	passFate   = "passes through"
	heldFate   = "runs but holds back a checkpoint"
	errorFate  = "returns an error"
	absentFate = "not in this MPI"
)

// fate says what becomes of a function of one implementation and what it leaves behind.
func fate(f *function, implementation int) string {
	n := f.name
	switch {
	case implementation == openmpi && !f.inOpenMPI():
		return absentFate
	case implementation == mpich && slices.Contains(notInUCX, n), noEvents(f):
		return errorFate
	}
	if f.class == "large" || strings.HasSuffix(n, "_c") {
		n = f.twin()
	}
	switch {
	case held[n] != "":
		return heldFate
	case slices.Contains(saved, n), strings.HasSuffix(n, "_begin"): // half of a split collective
		return savedFate
	case slices.ContainsFunc(leaves, func(part string) bool { return strings.Contains(n, part) }):
		return savedFate
	case slices.ContainsFunc(f.params, func(p param) bool { return slices.Contains(makes, p.kind) }):
		return savedFate
	}
	return passFate
}

// inOpenMPI reports whether Open MPI 4.1 has a function: of MPI 4 only the persistent collectives, as an
// extension.
func (f *function) inOpenMPI() bool {
	return f.chapter != "large" && f.chapter != "mpi4" || f.extension()
}

// extension reports whether Open MPI has a function under the name MPIX_ only.
func (f *function) extension() bool {
	return f.chapter == "mpi4" && strings.HasSuffix(f.name, "_init") && f.name != "Psend_init" && f.name != "Precv_init" &&
		f.name != "Session_init"
}

// notInUCX lists what Debian's MPICH, which is built on UCX, answers with an error itself.
var notInUCX = []string{"Comm_spawn", "Comm_spawn_multiple", "Comm_accept", "Comm_connect", "Comm_join", "Open_port"}

// noEvents reports whether a function is about an event of the tools interface, of which there are none.
func noEvents(f *function) bool {
	return strings.HasPrefix(f.name, "T_event_") && f.name != "T_event_get_num" ||
		strings.HasPrefix(f.name, "T_source_") && f.name != "T_source_get_num"
}

// makes lists the kinds of parameters in which a function leaves what is made again.
var makes = []string{"ocomm", "otype", "oop", "oinfo", "ogroup", "oerrh", "ofile", "owin", "orequest", "omessage"}

// saved lists functions that make or change something that a restart makes again, where neither the function's
// name nor its parameters show this.
var saved = []string{"Win_attach", "Win_detach", "Win_lock_all", "Start", "Startall", "Buffer_attach", "Buffer_detach",
	"Init", "Init_thread", "Session_init", "Open_port", "Close_port", "Publish_name", "Unpublish_name", "T_init_thread", "Type_commit", "Alloc_mem", "Attr_put", "Attr_delete",
	"Info_set", "Info_delete", "Errhandler_set", "File_seek", "File_seek_shared", "Register_datarep"}

// leaves holds parts of the names of functions that change an object, or what the process knows.
var leaves = []string{"keyval", "Keyval", "_set_attr", "_delete_attr", "_set_name", "_set_info", "_set_errhandler",
	"_set_view", "_set_atomicity", "Add_error_"}

// held lists functions that leave something pending that is not saved, and until when: generalized requests,
// other jobs, sessions of tools, epochs of windows that belong to single ranks.
var held = map[string]string{
	"Grequest_start": "until MPI_Grequest_complete",
	"Comm_spawn":     untilFreed, "Comm_spawn_multiple": untilFreed, "Comm_accept": untilFreed, "Comm_connect": untilFreed,
	"Comm_join": untilFreed, "Comm_get_parent": "in a process that was spawned: " + untilFreed,
	"T_cvar_handle_alloc": "until it is freed", "T_pvar_session_create": "until it is freed",
	"Psend_init": "until the request is freed", "Precv_init": "until the request is freed",
	"Win_lock":  "until it is unlocked",
	"Win_start": "until MPI_Win_complete", "Win_post": "until MPI_Win_wait or MPI_Win_test",
	"Rput": untilUnlocked, "Rget": untilUnlocked, "Raccumulate": untilUnlocked, "Rget_accumulate": untilUnlocked,
}

const (
	untilFreed    = "until the communicator is disconnected or freed"
	untilUnlocked = "in an epoch of MPI_Win_lock, until that is over"
)

// remark adds what the fate does not say.
func remark(f *function) string {
	n, large := f.name, ""
	if f.class == "large" || strings.HasSuffix(n, "_c") {
		n = f.twin()
	}
	if f.class == "large" && !f.takesAny() {
		large = "a count above 2147483647 is an error"
	}
	text := held[n]
	switch {
	case f.extension():
		text = fmt.Sprintf("in Open MPI `MPIX_%s`", f.name)
	case slices.Contains(notInUCX, n):
		text = strings.TrimSuffix("Debian's MPICH, on UCX, has none; "+text, "; ")
	case noEvents(f):
		text = "neither MPI has events"
	case n == "Register_datarep":
		text = "as without ckptrun: the name is good once, conversions are an error, and so are views in it"
	}
	if f.userOp() {
		text = strings.TrimPrefix(text+"; with an operation of the program's own: runs but holds back a checkpoint until it is complete", "; ")
	}
	if r, ok := largeLimits[f.name]; ok {
		large = r
	}
	return strings.Trim(text+"; "+large, "; ")
}

// userOp reports whether a function makes a request that may call an operation of the program.
func (f *function) userOp() bool {
	n := strings.ToLower(f.name)
	return f.has("op") && f.has("orequest") && !f.has("win") && !strings.Contains(n, "local")
}

// largeLimits gives the limits of functions with large counts that are written by hand.
var largeLimits = map[string]string{
	"Buffer_attach_c": "a size above 2147483647 is an error", "Type_create_darray_c": "a size above 2147483647 is an error",
	"Win_create_c": unitLimit, "Win_allocate_c": unitLimit, "Win_allocate_shared_c": unitLimit,
}

const unitLimit = "a unit above 2147483647 is an error"

func coverage(fs []*function) []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Code generated by mpigen; DO NOT EDIT. -->\n# MPI functions\n\n")
	b.WriteString("What libckpt does with each C function of MPI 3.1, and those of MPI 4.0 that MPICH 4.0 has, by implementation: " +
		"for a program built against Debian's MPICH or Open MPI, above the same MPI.\n\n")
	fmt.Fprintf(&b, "| what | %s | %s |\n|---|---|---|\n", implementationNames[mpich], implementationNames[openmpi])
	for _, w := range []string{savedFate, passFate, heldFate, errorFate, absentFate} {
		var count [implementations]int
		for i := range count {
			for _, f := range fs {
				if fate(f, i) == w {
					count[i]++
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", w, count[mpich], count[openmpi])
	}
	fmt.Fprintf(&b, "| all | %d | %d |\n\n", len(fs), len(fs))
	b.WriteString(coverageText)
	for _, c := range chapterTitles {
		fmt.Fprintf(&b, "\n## %s\n\n| function | %s | %s | |\n|---|---|---|---|\n", c[1], implementationNames[mpich], implementationNames[openmpi])
		for _, f := range fs {
			if f.chapter == c[0] {
				fmt.Fprintf(&b, "| `MPI_%s` | %s | %s | %s |\n", f.name, fate(f, mpich), fate(f, openmpi), remark(f))
			}
		}
	}
	return b.Bytes()
}

const coverageText = `*Saved and rebuilt*: what the function makes or changes is there again after a restart; what is under way is completed, or begun again.
*Passes through*: the real MPI does it, or libckpt answers from what it knows, and nothing stays behind.
*Runs but holds back a checkpoint*: a checkpoint that is asked for meanwhile is refused, with the call and the rank; the last column says until when.
*Returns an error*: the underlying MPI does not have it; libckpt adds no errors of its own.

Above the other MPI, and after a restart there, a program keeps its own functions, and these differ:

- The functions of MPI 4.0 do the same above Open MPI, which has none of them, but for partitioned communication, which is an error there.
- Spawning, ports and joining are what the MPI below makes of them: with Open MPI they run, and communicators with other jobs hold a checkpoint back; with Debian's MPICH they are an error, also for a port that was opened above Open MPI before a restart.
- A large count above 2147483647 becomes one element of a larger datatype, below both MPIs, where the last column does not say otherwise.
`
