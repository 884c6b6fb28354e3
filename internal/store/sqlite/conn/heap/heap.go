// Package heap is the memory of the storage engine.
//
//	engine --malloc, free--> Allocator --mmap--> kernel
//	                             ^
//	Trim: what is unused goes back
//
// The engine's own way to memory is libc's, which keeps what was freed for reuse and has
// no call to return it, and which puts eight bytes before each piece for its size: the 1,024
// bytes in which the engine begins each statement take 2,048 then. Here the allocator is the
// same one, but ours: it knows the sizes itself, and Trim returns what no piece is in.
//
// It is installed when the program starts, before the first database is opened, which is the
// only time at which the engine accepts it. Should it be refused, the engine goes on with
// libc's memory and Trim has nothing to return. It does not limit what the engine takes.
package heap

import (
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/memory"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	mu        sync.Mutex
	allocator memory.Allocator
	inUse     int64 // bytes of the pieces that are allocated

	methods = sqlite3.Tsqlite3_mem_methods{
		FxMalloc: pointer(malloc), FxFree: pointer(free), FxRealloc: pointer(realloc), FxSize: pointer(size),
		FxRoundup: pointer(roundUp), FxInit: pointer(start), FxShutdown: pointer(stop),
	}
)

func init() { //nolint:gochecknoinits // the engine takes its memory before the first database is opened
	tls := libc.NewTLS()
	defer tls.Close()
	args := libc.Xmalloc(tls, 16)
	if args == 0 {
		return
	}
	defer libc.Xfree(tls, args)
	sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MALLOC, libc.VaList(args, uintptr(unsafe.Pointer(&methods))))
}

// InUse is how many bytes the engine has allocated.
func InUse() int64 {
	mu.Lock()
	defer mu.Unlock()
	return inUse
}

// Trim returns memory that nothing is allocated in to the system.
func Trim() error {
	mu.Lock()
	defer mu.Unlock()
	return allocator.Trim()
}

func malloc(_ *libc.TLS, n int32) uintptr {
	mu.Lock()
	defer mu.Unlock()
	p, err := allocator.UintptrMalloc(int(n))
	if err != nil {
		return 0 // SQLITE_NOMEM
	}
	inUse += int64(memory.UintptrUsableSize(p))
	return p
}

func free(_ *libc.TLS, p uintptr) {
	mu.Lock()
	defer mu.Unlock()
	inUse -= int64(memory.UintptrUsableSize(p))
	_ = allocator.UintptrFree(p) // what cannot be unmapped stays mapped
}

func realloc(_ *libc.TLS, p uintptr, n int32) uintptr {
	mu.Lock()
	defer mu.Unlock()
	before := int64(memory.UintptrUsableSize(p))
	q, err := allocator.UintptrRealloc(p, int(n))
	if err != nil {
		return 0 // the piece is as it was
	}
	inUse += int64(memory.UintptrUsableSize(q)) - before
	return q
}

// size reads what the allocator wrote before the piece was handed out: no lock is needed.
func size(_ *libc.TLS, p uintptr) int32 { return int32(memory.UintptrUsableSize(p)) }

func roundUp(_ *libc.TLS, n int32) int32 { return (n + 7) &^ 7 }

func start(*libc.TLS, uintptr) int32 { return sqlite3.SQLITE_OK }

func stop(*libc.TLS, uintptr) {}

// pointer is a function as the engine calls it.
func pointer(f any) uintptr { return (*[2]uintptr)(unsafe.Pointer(&f))[1] }
