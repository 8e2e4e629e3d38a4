// SPDX-License-Identifier: Apache-2.0

package forget

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mount mounts the disk at a folder, which needs root and /dev/fuse, until unmount is called. Nothing may
// be open on it then.
func (d *Disk) Mount(folder string) (unmount func() error, err error) {
	server, err := fs.Mount(folder, &node{disk: d, id: rootID}, &fs.Options{
		RootStableAttr: &fs.StableAttr{Ino: rootID},
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "forget", Name: "forget",
			DisableXAttrs: true, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV}})
	if err != nil {
		return nil, err
	}
	return server.Unmount, nil
}

// node is a file or folder as FUSE sees it.
type node struct {
	fs.Inode
	disk *Disk
	id   uint64
}

var _ = (interface {
	fs.NodeLookuper
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeReaddirer
	fs.NodeCreater
	fs.NodeMkdirer
	fs.NodeUnlinker
	fs.NodeRmdirer
	fs.NodeRenamer
	fs.NodeLinker
	fs.NodeOpener
	fs.NodeReader
	fs.NodeWriter
	fs.NodeFsyncer
	fs.NodeStatfser
})((*node)(nil))

// object returns the node's object with the lock of the disk held.
func (n *node) object() (*object, func()) {
	n.disk.mu.Lock()
	return n.disk.objects[n.id], n.disk.mu.Unlock
}

func (o *object) attributes(id uint64, a *fuse.Attr) {
	a.Ino, a.Nlink, a.Size, a.Blksize, a.Blocks = id, o.links, uint64(len(o.live)), 4096, uint64(len(o.live)+511)/512
	a.Mode = o.mode | o.kind()
	a.SetTimes(nil, &o.mtime, &o.mtime)
}

func (o *object) kind() uint32 {
	if o.folder {
		return syscall.S_IFDIR
	}
	return syscall.S_IFREG
}

// child is the FUSE node of an object in this folder.
func (n *node) child(ctx context.Context, id uint64, out *fuse.EntryOut) *fs.Inode {
	o := n.disk.objects[id]
	o.attributes(id, &out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, id: id}, fs.StableAttr{Mode: o.kind(), Ino: id})
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	o, unlock := n.object()
	defer unlock()
	id, ok := o.names[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, id, out), 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	o, unlock := n.object()
	defer unlock()
	o.attributes(n.id, &out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	o, unlock := n.object()
	defer unlock()
	if size, ok := in.GetSize(); ok {
		o.resize(int(size))
	}
	if mode, ok := in.GetMode(); ok {
		o.mode = mode & 0o7777
	}
	if at, ok := in.GetMTime(); ok {
		o.mtime = at
	}
	o.attributes(n.id, &out.Attr)
	return 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	o, unlock := n.object()
	defer unlock()
	var list []fuse.DirEntry
	for _, name := range slices.Sorted(maps.Keys(o.names)) {
		id := o.names[name]
		list = append(list, fuse.DirEntry{Name: name, Ino: id, Mode: n.disk.objects[id].kind()})
	}
	return fs.NewListDirStream(list), 0
}

func (n *node) add(ctx context.Context, name string, folder bool, mode uint32, out *fuse.EntryOut) *fs.Inode {
	o, unlock := n.object()
	defer unlock()
	id := n.disk.create(folder, mode)
	o.names[name] = id
	o.mtime = time.Now()
	n.disk.stepped("create %s", name)
	return n.child(ctx, id, out)
}

func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return n.add(ctx, name, false, mode, out), nil, 0, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, true, mode, out), 0
}

// drop takes a name away. An object without a name stays in the model: somebody may have it open.
func (d *Disk) drop(o *object, name string) {
	if id, ok := o.names[name]; ok {
		d.objects[id].links--
		delete(o.names, name)
		o.mtime = time.Now()
	}
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	o, unlock := n.object()
	defer unlock()
	n.disk.drop(o, name)
	n.disk.stepped("remove %s", name)
	return 0
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	o, unlock := n.object()
	if id, ok := o.names[name]; ok && len(n.disk.objects[id].names) > 0 {
		unlock()
		return syscall.ENOTEMPTY
	}
	unlock()
	return n.Unlink(ctx, name)
}

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.EINVAL
	}
	o, unlock := n.object()
	defer unlock()
	to := n.disk.objects[parent.(*node).id]
	id := o.names[name]
	if to.names[newName] == id {
		return 0 // two names of one file
	}
	n.disk.drop(to, newName)
	delete(o.names, name)
	to.names[newName] = id
	o.mtime, to.mtime = time.Now(), time.Now()
	n.disk.stepped("rename %s to %s", name, newName)
	return 0
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	o, unlock := n.object()
	defer unlock()
	id := target.(*node).id
	o.names[name] = id
	n.disk.objects[id].links++
	n.disk.stepped("link %s", name)
	return n.child(ctx, id, out), 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) { return nil, 0, 0 }

func (n *node) Read(_ context.Context, _ fs.FileHandle, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	o, unlock := n.object()
	defer unlock()
	if at >= int64(len(o.live)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(b[:copy(b, o.live[at:])]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, b []byte, at int64) (uint32, syscall.Errno) {
	o, unlock := n.object()
	defer unlock()
	o.write(b, int(at))
	return uint32(len(b)), 0
}

// Fsync is for files and folders.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	o, unlock := n.object()
	defer unlock()
	o.sync()
	n.disk.stepped("sync %d", n.id)
	return 0
}

// Statfs tells of room: a file system without any is not used.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<20, 1<<19, 1<<19
	return 0
}
