package pins

import "testing"

// Pins are pruned by settings that were seen twice, once for each version, and again after an error.
func TestSettled(t *testing.T) {
	var s settled
	for i, c := range []struct {
		version  string
		due, err bool
	}{
		{version: "1"},
		{version: "1", due: true},
		{version: "1"},
		{version: ""}, // the file is away for a moment
		{version: "1"},
		{version: "1"},
		{version: "2"},
		{version: "2", due: true, err: true},
		{version: "2", due: true},
		{version: "2"},
		{version: ""},
		{version: "", due: true},
		{version: ""},
	} {
		due := s.due(c.version)
		if due != c.due {
			t.Errorf("scan %d of version %q: due %v, want %v", i, c.version, due, c.due)
		}
		if due && !c.err {
			s.done(c.version)
		}
	}
}
