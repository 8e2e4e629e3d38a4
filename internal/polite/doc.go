// SPDX-License-Identifier: Apache-2.0

// Package polite runs functions on threads that yield to the program and never get more than it.
//
// Owns: these threads. May not know: what the functions do.
//
// The threads never end. An unprivileged thread cannot take its priority back, so Go must not get it for other work;
// and a thread of Go that ends lets in signal 34, the first real-time one, for a moment. If the program keeps that signal
// pending, the thread would take it out of the queue, and its place there would be lost.
package polite
