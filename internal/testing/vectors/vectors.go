// Package vectors compares decisions with recorded ones: files in which another implementation has
// written down inputs and what it decided.
//
// It promises that no vector is left out: one that is decided differently here is listed with the
// reason, and must differ. It does not know what a vector means.
package vectors

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// Vector is one recorded decision.
type Vector struct {
	Fn       string          // the function that decided
	Input    json.RawMessage // its arguments
	Expected json.RawMessage
	// Later is what a later version of that function decided; nil: the same.
	Later json.RawMessage `json:"expected_2026_9_6"`
}

// Read decodes testdata/NAME.json into a value.
func Read(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Compare compares each vector of testdata/NAME.json with the answer here, as JSON, and logs how many
// are equal and how many are listed. different has the reason of each that is decided differently, by
// its place in the file, from 0.
func Compare(t *testing.T, name string, different map[int]string, answer func(t *testing.T, v Vector) any) {
	t.Helper()
	var file struct{ Vectors []Vector }
	Read(t, name, &file)
	for i, why := range different {
		if i < 0 || i >= len(file.Vectors) {
			t.Errorf("vector %d is listed (%s), and there is none", i, why)
		}
	}
	passed, listed := 0, 0
	for i, v := range file.Vectors {
		got := plain(t, answer(t, v))
		same := reflect.DeepEqual(got, plain(t, v.Expected)) || v.Later != nil && reflect.DeepEqual(got, plain(t, v.Later))
		switch why, isListed := different[i]; {
		case same && isListed:
			t.Errorf("vector %d passes, and is listed as different: %s", i, why)
		case same:
			passed++
		case isListed:
			listed++
		default:
			t.Errorf("vector %d, %s %s: got %v, want %s", i, v.Fn, v.Input, got, v.Expected)
		}
	}
	t.Logf("%s passed=%d listed=%d total=%d", name, passed, listed, len(file.Vectors))
}

// plain is a value as JSON decodes it.
func plain(t *testing.T, v any) (out any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
