package config

import (
	"reflect"
	"testing"
)

// A network is written as it is read, and the values of earlier builds mean what they meant.
func TestNetwork(t *testing.T) {
	for text, want := range map[string]Network{
		"off": {}, "false": {}, "open": {Open: true}, "true": {Open: true},
		"[git.example.org]": {Hosts: []string{"git.example.org"}},
		"[git.example.org, '*.example.net', \"a.org:8443\"]": {Hosts: []string{"git.example.org", "*.example.net", "a.org:8443"}},
		"git.example.org,*.example.net":                      {Hosts: []string{"git.example.org", "*.example.net"}},
		"[localhost]":                                        {Hosts: []string{"localhost"}},
	} {
		var got, again Network
		if problem := ParseNetwork(text, &got); problem != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %s", text, got, problem)
		}
		if problem := ParseNetwork(got.String(), &again); problem != "" || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: %s is read as %+v %s", text, got, again, problem)
		}
	}
	for _, text := range []string{"", "on", "yes", "[]", "closed"} {
		if n := (Network{Open: true}); ParseNetwork(text, &n) == "" || !n.Open {
			t.Errorf("%q: %+v", text, n)
		}
	}
}
