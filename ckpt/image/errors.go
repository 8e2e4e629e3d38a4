// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
)

// ErrNoSection is wrapped by File.Section when the image has no section of that name.
var ErrNoSection = errors.New("no such section")

// CorruptError says that an image is damaged: it is cut short, or some bytes are not those that were written.
type CorruptError struct {
	File     string
	Section  string // "header", "footer", "index", "section NAME", "pages ADDR-ADDR", "padding"
	Offset   int64  // in the file
	What     string // what was checked, e.g. "digest"
	Expected string
	Found    string
	For      string // another image, which refers to this one; "" when the image itself was asked for
}

func (e *CorruptError) Error() string {
	return e.Where() + "; nothing was restored from it: use another epoch (`ckptctl ls DIR` lists them, " +
		"`ckptctl verify DIR` checks them)"
}

// Where says what is damaged, and not what that means.
func (e *CorruptError) Where() string {
	file := e.File
	if e.For != "" {
		file = fmt.Sprintf("%s: content is in %s", e.For, e.File)
	}
	return fmt.Sprintf("%s: damaged image: %s at offset %d: %s is %s, expected %s", file, e.Section, e.Offset, e.What, e.Found, e.Expected)
}

// LostError says that an image refers to another one that is not there, or is not the same any more.
type LostError struct {
	File   string // the image that cannot be read
	Source string // the one that it refers to
	Err    error
}

func (e *LostError) Error() string {
	return e.Where() + "; put it back, or use another epoch (`ckptctl ls DIR` lists them, `ckptctl verify DIR` checks them)"
}

// Where says what is lost, and not what that means.
func (e *LostError) Where() string {
	return fmt.Sprintf("%s: content is in %s, which is lost: %v", e.File, e.Source, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// VersionError says that an image has a version of the format that this program does not know.
type VersionError struct {
	File      string
	Found     uint32
	Supported uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: header: format version is %d, this libckpt reads versions up to %d; "+
		"restart with the libckpt that wrote it (the manifest names it)", e.File, e.Found, e.Supported)
}

// ArchError says that an image was made on another kind of processor, or with another page size.
type ArchError struct {
	File            string
	What            string // "architecture" or "page size"
	Found, Expected string
}

func (e *ArchError) Error() string {
	return fmt.Sprintf("%s: header: %s is %s, this machine has %s; "+
		"restart on a machine of the first kind", e.File, e.What, e.Found, e.Expected)
}
