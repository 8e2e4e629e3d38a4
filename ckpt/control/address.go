// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

// Address is what a client needs to reach a job. In job.json it is three strings: the name of the host,
// Control and Token. Whoever has the token commands the job, so nobody else may read job.json.
type Address struct {
	Host      string   // name of the host, for messages
	HostID    string   // tells whether loopback leads to the job
	Loopback  string   // address:port from the same host; may be empty
	Addresses []string // address:port from elsewhere, in the order to try
	Token     string   // "ed25519:" and 32 random bytes in hexadecimal: the private key of both ends
}

// Control is how the job can be reached, in one line: "HOSTID@LOOPBACK ADDRESS ADDRESS ...".
func (a Address) Control() string {
	return strings.Join(append([]string{a.HostID + "@" + a.Loopback}, a.Addresses...), " ")
}

// ParseAddress makes an Address of the strings in job.json.
func ParseAddress(host, control, token string) (Address, error) {
	a := Address{Host: host, Token: token}
	if _, err := a.identity(); err != nil {
		return Address{}, err
	}
	words := strings.Fields(control)
	if len(words) == 0 {
		return Address{}, errors.New("control address is empty")
	}
	id, loopback, ok := strings.Cut(words[0], "@")
	if !ok {
		return Address{}, fmt.Errorf("control address %q does not start with HOST-ID@", control)
	}
	a.HostID, a.Loopback, a.Addresses = id, loopback, words[1:]
	for _, w := range append([]string{loopback}, a.Addresses...) {
		if _, err := netip.ParseAddrPort(w); err != nil && w != "" {
			return Address{}, fmt.Errorf("control address: %w", err)
		}
	}
	return a, nil
}

// String leaves the token out, so that it does not get into logs.
func (a Address) String() string {
	return fmt.Sprintf("host %s (%s%v)", a.Host, a.Loopback, a.Addresses)
}

// tokenKind says what a token is. Tokens of the protocol before TLS had no kind.
const tokenKind = "ed25519:"

func newToken() string {
	b := make([]byte, handshake.KeySize)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return tokenKind + hex.EncodeToString(b)
}

// identity is that of everybody who has the token: the job and its operator.
func (a Address) identity() (*handshake.Identity, error) {
	digits, ok := strings.CutPrefix(a.Token, tokenKind)
	if !ok {
		return nil, fmt.Errorf("token does not start with %q: the job runs another version of libckpt; use its ckptctl", tokenKind)
	}
	seed, err := hex.DecodeString(digits)
	if err != nil || len(seed) != handshake.KeySize {
		return nil, fmt.Errorf("token is not %d bytes in hexadecimal", handshake.KeySize)
	}
	return handshake.IdentityOf(seed)
}

// hello is the greeting of an end that has the token. The public key names the job.
func hello(me *handshake.Identity) handshake.Hello {
	public := me.Public()
	job := sha256.Sum256(public[:])
	return handshake.Hello{Protocol: protocol, Job: [16]byte(job[:16])}
}

// ways lists what to try from this host, best first.
func (a Address) ways() []string {
	var w []string
	if here, err := hostaddr.Here(); err == nil && a.Loopback != "" && a.HostID == hex.EncodeToString(here[:]) {
		w = append(w, a.Loopback)
	}
	return append(w, a.Addresses...)
}
