// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// makeObjects makes, or takes again, the semaphores and queues of which this process has the content.
func (r *Restored) makeObjects(left []Made, made *[]Made) error {
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.Leader != r.rank {
			continue
		}
		real, err := r.findObject(o, left)
		if err != nil {
			return fmt.Errorf("the %s: %w", o, err)
		}
		*made = append(*made, Made{Kind: o.Kind, Virtual: o.Virtual, Real: real, Was: r.Node, Is: r.word.Node})
		if err := o.fill(real); err != nil {
			return fmt.Errorf("the %s: %w", o, err)
		}
		if err := fault.Point("sysv.object"); err != nil {
			return err
		}
	}
	return nil
}

// findObject is an id of one with that key and, of semaphores, that number of them.
func (r *Restored) findObject(o *Object, left []Made) (int, error) {
	candidates := []Made{{Real: o.Real, Is: r.Node}}
	for _, one := range left {
		if one.Kind == o.Kind && one.Virtual == o.Virtual {
			candidates = append(candidates, one)
		}
	}
	var used string
	for _, one := range candidates {
		if !one.Is.same(r.word.Node) {
			continue
		}
		there, is, err := look(o.Kind, ID{Virtual: o.Virtual, Real: one.Real})
		if err != nil || !is || there.Key != o.Key || there.Number != o.Number {
			continue
		}
		names, err := there.strangers(onlyThis())
		if err == nil && len(names) == 0 {
			return one.Real, nil
		}
		for _, name := range names {
			used = name
		}
	}
	return r.createObject(o, used)
}

// createObject makes one whose id means nothing else to a process of the job.
func (r *Restored) createObject(o *Object, used string) (int, error) {
	var spare []int
	defer func() {
		for _, id := range spare {
			_ = removeObject(o.Kind, id)
		}
	}()
	for range 64 {
		real, err := getObject(o.Kind, o.Key, o.Number)
		switch {
		case errors.Is(err, unix.EEXIST):
			option, who := "-S", "not this job's"
			if o.Kind == Queues {
				option = "-Q"
			}
			if used != "" {
				who = "used by " + used
			}
			return 0, fmt.Errorf("its key is in use on host %s, by one that is %s: see `ipcs`, remove it with `ipcrm %s %#x` when it is not needed",
				r.word.Node.Host, who, option, uint32(o.Key))
		case errors.Is(err, unix.ENOSPC):
			return 0, fmt.Errorf("%w: the limits of the kernel for System V objects are reached (`ipcs -l`)", err)
		case err != nil:
			return 0, err
		}
		if real == o.Virtual || !slices.Contains(r.Kept[o.Kind], real) {
			return real, nil
		}
		_ = removeObject(o.Kind, real)
		if id, err := getObject(o.Kind, unix.IPC_PRIVATE, 1); err == nil {
			spare = append(spare, id)
		}
	}
	return 0, errors.New("the kernel gives no id that is not in use by the job")
}

func getObject(kind Kind, key, number int) (int, error) {
	const flags = unix.IPC_CREAT | unix.IPC_EXCL | 0o600
	if kind == Queues {
		id, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(key), flags, 0)
		return int(id), errnoOf(e)
	}
	id, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(key), uintptr(number), flags)
	return int(id), errnoOf(e)
}

func removeObject(kind Kind, real int) error {
	switch kind {
	case Queues:
		return msgctl(real, unix.IPC_RMID, nil)
	case Semaphores:
		_, err := semctl(real, 0, unix.IPC_RMID, nil)
		return err
	}
	_, err := unix.SysvShmCtl(real, unix.IPC_RMID, nil)
	return err
}

// permit gives an object its owner and mode, and more permissions; and a queue its size.
func (o *Object) permit(real int, more uint32) (err error) {
	mode := o.Mode | more
	if o.Kind == Semaphores {
		var st semStatus
		if _, err := semctl(real, 0, unix.IPC_STAT, unsafe.Pointer(&st)); err != nil {
			return err
		}
		if p := &st.Perm; p.Mode&0o777 != mode || p.Uid != o.UID || p.Gid != o.GID {
			p.Mode, p.Uid, p.Gid = mode, o.UID, o.GID
			_, err = semctl(real, 0, unix.IPC_SET, unsafe.Pointer(&st))
		}
	} else {
		var st queueStatus
		if err := msgctl(real, unix.IPC_STAT, unsafe.Pointer(&st)); err != nil {
			return err
		}
		if p := &st.Perm; p.Mode&0o777 != mode || p.Uid != o.UID || p.Gid != o.GID || st.Most != o.Most {
			p.Mode, p.Uid, p.Gid, st.Most = mode, o.UID, o.GID, o.Most
			err = msgctl(real, unix.IPC_SET, unsafe.Pointer(&st))
		}
		if errors.Is(err, unix.EPERM) && st.Most > 0 {
			return fmt.Errorf("%w: its owner, its mode or its size of %d bytes (see `sysctl kernel.msgmnb`)", err, o.Most)
		}
	}
	if err != nil {
		return fmt.Errorf("its owner and mode: %w", err)
	}
	return nil
}

// fill gives an object its content; semaphores have what they need for the processes to do what their ends undo, in any order.
func (o *Object) fill(real int) error {
	if err := o.permit(real, 0o600); err != nil {
		return err
	}
	if o.Kind == Semaphores {
		values := make([]uint16, o.Number)
		for _, u := range o.Undone {
			values[u.Number] += uint16(max(u.Adjust, 0))
		}
		return setSemValues(real, values)
	}
	for { // what a killed job has left in it
		_, err := receive(real, 0, 0, msgNoError)
		if errors.Is(err, unix.ENOMSG) {
			break
		}
		if err != nil {
			return fmt.Errorf("emptying it: %w", err)
		}
	}
	for i, m := range o.Messages {
		if err := send(real, m); err != nil {
			return fmt.Errorf("its message %d of %d: %w", i, len(o.Messages), err)
		}
	}
	return nil
}

// Undo has the kernel know again what it undoes when this process ends. All processes have taken what was made.
func (r *Restored) Undo() error {
	if r == nil {
		return nil
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		for _, u := range o.Undone {
			if u.Rank != r.rank {
				continue
			}
			if err := semAdd(r.ids[Semaphores][o.Virtual], u.Number, -u.Adjust, semUndo); err != nil {
				return fmt.Errorf("the %s: what the end of this process undoes: %w", o, err)
			}
		}
	}
	return nil
}

// Settle gives semaphores their values and objects their modes, after all processes' Undo: setting the values would have the
// kernel forget that.
func (r *Restored) Settle() error {
	if r == nil {
		return nil
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.Leader != r.rank {
			continue
		}
		real := r.ids[o.Kind][o.Virtual]
		if o.Kind == Semaphores {
			now, err := semValues(real, o.Number)
			for n := 0; err == nil && n < o.Number; n++ {
				if add := int(o.Values[n]) - int(now[n]); add != 0 {
					err = semAdd(real, n, add, 0)
				}
			}
			if err != nil {
				return fmt.Errorf("the %s: its values: %w", o, err)
			}
		}
		if err := o.permit(real, 0); err != nil {
			return fmt.Errorf("the %s: %w", o, err)
		}
	}
	return nil
}

// undo is what whoever emulates the program's calls has to know of this process.
func (r *Restored) undo() (list []Undo) {
	for i := range r.Objects {
		for _, u := range r.Objects[i].Undone {
			if u.Rank == r.rank {
				list = append(list, Undo{Virtual: r.Objects[i].Virtual, Number: u.Number, Adjust: u.Adjust})
			}
		}
	}
	return list
}
