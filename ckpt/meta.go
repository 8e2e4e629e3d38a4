// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// metaVersion is the version of what the sections of an image mean to this package.
const metaVersion = 1

// Sections of an image besides "meta" and the memory.
const (
	sectionThreads  = "threads"  // Host.State
	sectionFiles    = "files"    // files.Table
	sectionSockets  = "sockets"  // sockets.Table; there when some process of the job had a socket
	sectionForks    = "forks"    // snapshot.Hidden; there when the program has hidden memory from forks
	sectionAdvice   = "advice"   // snapshot.Advice; there when the program has given advice that a mapping keeps
	sectionVerbs    = "verbs"    // address of the objects, 0 where there are none; there when some process used InfiniBand
	sectionObjects  = "objects"  // vid.Tables.Save
	sectionMessages = "messages" // Runtime.Save: messages received by draining, and requests
	sectionRuntime  = "runtime"  // bytes of the runtime's own (ckpt_runtime_state)
	// The one section in regions mode.
	sectionTasks     = "tasks"     // regions.Table
	sectionProtected = "protected" // regions.State: the program has named it
)

// Meta is the document that describes an image of this package.
type Meta struct {
	Version int       `json:"version"`
	Libckpt string    `json:"libckpt"`
	Time    time.Time `json:"time"`
	Epoch   int       `json:"epoch"`
	Mode    string    `json:"mode,omitempty"` // "regions": memory of ranks, and no process
	Rank    int       `json:"rank"`
	Ranks   int       `json:"ranks"`
	Tasks   []int32   `json:"tasks,omitempty"` // ranks of a process that has several; then Rank and Ranks count processes
	MPI     store.MPI `json:"mpi"`
	Program string    `json:"program"`
	Args    []string  `json:"args"`
	Dir     string    `json:"dir"` // working directory
	Umask   int       `json:"umask"`
	Host    string    `json:"host"`
	Kernel  string    `json:"kernel"`
	CPU     []string  `json:"cpu"` // features the program may have chosen code by
	Trap    string    `json:"trap"`
	Chain   int       `json:"chain,omitempty"` // epochs from the last full one on, with this one
	Made    int64     `json:"made,omitempty"`  // where the log of names ended that the process gave to files; 0: there is none
}
