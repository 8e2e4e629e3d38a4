// SPDX-License-Identifier: Apache-2.0

// Package history judges what was seen of a job from the outside: what was asked for and answered, what
// appeared on disk, what the program did, which processes began and ended, and what was done to them. A
// history is a list of events in the order in which they were seen, and Check finds what must not be in it:
//
//	I1  an epoch that was reported is on disk, whole, until newer ones take its place
//	I2  a job that is said to go on does, and no epoch appears that nobody asked for, or that was given up
//	I3  the newest epoch is never lost: a restart that nothing disturbs succeeds
//	I4  numbers of epochs, and tokens of owners, grow
//	I5  every step of the program is that of an undisturbed run, and a restart goes on where its epoch was made
//	I6  a directory has one owner at a time
//	I7  what is to happen after the commit happens after it, and never without one
//	I8  who is missing is named, once
//	I9  a job that nobody ended comes to its end, with the right result
//	I10 every request is answered, in its time and some more
//
// It owns these rules. It may not know how things were seen or done; it does no I/O and reads no clock: times
// are for people.
package history
