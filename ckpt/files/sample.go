// SPDX-License-Identifier: Apache-2.0

package files

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/blake3"
)

// Block is a run of bytes of a file and what it held.
type Block struct {
	At    int64  `json:"at"`
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sum"` // the first 16 bytes of its BLAKE3, in hex
}

// How much of a file is compared. Files up to wholeBytes are compared as a whole. Of a longer one the
// first block, the last tailRun bytes, which were written last and so are lost first, and blocks in
// between at equal distances: what is lost or exchanged as a whole shows in every one of them.
const (
	sampleBlock = 4096
	wholeBytes  = 256 << 10
	tailRun     = 128 << 10
	between     = 31
)

// places lists what is compared of a file of that size: offsets and lengths, ascending, apart.
func places(size int64) []Block {
	if size == 0 {
		return nil
	}
	if size <= wholeBytes {
		return []Block{{Bytes: size}}
	}
	list := []Block{{Bytes: sampleBlock}}
	tail := size - tailRun
	for i := int64(1); i <= between; i++ {
		at := tail / (between + 1) * i &^ (sampleBlock - 1)
		if at >= sampleBlock*i && at+sampleBlock <= tail {
			list = append(list, Block{At: at, Bytes: sampleBlock})
		}
	}
	return append(list, Block{At: tail, Bytes: tailRun})
}

func blockSum(b []byte) string {
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// sampleBlocks reads what is compared of the file behind fd.
func sampleBlocks(fd int, size int64) ([]Block, error) {
	list := places(size)
	buffer := make([]byte, min(size, wholeBytes))
	for i := range list {
		b := buffer[:list[i].Bytes]
		if err := preadFull(fd, b, list[i].At); err != nil {
			return nil, err
		}
		list[i].Sum = blockSum(b)
	}
	return list, nil
}

// differs says where the file behind fd is not what the blocks say, "" when it is.
func differs(fd int, blocks []Block) (string, error) {
	for _, k := range blocks {
		b := make([]byte, k.Bytes)
		if err := preadFull(fd, b, k.At); err != nil {
			return "", err
		}
		if blockSum(b) == k.Sum {
			continue
		}
		what := "other bytes than it had"
		if zeros(b) {
			what = "nothing but zeros, which it had not"
		}
		return fmt.Sprintf("has %s from %d to %d", what, k.At, k.At+k.Bytes), nil
	}
	return "", nil
}

func zeros(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
