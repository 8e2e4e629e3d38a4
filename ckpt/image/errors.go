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
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: damaged image: %s at offset %d: %s is %s, expected %s; "+
		"nothing was restored from it: use another epoch (`ckptctl ls DIR` lists them, "+
		"`ckptctl verify DIR` checks them)", e.File, e.Section, e.Offset, e.What, e.Found, e.Expected)
}

// VersionError says that an image has a version of the format that this program does not know.
type VersionError struct {
	File      string
	Found     uint32
	Supported uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: header: format version is %d, this libckpt reads version %d; "+
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
