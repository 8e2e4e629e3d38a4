// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pmiConn is the connection to the launcher.
type pmiConn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

// findPMI speaks to the launcher by the descriptor or the address that it gave.
func findPMI(ctx context.Context, o Options) (Meeting, error) {
	rank, ranks := envNumber(o.Getenv, "PMI_RANK"), envNumber(o.Getenv, "PMI_SIZE")
	if text := o.Getenv("PMI_FD"); text != "" {
		if rank < 0 || ranks < 0 {
			return nil, fmt.Errorf("PMI_FD is set, but PMI_RANK is %q and PMI_SIZE is %q", o.Getenv("PMI_RANK"), o.Getenv("PMI_SIZE"))
		}
		conn, err := inherit(text)
		if err != nil {
			return nil, err
		}
		return newPMI(ctx, o, conn, rank, ranks, "")
	}
	id := o.Getenv("PMI_ID")
	if envNumber(o.Getenv, "PMI_ID") < 0 {
		return nil, fmt.Errorf("PMI_PORT is set, but PMI_ID is %q", id)
	}
	dialing, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dialing, "tcp", o.Getenv("PMI_PORT"))
	if err != nil {
		return nil, fmt.Errorf("the launcher at PMI_PORT: %w", cause(ctx, err))
	}
	return newPMI(ctx, o, conn.(*net.TCPConn), rank, ranks, id)
}

func envNumber(getenv func(string) string, name string) int {
	n, err := strconv.Atoi(getenv(name))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxRanks is more than any launcher starts.
const maxRanks = 1 << 23

// highNumber: numbers below are the program's.
const highNumber = 256

// inherited is a descriptor of our own for a socket that the launcher opened. Go's runtime reads it without blocking,
// which is a property of the socket and so of the launcher's descriptor too: Close undoes it.
type inherited struct{ *os.File }

// inherit opens the socket of a descriptor again. The descriptor itself stays as it is.
func inherit(number string) (*inherited, error) {
	from, err := strconv.Atoi(number)
	if err != nil || from < 0 {
		return nil, fmt.Errorf("PMI_FD is %q, want the number of a descriptor", number)
	}
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return nil, fmt.Errorf("PMI_FD is %d, which is not open: %w", from, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("PMI_FD is %d, which is no socket", from)
	}
	fd, err := unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, highNumber)
	if errors.Is(err, unix.EINVAL) { // the limit on descriptors is lower
		fd, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 3)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("PMI_FD %d: %w", from, err)
	}
	return &inherited{os.NewFile(uintptr(fd), "PMI_FD")}, nil
}

func (i *inherited) Close() error {
	if c, err := i.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), false) })
	}
	return i.File.Close()
}

// pmi is a process of a launcher that speaks PMI version 1: lines of text, one question and one answer at a time. All
// processes see one space of keys and values. What one puts, the others see after a barrier.
type pmi struct {
	ctx         context.Context
	patience    time.Duration
	conn        pmiConn
	in          *bufio.Reader
	rank, ranks int
	space       string // name of the space
	maxValue    int    // bytes of a value
	round       int    // of all-gathers: a key is put once
	lost        bool   // nobody knows what the launcher's next line answers
	ended       error  // why there is no further all-gather
	closed      bool
}

