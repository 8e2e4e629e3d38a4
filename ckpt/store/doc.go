// SPDX-License-Identifier: Apache-2.0

// Package store keeps the checkpoints of a job in a directory:
//
//	DIR/job.json                      the running job: where it listens, pid of rank 0
//	DIR/epoch-000003/rank-00000.ckpt  one image a rank (ckpt/image)
//	DIR/epoch-000003/manifest.json    written last
//
// Other names in it are not its own and left alone: DIR/lease (ckpt/lease), DIR/.meet (ckpt/meeting), ckpt.toml.
//
// An epoch is a set of images that belong together. It goes through these states:
//
//	            Begin               Commit
//	 (nothing) ───────► incomplete ────────► committed
//	      ▲               │                     │
//	      └── Abandon ────┴────── Retire ───────┘
//
//	incomplete  there is a directory epoch-N without a manifest. It counts for nothing: it is under
//	            way, or was left behind by a crash. Only Abandon and Retire look at it.
//	committed   there is epoch-N/manifest.json. Every image it lists was on stable storage, under its
//	            name, before the manifest was; the manifest got its name in one step (rename), and
//	            was locked (flock) until that name was on stable storage: one whose manifest is locked
//	            is still incomplete. To remove the epoch, the manifest goes first.
//
// One process calls Begin, Commit, Abandon and Retire: that of rank 0, which owns the directory (ckpt/lease). Every
// process may write its image at ImagePath, and read.
//
// Owns: names and permissions in the directory, the manifest, the commit, garbage collection.
// May not know: MPI, sockets, how images are made, when to checkpoint.
package store
