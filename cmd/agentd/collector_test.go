package main

import (
	"runtime"
	"testing"
)

func TestPercentOf(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 200, 6 << 20: 200, 12 << 20: 200, 15 << 20: 160, 24 << 20: 100, 32 << 20: 100, 1 << 30: 100} {
		if got := percentOf(inUse); got != want {
			t.Errorf("%d MB in use: %d %%, want %d", inUse>>20, got, want)
		}
	}
}

func TestAfterCollection(t *testing.T) {
	called := make(chan struct{}, 1)
	afterCollection(func() {
		select {
		case called <- struct{}{}:
		default: // after the test
		}
	})
	for range 3 {
		runtime.GC()
		<-called
	}
}
