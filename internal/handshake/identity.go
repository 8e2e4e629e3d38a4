// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"sync"
)

// KeySize is the number of bytes of a public key, and of the seed of an identity.
const KeySize = ed25519.PublicKeySize

// PublicKey is what others know an Identity by (Ed25519).
type PublicKey [KeySize]byte

// Identity is a key pair, with the certificate by which TLS shows its public half. It is never written
// anywhere, and lives as long as one process. Key and certificate are computed when they are asked for, since many a
// process never is: a rank alone, or one that no operator talks to.
type Identity struct {
	key         func() ed25519.PrivateKey
	certificate func() (*tls.Certificate, error)
}

// NewIdentity makes a key pair that nobody else has.
func NewIdentity() (*Identity, error) {
	var seed [KeySize]byte
	_, _ = rand.Read(seed[:]) // crypto/rand.Read never fails
	return IdentityOf(seed[:])
}

// IdentityOf returns the one identity of all who know seed, which must be KeySize random bytes.
func IdentityOf(seed []byte) (*Identity, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("seed of a key has %d bytes, want %d", len(seed), ed25519.SeedSize)
	}
	own := bytes.Clone(seed)
	i := &Identity{key: sync.OnceValue(func() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(own) })}
	i.certificate = sync.OnceValues(func() (*tls.Certificate, error) {
		key := i.key()
		// Nobody looks at anything but the key. A serial number is what the form asks for.
		template := &x509.Certificate{SerialNumber: big.NewInt(1)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			return nil, fmt.Errorf("certificate for a key: %w", err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	})
	return i, nil
}

// Public returns the public key.
func (i *Identity) Public() PublicKey {
	return PublicKey(i.key().Public().(ed25519.PublicKey))
}
