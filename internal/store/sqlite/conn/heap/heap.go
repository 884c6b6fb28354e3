// Package heap is the memory of the storage engine.
//
//	engine --malloc, free--> slabs of pieces of one size --mmap, munmap--> kernel
//	                             ^
//	Trim: what is unused goes back
//
// The engine's own way to memory is libc's, which keeps what was freed for reuse, has no call to
// return it, and knows sizes that are powers of two: a page of the page cache is 1,296 bytes
// there and takes 2,048. Here a piece is at most 15 bytes or a sixteenth larger than what is
// asked for, a slab that no piece is in any more is used for any size again, and Trim returns
// what is unused.
//
// It is installed when the program starts, before the first database is opened, which is the
// only time at which the engine accepts it. Should it be refused, the engine goes on with
// libc's memory and Trim has nothing to return. It does not limit what the engine takes.
package heap

import (
	"errors"
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	slabBytes = 64 << 10 // and the alignment of slabs
	batch     = 16       // slabs that are mapped at once
	headBytes = 64       // of a slab, before its pieces

	// Pieces have the multiples of grain as sizes up to finest, and then 16 between each power
	// of two and the next. What is larger than most has a region of its own.
	grain      = 16
	log2Finest = 8
	finest     = 1 << log2Finest
	log2Most   = 14
	most       = 1 << log2Most
	classes    = finest/grain + (log2Most-log2Finest)*16

	maxSpare = 2 * batch // slabs that are kept for reuse
	maxLarge = 8         // regions of large pieces that are kept for reuse
)

// slab is the head of a region: a slab of pieces of one size, or a large piece.
type slab struct {
	size   int     // of its pieces
	bytes  int     // of the region
	used   int     // pieces
	carved int     // where the memory begins that no piece was in yet
	free   uintptr // the first of the pieces that were freed; each begins with the next one

	prev, next *slab // in the list of slabs of this size that have room
}

var (
	mu    sync.Mutex
	room  [classes]*slab // slabs that have room
	spare []*slab        // slabs without a piece
	large []*slab        // regions without a piece, the oldest first

	inUse  int64 // bytes of the pieces that are allocated
	mapped int64 // bytes of address space

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
	var errs []error
	for _, list := range []*[]*slab{&spare, &large} {
		for _, s := range *list {
			errs = append(errs, unmap(s))
		}
		*list = nil
	}
	return errors.Join(errs...)
}

// class is the number of the smallest size that n bytes fit into, and that size.
func class(n int) (int, int) {
	if n <= finest {
		c := max((n+grain-1)/grain, 1)
		return c - 1, c * grain
	}
	power := bits.Len(uint(n-1)) - 1 // n is above this power of two, and at most the next
	step := power - 4
	c := (n-1)>>step + 1 // from 17 to 32
	return finest/grain + (power-log2Finest)*16 + c - 17, c << step
}

func malloc(_ *libc.TLS, n int32) uintptr {
	mu.Lock()
	defer mu.Unlock()
	return take(int(n))
}

// take allocates a piece; 0: there is no memory (SQLITE_NOMEM).
func take(n int) uintptr {
	if n > most {
		return takeLarge(n)
	}
	c, size := class(n)
	s := room[c]
	if s == nil {
		if s = emptySlab(); s == nil {
			return 0
		}
		s.size, s.used, s.carved, s.free = size, 0, headBytes, 0
		s.prev, s.next = nil, nil
		room[c] = s
	}
	p := s.free
	if p != 0 {
		s.free = *at[uintptr](p)
	} else {
		p = address(s) + uintptr(s.carved)
		s.carved += size
	}
	s.used++
	if s.full() {
		s.leave(c)
	}
	inUse += int64(size)
	return p
}

// full reports whether no other piece fits.
func (s *slab) full() bool { return s.free == 0 && s.carved+s.size > slabBytes }

// leave takes a slab out of the list of those with room.
func (s *slab) leave(c int) {
	if s.next != nil {
		s.next.prev = s.prev
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		room[c] = s.next
	}
	s.prev, s.next = nil, nil
}

