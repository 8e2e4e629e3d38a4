// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/where"
)

// Ranks is how the ranks of a program know each other before they have a network. Its methods are called on the
// goroutine of the call that needs them.
type Ranks interface {
	Rank() int
	Size() int
	// Allgather is collective; every rank gives the same number of bytes.
	Allgather(mine []byte) ([][]byte, error)
}

// plain is the runtime of a program that names its state: there is nothing to be saved but that.
type plain struct {
	ranks         Ranks
	name, version string
	progress      func() // may be nil
}

var _ Embedded = (*plain)(nil)

func (p *plain) Name() string                            { return p.name }
func (p *plain) Version() string                         { return p.version }
func (p *plain) Threads() int                            { return -1 }
func (p *plain) Rank() int                               { return p.ranks.Rank() }
func (p *plain) Ranks() int                              { return p.ranks.Size() }
func (p *plain) Allgather(mine []byte) ([][]byte, error) { return p.ranks.Allgather(mine) }

func (p *plain) Progress() {
	if p.progress != nil {
		p.progress()
	}
}

func (*plain) Tasks() ([]int32, error)                                        { return nil, nil }
func (*plain) Quiesce(on, program bool) error                                 { return nil }
func (*plain) CloseRails() error                                              { return nil }
func (*plain) ReopenRails(Why) error                                          { return nil }
func (*plain) Drain() (int, error)                                            { return 0, nil }
func (*plain) Holds() string                                                  { return "" }
func (*plain) Inside() string                                                 { return "" }
func (*plain) OneSided() bool                                                 { return false }
func (*plain) Settle() error                                                  { return nil }
func (*plain) Synchronous() bool                                              { return false }
func (*plain) Claims() []Claim                                                { return nil }
func (*plain) Judge([]Claim)                                                  {}
func (*plain) Answered([]Claim)                                               {}
func (*plain) Waiting() []where.Waiting                                       { return nil }
func (*plain) StartDeferred()                                                 {}
func (*plain) Finalize() error                                                { return nil }
func (*plain) Memory() []uint64                                               { return nil }
func (*plain) Save(func(int) ([]byte, error)) ([]byte, error)                 { return nil, errPlain }
func (*plain) Load([]byte) error                                              { return errPlain }
func (*plain) Files() (all, own []files.Named, err error)                     { return nil, nil, errPlain }
func (*plain) Rebuild(kind, id uint32, _ []byte, real uint64) (uint64, error) { return real, errPlain }

var errPlain = errors.New("of a program that names its state nothing else is saved")
