package invariant_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/invariant"
)

// size is a number from the environment, so that the proof runs small with the
// other tests and large on its own.
func size(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// TestBitrot flips bits and bytes in the rows of events of a thread that the
// services have written, one at a time, headers of the rows included. Each flip
// that changes what the database says is found. `make bitrot N=1000`.
func TestBitrot(t *testing.T) {
	n, seed := size("N", 60), size("SEED", time.Now().UnixNano())
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	h, _ := home(t)
	path := filepath.Join(h.AgentDir("a1"), made.thread, "events.db")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, rows := contents(t, path)
	var at []int
	for _, row := range rows {
		at = append(at, places(t, good, row)...)
	}
	flips, found := int64(0), int64(0)
	for flips < n {
		i, mask := at[r.IntN(len(at))], byte(1)<<r.IntN(8)
		if r.IntN(4) == 0 {
			mask = byte(1 + r.IntN(255)) // a whole byte
		}
		bad := bytes.Clone(good)
		bad[i] ^= mask
		write(t, path, string(bad))
		if got, _ := contents(t, path); slices.Equal(got, want) {
			continue // a place that holds nothing any more
		}
		flips++
		hit := false
		for _, f := range check(t, h, invariant.Options{Agent: "a1"}) {
			hit = hit || f.Invariant == "I17" && f.Thread == made.thread
		}
		if hit {
			found++
		} else {
			t.Errorf("byte %d xor %#x is not found", i, mask)
		}
	}
	fmt.Printf("bitrot flips=%d found=%d seed=%d\n", flips, found, seed)
	if found != flips || flips == 0 {
		t.Errorf("%d of %d flips found, seed %d", found, flips, seed)
	}
}

// contents answers what plain SQLite reads of the events: each row with the type
// of each value, and its text columns as they stand together in the file. A
// damaged file answers less, or nothing.
func contents(t *testing.T, path string) (rows []string, stored []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got, err := db.QueryContext(t.Context(), `SELECT quote(id)||quote(created_at)||quote(source)||quote(type)||quote(subtype)||quote(content),
		CAST(created_at||source||type||COALESCE(subtype,'')||content AS TEXT) FROM events ORDER BY id`)
	if err != nil {
		return []string{err.Error()}, nil
	}
	defer got.Close()
	for got.Next() {
		var quoted, raw string
		if err := got.Scan(&quoted, &raw); err != nil {
			return append(rows, err.Error()), stored
		}
		rows, stored = append(rows, quoted), append(stored, raw)
	}
	if err := got.Err(); err != nil {
		rows = append(rows, err.Error())
	}
	return rows, stored
}

// places are the bytes of a row in the file: its columns, and before them the
// header of the record, the row's id and its size.
func places(t *testing.T, file []byte, row string) []int {
	t.Helper()
	const before = 11
	at := strings.Index(string(file), row)
	if at < before {
		t.Fatalf("a row does not stand in one piece: %.40s", row)
	}
	out := make([]int, 0, len(row)+before)
	for i := at - before; i < at+len(row); i++ {
		out = append(out, i)
	}
	return out
}
