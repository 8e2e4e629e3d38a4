// SPDX-License-Identifier: Apache-2.0

package image

// ChunkReader reads single chunks, in any order. One goroutine uses it at a time.
type ChunkReader struct{ r chunkReader }

// ChunkReader makes one. Close it.
func (f *File) ChunkReader() *ChunkReader { return &ChunkReader{chunkReader{file: f}} }

// Load fills dst, which has the chunk's length, with the chunk's content, and checks its digests. Chunks of kind zero
// leave dst as it is. After an error (*CorruptError when the image is damaged) the content of dst is undefined.
func (c *ChunkReader) Load(chunk *Chunk, dst []byte) error { return c.r.load(chunk, dst) }

// Close frees what the reader keeps between chunks.
func (c *ChunkReader) Close() { c.r.dec.close() }
