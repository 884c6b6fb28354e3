package filter

import (
	"database/sql"
	"reflect"
	"slices"
	"testing"

	_ "modernc.org/sqlite"
	"pgregory.net/rapid"
)

var (
	texts = rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "A", "ab", "aB", "b", "é", "É", "'", "''", "a%", "_", `\`, "你好", "message", "self", "%a%", "a_b", "aXb"}),
		rapid.StringOfN(rapid.SampledFrom([]rune(`aAbé%_'\`)), 0, 6, -1),
	)
	ids = rapid.Int64Range(-2, 6)
)

func drawNode(t *rapid.T, depth int) node {
	kinds := 4
	if depth > 0 {
		kinds = 7
	}
	switch k := rapid.IntRange(0, kinds-1).Draw(t, "kind"); k {
	case 4, 5:
		terms := make([]node, rapid.IntRange(2, 4).Draw(t, "terms"))
		for i := range terms {
			terms[i] = drawNode(t, depth-1)
		}
		if k == 4 {
			return every{terms}
		}
		return some{terms}
	case 6:
		return not{drawNode(t, depth-1)}
	case 1:
		col := rapid.SampledFrom(columns[1:]).Draw(t, "column")
		return like{col, rapid.Bool().Draw(t, "not"), texts.Draw(t, "pattern")}
	case 2:
		m := member{col: rapid.SampledFrom(columns).Draw(t, "column"), not: rapid.Bool().Draw(t, "not")}
		for range rapid.IntRange(1, 3).Draw(t, "values") {
			m.vals = append(m.vals, drawValue(t, m.col))
		}
		return m
	case 3:
		return null{rapid.SampledFrom(columns).Draw(t, "column"), rapid.Bool().Draw(t, "not")}
	default:
		col := rapid.SampledFrom(columns).Draw(t, "column")
		op := rapid.SampledFrom([]string{"=", "!=", "<", "<=", ">", ">="}).Draw(t, "operator")
		return compare{col, op, drawValue(t, col)}
	}
}

func drawValue(t *rapid.T, c column) value {
	if c == colID {
		return value{num: ids.Draw(t, "id")}
	}
	return value{text: texts.Draw(t, "text")}
}

// TestStringParses: the canonical form parses to an equal tree.
func TestStringParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &Filter{drawNode(t, 4)}
		in := want.String()
		if len(in) > MaxBytes {
			t.Skip("too long")
		}
		got, err := Parse(in)
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Fatalf("%q parses to %q (%#v), %v", in, got, got, err)
		}
	})
}

func openDB(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`CREATE TABLE events(id INTEGER PRIMARY KEY, created_at TEXT NOT NULL, source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL);
		CREATE INDEX idx_events_source ON events(source); CREATE INDEX idx_events_type ON events(type)`); err != nil {
		t.Fatal(err)
	}
	return db
}

func fill(t *rapid.T, db *sql.DB) []Row {
	rows := make([]Row, rapid.IntRange(1, 6).Draw(t, "rows"))
	if _, err := db.Exec(`DELETE FROM events`); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i] = Row{ID: int64(i), CreatedAt: texts.Draw(t, "created_at"), Source: texts.Draw(t, "source"), Type: texts.Draw(t, "type")}
		if rapid.Bool().Draw(t, "has subtype") {
			s := texts.Draw(t, "subtype")
			rows[i].Subtype = &s
		}
		r := rows[i]
		if _, err := db.Exec(`INSERT INTO events VALUES(?,?,?,?,?,'')`, r.ID, r.CreatedAt, r.Source, r.Type, r.Subtype); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

func selected(t rapid.TB, db *sql.DB, where string, args []any) []int64 {
	rs, err := db.Query(`SELECT id FROM events WHERE `+where+` ORDER BY id`, args...)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	defer rs.Close()
	var found []int64
	for rs.Next() {
		var id int64
		if err := rs.Scan(&id); err != nil {
			t.Fatal(err)
		}
		found = append(found, id)
	}
	if err := rs.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestMatchEqualsSQLite: Match, Where and the filter's own text spliced into a
// query, as the external tool does it, select the same rows.
func TestMatchEqualsSQLite(t *testing.T) {
	db := openDB(t)
	rapid.Check(t, func(t *rapid.T) {
		rows := fill(t, db)
		f := &Filter{drawNode(t, 3)}
		var want []int64
		for _, r := range rows {
			if f.Match(r) {
				want = append(want, r.ID)
			}
		}
		where, args := f.Where()
		if got := selected(t, db, where, args); !slices.Equal(got, want) {
			t.Fatalf("%s: Where selects %v, Match %v", f, got, want)
		}
		if got := selected(t, db, "("+f.String()+")", nil); !slices.Equal(got, want) {
			t.Fatalf("%s: as plain SQL it selects %v, Match %v", f, got, want)
		}
	})
}

// TestLargestFilterRuns: what Parse accepts, the database can run.
func TestLargestFilterRuns(t *testing.T) {
	db := openDB(t)
	for _, in := range []string{
		chain("id=1", " OR ", 512), chain("id=1", " AND ", 450),
		"id IN (" + chain("1", ",", 2000) + ")",
	} {
		f, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		where, args := f.Where()
		if got := selected(t, db, where, args); got != nil {
			t.Errorf("an empty table gives %v", got)
		}
	}
}

func chain(s, sep string, n int) string {
	out := s
	for range n - 1 {
		out += sep + s
	}
	return out
}

func FuzzParse(f *testing.F) {
	for in := range refused {
		f.Add(in)
	}
	for in := range accepted {
		f.Add(in)
	}
	db := openDB(f)
	row := Row{ID: 1, Source: "self", Type: "message"}
	f.Fuzz(func(t *testing.T, in string) {
		flt, err := Parse(in)
		if err != nil {
			if flt != nil {
				t.Errorf("%q: filter and error", in)
			}
			return
		}
		flt.Match(row)
		text := flt.String()
		if len(text) <= MaxBytes {
			again, err := Parse(text)
			if err != nil || !reflect.DeepEqual(flt, again) {
				t.Errorf("%q prints %q, which is %q, %v", in, text, again, err)
			}
		}
		if where, args := flt.Where(); where != "" {
			selected(t, db, where, args)
		}
	})
}
