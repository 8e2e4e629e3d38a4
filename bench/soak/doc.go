// SPDX-License-Identifier: Apache-2.0

// Command soak is `make soak`. It runs programs under ckptrun for a number of cycles of saving, killing and
// restarting (internal/soak), and prints what went wrong, and how long checkpoints took.
//
//	go run ./bench/soak -build build -cycles 500
//	go run ./bench/soak -build build -life 0x1234 -only heat   one life again, as a failure named it
//
// It owns the options and the report. It does not know what a life is made of.
package main
