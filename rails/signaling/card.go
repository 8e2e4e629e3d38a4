// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

// CardSize is the number of bytes of a card.
const CardSize = 256

// A card, all numbers big-endian:
//
//	  0  "ckptcard"
//	  8  version, 2 bytes
//	 10  number of addresses, 1 byte; 11 zero
//	 12  port on loopback, 2 bytes (0: none); 14 port on the addresses, 2 bytes (0: none)
//	 16  host, 16 bytes
//	 32  public key, 32 bytes (Ed25519)
//	 64  nonce, 16 bytes
//	 80  loopback address, 16 bytes (IPv4 mapped)
//	 96  nine addresses of 16 bytes, unused ones zero
//	240  first 16 bytes of the SHA-256 of the bytes before
const (
	cardMagic    = "ckptcard"
	cardVersion  = 2
	maxAddresses = 9
	cardAddrs    = 96
	cardSum      = 240
)

type card struct {
	host     hostaddr.ID
	public   handshake.PublicKey
	nonce    [16]byte
	loopback netip.AddrPort // zero when there is none
	port     uint16         // on each of addrs
	addrs    []netip.Addr
}

func (c *card) encode() []byte {
	b := make([]byte, CardSize)
	copy(b, cardMagic)
	binary.BigEndian.PutUint16(b[8:], cardVersion)
	b[10] = byte(len(c.addrs))
	binary.BigEndian.PutUint16(b[12:], c.loopback.Port())
	binary.BigEndian.PutUint16(b[14:], c.port)
	copy(b[16:], c.host[:])
	copy(b[32:], c.public[:])
	copy(b[64:], c.nonce[:])
	if c.loopback.IsValid() {
		a := c.loopback.Addr().As16()
		copy(b[80:], a[:])
	}
	for i, addr := range c.addrs {
		a := addr.As16()
		copy(b[cardAddrs+16*i:], a[:])
	}
	sum := sha256.Sum256(b[:cardSum])
	copy(b[cardSum:], sum[:])
	return b
}

func decodeCard(b []byte) (*card, error) {
	if len(b) != CardSize {
		return nil, fmt.Errorf("card has %d bytes, want %d", len(b), CardSize)
	}
	if string(b[:8]) != cardMagic {
		return nil, fmt.Errorf("card starts with %q, want %q: is every rank running libckpt?", b[:8], cardMagic)
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != cardVersion {
		return nil, fmt.Errorf("card has version %d, want %d: use the same libckpt on every host", v, cardVersion)
	}
	sum := sha256.Sum256(b[:cardSum])
	if string(sum[:CardSize-cardSum]) != string(b[cardSum:]) {
		return nil, fmt.Errorf("card is damaged: digest %x, want %x", b[cardSum:], sum[:CardSize-cardSum])
	}
	count := int(b[10])
	if count > maxAddresses {
		return nil, fmt.Errorf("card has %d addresses, want at most %d", count, maxAddresses)
	}
	c := &card{port: binary.BigEndian.Uint16(b[14:])}
	copy(c.host[:], b[16:])
	copy(c.public[:], b[32:])
	copy(c.nonce[:], b[64:])
	if port := binary.BigEndian.Uint16(b[12:]); port != 0 {
		c.loopback = netip.AddrPortFrom(addrAt(b[80:]), port)
	}
	for i := range count {
		c.addrs = append(c.addrs, addrAt(b[cardAddrs+16*i:]))
	}
	return c, nil
}

func addrAt(b []byte) netip.Addr {
	return netip.AddrFrom16([16]byte(b[:16])).Unmap()
}

// ways lists the addresses at which a process on host may reach the owner of the card, best first.
func (c *card) ways(host hostaddr.ID) []netip.AddrPort {
	var w []netip.AddrPort
	if c.host == host && c.loopback.IsValid() {
		w = append(w, c.loopback)
	}
	if c.port != 0 {
		for _, a := range c.addrs {
			w = append(w, netip.AddrPortFrom(a, c.port))
		}
	}
	return w
}
