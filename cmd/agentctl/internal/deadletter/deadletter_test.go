package deadletter

import "testing"

func TestParse(t *testing.T) {
	for id, want := range map[string]name{
		"t:17": {"", 17}, "d:threads/peers/cli-cli:4": {"threads/peers/cli-cli", 4}, "d:threads/peers/a:b-c:9": {"threads/peers/a:b-c", 9},
	} {
		if got, err := parse(id); err != nil || got != want {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	for _, id := range []string{"", "17", "t:", "t:0", "t:-1", "t:x", "t:1:2", "d:", "d:4", "d:threads/main", "d:threads/main:", "d:../x:1", "x:1", "d:threads/main:99999999999999999999"} {
		if got, err := parse(id); err == nil {
			t.Errorf("%s: %+v is accepted", id, got)
		}
	}
}