func free(_ *libc.TLS, p uintptr) {
	mu.Lock()
	defer mu.Unlock()
	give(p)
}

func give(p uintptr) {
	s := of(p)
	inUse -= int64(s.size)
	if s.size > most {
		if large = append(large, s); len(large) > maxLarge {
			_ = unmap(large[0]) // what cannot be unmapped stays mapped
			large = append(large[:0], large[1:]...)
		}
		return
	}
	c, _ := class(s.size)
	full := s.full()
	*at[uintptr](p), s.free = s.free, p
	s.used--
	switch {
	case s.used == 0:
		if !full {
			s.leave(c)
		}
		if len(spare) < maxSpare {
			spare = append(spare, s)
			return
		}
		_ = unmap(s) // what cannot be unmapped stays mapped
	case full:
		if s.next = room[c]; s.next != nil {
			s.next.prev = s
		}
		room[c] = s
	}
}

func realloc(_ *libc.TLS, p uintptr, n int32) uintptr {
	mu.Lock()
	defer mu.Unlock()
	s := of(p)
	if int(n) <= s.size && int(n) > s.size/2 {
		return p
	}
	q := take(int(n))
	if q == 0 {
		return 0 // the piece is as it was
	}
	copy(libc.GoBytes(q, int(n)), libc.GoBytes(p, min(int(n), s.size)))
	give(p)
	return q
}

// size reads what is set before the piece is handed out: no lock is needed.
func size(_ *libc.TLS, p uintptr) int32 {
	if p == 0 {
		return 0
	}
	return int32(of(p).size)
}

func roundUp(_ *libc.TLS, n int32) int32 { return (n + 7) &^ 7 }

func start(*libc.TLS, uintptr) int32 { return sqlite3.SQLITE_OK }

func stop(*libc.TLS, uintptr) {}

// emptySlab is one without a piece; nil: there is no memory.
func emptySlab() *slab {
	if len(spare) == 0 {
		first := mapRegion(batch * slabBytes)
		if first == 0 {
			return nil
		}
		for i := batch - 1; i >= 0; i-- { // the last one is used first
			s := at[slab](first + uintptr(i*slabBytes))
			s.bytes = slabBytes
			spare = append(spare, s)
		}
	}
	s := spare[len(spare)-1]
	spare = spare[:len(spare)-1]
	return s
}

// takeLarge allocates a piece that has a region of its own.
func takeLarge(n int) uintptr {
	bytes := (headBytes + n + slabBytes - 1) &^ (slabBytes - 1)
	for i := len(large) - 1; i >= 0; i-- {
		if s := large[i]; s.bytes == bytes {
			large = append(large[:i], large[i+1:]...)
			inUse += int64(s.size)
			return address(s) + headBytes
		}
	}
	p := mapRegion(bytes)
	if p == 0 {
		return 0
	}
	s := at[slab](p)
	s.size, s.bytes = bytes-headBytes, bytes
	inUse += int64(s.size)
	return p + headBytes
}

// mapRegion maps memory that begins at a multiple of slabBytes; 0: there is none.
func mapRegion(bytes int) uintptr {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes+slabBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0
	}
	begin := (uintptr(p) + slabBytes - 1) &^ (slabBytes - 1)
	before := begin - uintptr(p)
	if before > 0 {
		_ = unix.MunmapPtr(p, before) // address space that is never touched
	}
	_ = unix.MunmapPtr(unsafe.Add(p, int(before)+bytes), slabBytes-before)
	mapped += int64(bytes)
	return begin
}

func unmap(s *slab) error {
	bytes := s.bytes
	if err := unix.MunmapPtr(unsafe.Pointer(s), uintptr(bytes)); err != nil {
		return err
	}
	mapped -= int64(bytes)
	return nil
}

// of is the head of the region that a piece is in: a large one begins in the first slabBytes.
func of(p uintptr) *slab { return at[slab](p &^ (slabBytes - 1)) }

func address(s *slab) uintptr { return uintptr(unsafe.Pointer(s)) }

// at is what lies at an address that was mapped here.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer is a function as the engine calls it.
func pointer(f any) uintptr { return (*[2]uintptr)(unsafe.Pointer(&f))[1] }
