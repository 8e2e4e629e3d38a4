// SPDX-License-Identifier: Apache-2.0

package main

// The file addresses.c looks at the limit of the address space before Go's runtime starts; this import makes
// it a part of the program.

import "C"
