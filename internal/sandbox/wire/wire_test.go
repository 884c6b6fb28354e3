package wire

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestOrderTravels(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	want := Order{Driver: Full, Argv: []string{"a", "b\n"}, Shell: string(make([]byte, 300<<10)), UID: 7}
	done := make(chan error, 1)
	go func() { done <- WriteOrder(FD(p[1]), want) }()
	got, err := ReadOrder(FD(p[0]))
	if err != nil || got.Driver != want.Driver || got.Shell != want.Shell || got.UID != 7 || got.Argv[1] != "b\n" {
		t.Errorf("got %.100v, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := unix.Close(p[1]); err != nil {
		t.Fatal(err)
	}
	if !Either(p[0], -1, -1) {
		t.Error("the end of a closed pipe was not seen")
	}
	if _, err := ReadOrder(FD(p[0])); err == nil {
		t.Error("an order was read from a closed pipe")
	}
}
