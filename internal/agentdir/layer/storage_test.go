package layer

import (
	"strings"
	"testing"
)

// Where a home's agents are kept is said in theclaw.yaml; a password is never in it.
func TestReadStorage(t *testing.T) {
	for _, c := range []struct{ text, wants string }{
		{"", ""},
		{"storage: {engine: sqlite}", ""},
		{"storage: {engine: postgres, dsns: ['env:DSN', 'file:/run/dsn', 'postgres://claw@db:5432/claw']}", ""},
		{"storage: {engine: postgres}", "needs storage.dsns"},
		{"storage: {dsns: ['env:DSN']}", "needs storage.dsns"},
		{"storage: {engine: mysql}", "sqlite or postgres"},
		{"storage: {engine: postgres, dsns: 'env:DSN'}", "must be a list"},
		{"storage: {engine: postgres, dsns: ['postgres://claw:secret@db/claw']}", "as env:NAME or file:PATH"},
		{"storage: {engine: postgres, dsns: ['mysql://db']}", "write env:NAME"},
		{"storage: {shards: 3}", "unknown key"},
		{"storage: postgres", "below it"},
	} {
		s, err := ReadStorage(File{Name: "theclaw.yaml", Data: []byte(c.text)})
		if c.wants == "" {
			if err != nil || s.Postgres != (len(s.DSNs) > 0) {
				t.Errorf("%s: %+v, %v", c.text, s, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: %v, want %q", c.text, err, c.wants)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
