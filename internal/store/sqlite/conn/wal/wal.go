// Package wal writes the frames of a write-ahead log into its file: those of one
// transaction in two writes instead of two for each page.
//
//	engine: header, page, header, page, ... header of the commit, page
//	file:   [------------- one write --------------------------]  [---]
//
// It is a file system of the engine (a VFS) that passes everything on to the
// engine's own one, and holds frames back in memory until the header of the frame
// that commits them, which goes out with them. No frame is held back
// that a reader could need: every other operation on the file (reading, syncing,
// asking for its size) writes out first what is held, in order, and a commit is
// written before the engine makes it visible. What a killed process held back was
// not committed. A write that fails does so before the commit is answered.
//
// It knows the frames of the format and nothing of pages, and touches no other file.
//
// It uses unsafe, and of the packages over the engine no other does: the engine calls
// functions of this package by their addresses and keeps a structure of it.
package wal

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// Name of the file system.
	Name = "theclaw"

	header = 24 // bytes before each page
	// most is held before something is written: with the largest page behind it, it is
	// still below the 128 KiB from which on the engine's own file system writes nothing.
	most = 60 << 10
)

type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	fileFunc  = func(tls *libc.TLS, file uintptr) int32
	moveFunc  = func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	sizeFunc  = func(tls *libc.TLS, file, size uintptr) int32
	truncFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc  = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// The engine's own file system, and the methods of its files with and without ours
// in them. All are set once, before the first use.
var (
	vfs, under  sqlite3.Tsqlite3_vfs
	plain, ours sqlite3.Tsqlite3_io_methods
	once        sync.Once
	logs        sync.Map // of *log by the address of the file
	buffers     = sync.Pool{New: func() any { return new([]byte) }}
)

// log is an open write-ahead log. The engine uses a file from one goroutine at a time.
type log struct {
	held   *[]byte // nil: nothing
	at     int64   // where it goes
	inside bool    // the page of the last header is missing yet
}

// Register makes the file system known to the engine; it may be called again.
var Register = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	own := sqlite3.Xsqlite3_vfs_find(tls, 0)
	if own == 0 {
		return errors.New("the engine has no file system")
	}
	name := libc.Xmalloc(tls, types.Size_t(len(Name)+1)) // kept: the engine keeps it
	if name == 0 {
		return errors.New("the engine has no memory")
	}
	copy(libc.GoBytes(name, len(Name)+1), Name+"\x00")
	under = *at[sqlite3.Tsqlite3_vfs](own)
	vfs = under
	vfs.FpNext, vfs.FzName, vfs.FxOpen = 0, name, pointer(open)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, uintptr(unsafe.Pointer(&vfs)), 0); rc != sqlite3.SQLITE_OK {
		return errors.New("the engine refuses a file system")
	}
	return nil
})

func open(tls *libc.TLS, v, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFunc](under.FxOpen)(tls, v, name, file, flags, out)
	if rc != sqlite3.SQLITE_OK || flags&sqlite3.SQLITE_OPEN_WAL == 0 {
		return rc
	}
	f := at[sqlite3.Tsqlite3_file](file)
	once.Do(func() {
		plain = *at[sqlite3.Tsqlite3_io_methods](f.FpMethods)
		ours = plain
		ours.FxClose, ours.FxRead, ours.FxWrite = pointer(closeLog), pointer(read), pointer(write)
		ours.FxTruncate, ours.FxSync, ours.FxFileSize = pointer(truncate), pointer(syncLog), pointer(fileSize)
	})
	if *at[sqlite3.Tsqlite3_io_methods](f.FpMethods) != plain {
		return rc // a file of another kind: as the engine has it
	}
	logs.Store(file, &log{})
	f.FpMethods = uintptr(unsafe.Pointer(&ours))
	return rc
}

func find(file uintptr) *log {
	l, _ := logs.Load(file)
	return l.(*log)
}

// write holds the frames of a transaction back until the one that commits it.
func write(tls *libc.TLS, file, p uintptr, n int32, to int64) int32 {
	l := find(file)
	head := n == header
	if !(l.held != nil && to == l.end() && (head || l.inside)) {
		if rc := l.flush(tls, file); rc != sqlite3.SQLITE_OK {
			return rc
		}
		if !head {
			return function[moveFunc](plain.FxWrite)(tls, file, p, n, to)
		}
		l.held, l.at = buffers.Get().(*[]byte), to
	}
	data := libc.GoBytes(p, int(n))
	*l.held = append(*l.held, data...)
	l.inside = head
	// The second word is the size of the database after a commit; else nothing. The
	// page of a commit does not always follow: its header may be written again alone.
	if head && binary.BigEndian.Uint32(data[4:]) != 0 || len(*l.held) > most {
		return l.flush(tls, file)
	}
	return sqlite3.SQLITE_OK
}

func (l *log) end() int64 { return l.at + int64(len(*l.held)) }

func (l *log) flush(tls *libc.TLS, file uintptr) int32 {
	b := l.held
	if b == nil {
		return sqlite3.SQLITE_OK
	}
	rc := function[moveFunc](plain.FxWrite)(tls, file, uintptr(unsafe.Pointer(unsafe.SliceData(*b))), int32(len(*b)), l.at)
	runtime.KeepAlive(b)
	l.drop()
	return rc
}

func (l *log) drop() {
	if l.held != nil {
		*l.held = (*l.held)[:0]
		buffers.Put(l.held)
		l.held, l.inside = nil, false
	}
}

func read(tls *libc.TLS, file, p uintptr, n int32, from int64) int32 {
	if rc := find(file).flush(tls, file); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[moveFunc](plain.FxRead)(tls, file, p, n, from)
}

func truncate(tls *libc.TLS, file uintptr, size int64) int32 {
	if rc := find(file).flush(tls, file); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[truncFunc](plain.FxTruncate)(tls, file, size)
}

func syncLog(tls *libc.TLS, file uintptr, flags int32) int32 {
	if rc := find(file).flush(tls, file); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[syncFunc](plain.FxSync)(tls, file, flags)
}

func fileSize(tls *libc.TLS, file, size uintptr) int32 {
	if rc := find(file).flush(tls, file); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[sizeFunc](plain.FxFileSize)(tls, file, size)
}

// closeLog forgets what is held: it was never committed.
func closeLog(tls *libc.TLS, file uintptr) int32 {
	find(file).drop()
	logs.Delete(file)
	return function[fileFunc](plain.FxClose)(tls, file)
}

// at is what lies at an address of the engine's.
func at[T any](p uintptr) *T {
	var t T
	return (*T)(unsafe.Pointer(unsafe.SliceData(libc.GoBytes(p, int(unsafe.Sizeof(t))))))
}

// pointer is a function as the engine calls it.
func pointer(f any) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&f))[1]
}

// function is the other way.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }
