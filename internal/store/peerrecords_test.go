package store

import "testing"

// What is a peer's is told from what only looks like it.
func TestPeerRecords(t *testing.T) {
	s := PeerRecords{Threads: []string{"threads/peers/main-bob"}, Turns: []string{"u:1:ab"}, Inbox: []int64{3, 12}}
	for _, c := range []struct {
		thread, key string
		want        bool
	}{
		{"threads/peers/main-bob", "u:7:cd:tool:1:1", true},
		{"threads/peers/main-bobby", "u:7:cd:tool:1:1", false},
		{"threads/all", "u:1:ab:tool:1:1", true},
		{"threads/all", "u:1:abc:tool:1:1", false},
		{"threads/all", "u:11:ab:tool:1:1", false},
	} {
		if got := s.Asked(c.thread, c.key); got != c.want {
			t.Errorf("question %s of %s: %v", c.key, c.thread, got)
		}
	}
	for line, want := range map[string]bool{
		"route: inbox event 12 from external:x -> threads/peers/main-bob":    true,
		"route: inbox event 120 from external:x -> threads/peers/main-bobby": false,
		"result: inbox event 3 replied after 5 ms":                           true,
		"result: inbox event 4 replied after 5 ms":                           false,
		"threads/peers/main-bobby, threads/peers/main-bob: sent":             true,
		"sent in threads/peers/main-bob.":                                    true,
		"sent in threads/peers/main-bob.x":                                   false,
		"sent in threads/peers/main-bob/sub":                                 false,
		"agent started":                                                      false,
		"threads/peers/main-bob":                                             true,
		"inbox event 99999999999999999999999999":                             false,
	} {
		if got := s.Logged(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