// newPMI begins to speak. id is not empty if the launcher does not know yet who has connected.
func newPMI(ctx context.Context, o Options, conn pmiConn, rank, ranks int, id string) (Meeting, error) {
	p := &pmi{ctx: ctx, patience: o.Patience, conn: conn, in: bufio.NewReaderSize(conn, maxPMILine), rank: rank, ranks: ranks}
	err := p.within(p.patience, func() error {
		if id != "" {
			if err := p.introduce(id); err != nil {
				return err
			}
		}
		return p.begin()
	})
	if err == nil && (p.ranks < 1 || p.ranks > maxRanks || p.rank < 0 || p.rank >= p.ranks) {
		err = fmt.Errorf("the launcher says rank %d of %d", p.rank, p.ranks)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// within runs a dialog that ends with ctx, and after a time if that is not 0.
func (p *pmi) within(limit time.Duration, dialog func() error) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	end := time.Time{}
	if limit > 0 {
		end = time.Now().Add(limit)
	}
	_ = p.conn.SetDeadline(end)
	stop := context.AfterFunc(p.ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := dialog()
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the launcher has not answered within %s", seconds(limit))
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fmt.Errorf("the launcher has closed the connection: %w", err)
	}
	return err
}

// hear reads the next line, which must be cmd.
func (p *pmi) hear(cmd string) (pmiLine, error) {
	l, err := readPMI(p.in)
	p.lost = err != nil || l.cmd != cmd
	switch {
	case err != nil:
		return l, err
	case l.cmd == "abort":
		return l, fmt.Errorf("the launcher ends the job (exit code %.20q)", l.fields["exitcode"])
	case l.cmd != cmd:
		return l, fmt.Errorf("the launcher says %.40q, want %s", l.cmd, cmd)
	}
	return l, l.ok()
}

// ask sends a line and returns the answer.
func (p *pmi) ask(answer string, words ...string) (pmiLine, error) {
	if _, err := io.WriteString(p.conn, strings.Join(words, " ")+"\n"); err != nil {
		p.lost = true
		return pmiLine{}, err
	}
	return p.hear(answer)
}

// introduce says on a new connection who this is. The launcher answers with rank and size, in any order and among
// other settings.
func (p *pmi) introduce(id string) error {
	if _, err := p.ask("initack", "cmd=initack", "pmiid="+id); err != nil {
		return err
	}
	for range 3 { // size, rank, debug
		l, err := p.hear("set")
		if err != nil {
			return err
		}
		if l.fields["size"] != "" {
			if p.ranks, err = l.number("size", 1, maxRanks); err != nil {
				return err
			}
		}
		if l.fields["rank"] != "" {
			if p.rank, err = l.number("rank", 0, maxRanks-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin agrees on the version, and asks for the limits and for the space's name.
func (p *pmi) begin() error {
	l, err := p.ask("response_to_init", "cmd=init", "pmi_version=1", "pmi_subversion=1")
	if err != nil {
		return err
	}
	if v := l.fields["pmi_version"]; v != "1" {
		return fmt.Errorf("the launcher speaks PMI version %.20q, want 1", v)
	}
	if l, err = p.ask("maxes", "cmd=get_maxes"); err != nil {
		return err
	}
	if _, err = l.number("keylen_max", maxKey, 1<<20); err != nil {
		return err
	}
	if p.maxValue, err = l.number("vallen_max", 2*minValue, 1<<30); err != nil {
		return err
	}
	if l, err = p.ask("my_kvsname", "cmd=get_my_kvsname"); err != nil {
		return err
	}
	p.space, err = l.text("kvsname")
	if err == nil && p.room() < minValue {
		err = fmt.Errorf("the launcher's space has a name of %d bytes", len(p.space))
	}
	return err
}

// minValue is room for the length of what a rank gives.
const minValue = 16

func (p *pmi) Rank() int  { return p.rank }
func (p *pmi) Ranks() int { return p.ranks }

func (p *pmi) Allgather(mine []byte) ([][]byte, error) {
	if p.ended != nil {
		return nil, p.ended
	}
	var all [][]byte
	// The barrier takes as long as the other ranks do.
	err := p.within(0, func() (err error) {
		all, err = p.allgather(mine)
		return err
	})
	if err != nil {
		p.ended = fmt.Errorf("all-gather of %d ranks: %w", p.ranks, err)
		return nil, p.ended
	}
	return all, nil
}

// allgather puts what this rank gives as a text in several values: its length and a point, then base64, which has
// neither spaces nor "=" here.
func (p *pmi) allgather(mine []byte) ([][]byte, error) {
	round := p.round
	p.round++
	// A rank that gives too much still comes to the barrier, where others would wait for it.
	wrong := checkGive(mine)
	if wrong != nil {
		mine = nil
	}
	text := strconv.Itoa(len(mine)) + "." + base64.RawURLEncoding.EncodeToString(mine)
	step := p.room()
	for i := 0; i*step < len(text); i++ {
		value := text[i*step : min((i+1)*step, len(text))]
		if _, err := p.ask("put_result", "cmd=put", "kvsname="+p.space, "key="+p.key(round, p.rank, i), "value="+value); err != nil {
			return nil, err
		}
	}
	if _, err := p.ask("barrier_out", "cmd=barrier_in"); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	var all [][]byte
	for r := range p.ranks {
		b, err := p.fetch(round, r, len(mine), len(text))
		if err != nil {
			return nil, fmt.Errorf("what rank %d gave: %w", r, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// maxRequest is how long a line of ours may be: Slurm takes what one read of 1024 bytes gives for one request.
const maxRequest = 1024

// room is how much of a text one value holds. Some launchers count the NUL.
func (p *pmi) room() int {
	return min(p.maxValue-1, maxRequest-maxKey-len(p.space)-len("cmd=put kvsname= key= value=\n"))
}

// fetch returns what a rank gave, which must have size bytes and is a text of length bytes.
func (p *pmi) fetch(round, rank, size, length int) ([]byte, error) {
	var text strings.Builder
	for i := 0; text.Len() < length; i++ {
		l, err := p.ask("get_result", "cmd=get", "kvsname="+p.space, "key="+p.key(round, rank, i))
		if err != nil {
			return nil, err
		}
		value, err := l.text("value")
		if err != nil {
			return nil, err
		}
		if i == 0 {
			digits, _, _ := strings.Cut(value, ".")
			if n, err := strconv.Atoi(digits); err != nil || n != size {
				return nil, fmt.Errorf("it has %.20s bytes, and what rank %d gives %d: all must give the same number", digits, p.rank, size)
			}
		}
		text.WriteString(value)
	}
	_, data, _ := strings.Cut(text.String(), ".")
	b, err := base64.RawURLEncoding.DecodeString(data)
	if err != nil {
		return nil, err
	}
	if len(b) != size {
		return nil, fmt.Errorf("it is damaged: %d bytes, want %d", len(b), size)
	}
	return b, nil
}

// maxKey is how long a key may be. The largest have a round of 9 digits, a rank of 7 and a part of 5.
const maxKey = 32

func (p *pmi) key(round, rank, part int) string {
	return fmt.Sprintf("ckpt-%d-%d-%d", round, rank, part)
}

// Close tells the launcher that this process may end. A launcher takes the end of a process that has not said so for
// a failure of the job.
func (p *pmi) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if !p.lost {
		err = p.within(min(p.patience, closeTime), func() error {
			_, err := p.ask("finalize_ack", "cmd=finalize")
			return err
		})
	}
	if p.ended == nil {
		p.ended = errClosed
	}
	if err != nil {
		err = fmt.Errorf("taking leave of the launcher: %w", err)
	}
	return errors.Join(err, p.conn.Close())
}

// closeTime is how long the launcher may take to answer a process that leaves.
const closeTime = 10 * time.Second
