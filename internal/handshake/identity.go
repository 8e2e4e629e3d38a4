// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
)

// KeySize is the number of bytes of a public key, and of the seed of an identity.
const KeySize = ed25519.PublicKeySize

// PublicKey is what others know an Identity by (Ed25519).
type PublicKey [KeySize]byte

// Identity is a key pair, with the certificate by which TLS shows its public half. It is never written
// anywhere, and lives as long as one process.
type Identity struct{ certificate tls.Certificate }

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
	key := ed25519.NewKeyFromSeed(seed)
	// Nobody looks at anything but the key. A serial number is what the form asks for.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate for a key: %w", err)
	}
	return &Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// Public returns the public key.
func (i *Identity) Public() PublicKey {
	return PublicKey(i.certificate.PrivateKey.(ed25519.PrivateKey).Public().(ed25519.PublicKey))
}
