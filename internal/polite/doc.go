// SPDX-License-Identifier: Apache-2.0

// Package polite runs functions on threads that yield to the program and never get more than it: nice ones (Run), or one of
// the program's own priority that rests between pieces (Pace), for work that holds what the program may wait for.
//
// Owns: these threads, and how they see that others wait. May not know: what the functions do.
//
// The nice threads never end. An unprivileged thread cannot take its priority back, so Go must not get it for other work;
// and a thread of Go that ends lets in signal 34, the first real-time one, for a moment. If the program keeps that signal
// pending, the thread would take it out of the queue, and its place there would be lost.
package polite
