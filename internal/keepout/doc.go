// SPDX-License-Identifier: Apache-2.0

// Package keepout keeps the memory of Go's runtime out of the addresses that belong to a program under
// ckptrun: the arena, and addresses below 2 GiB. A program imports it for this effect alone.
//
// Go places its heap at a random address and asks the kernel for it with a hint. In the arena the heap
// would be saved as if it were the program's, and a restart would find its addresses taken. Go's runtime
// calls the C library's mmap when there is C in the program. The mmap of this package replaces that one in
// the same executable or shared object, and drops a hint in these addresses. Go takes such an answer as
// "taken" and tries its next address.
//
// A reservation of the whole arena would do the same for all libraries, but its 768 GiB count against a
// limit of the address space, in the sizes that batch systems watch and in what mlockall may lock, and a
// hole would not be a hole to the program any more. ckptrun looks once at its start instead whether some
// library has taken addresses there, and snapshot at each checkpoint.
//
// Owns: where Go's memory may not lie. May not know: who maps what there.
package keepout
