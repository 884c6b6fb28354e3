package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/fault"
)

// refused maps filters outside the grammar to words of their error. The first
// ones are recorded uses of the external tool.
var refused = map[string]string{
	`json_extract(content,'$.text') = 'hello'`:                         "no functions",
	`json_valid(content) AND json_extract(content,'$.text') = 'hello'`: "no functions",
	`source = "self"`:                        "single quotes",
	`type='message' OR 1=1`:                  "should be a column",
	`1=1) OR (1=1`:                           "should be a column",
	`type = 'a') OR (type = 'b'`:             "AND, OR or the end",
	`1=1 --`:                                 "should be a column",
	`type = 'a' --`:                          "no comments",
	`type = 'a' /* x */`:                     "no comments",
	`id IN (SELECT max(id) FROM events)`:     "no sub-select",
	`(SELECT 1)`:                             "no sub-select",
	`EXISTS (SELECT 1)`:                      "no sub-select",
	`SELECT 1`:                               "no sub-select",
	`source REGEXP 'x'`:                      "`REGEXP` is not an operator",
	`source GLOB 'x'`:                        "`GLOB` is not an operator",
	`id BETWEEN 1 AND 2`:                     "`BETWEEN` is not an operator",
	`1=1; DROP TABLE events`:                 "should be a column",
	`type = 'a'; DROP TABLE events`:          "without `;`",
	`type=message AND source=self`:           "single quotes",
	`content LIKE '%x%'`:                     "content of events cannot",
	`rowid = 1`:                              "`rowid` is not a column",
	`lower(type) = 'a'`:                      "no functions",
	`type = lower('A')`:                      "single quotes",
	`id = '1'`:                               "id is a number",
	`id = x`:                                 "whole number",
	`id LIKE '1%'`:                           "LIKE compares texts",
	`id = 9223372036854775808`:               "too large",
	`id = 1.5`:                               "not a whole number",
	`id = 1OR id = 2`:                        "not a whole number",
	`type = 1`:                               "type is a text",
	`subtype = NULL`:                         "nothing equals NULL",
	`subtype IS 'x'`:                         "should be NULL",
	`subtype IS`:                             "it ends where NULL",
	`type == 'a'`:                            "`==`",
	`type = 'a`:                              "no closing quote",
	`type = 'a' AND`:                         "it ends where a column",
	`type`:                                   "it ends where an operator",
	`type NOT`:                               "it ends where an operator",
	`type IN ()`:                             "text in single quotes",
	`type IN ('a'`:                           "comma or a closing",
	`type IN 'a'`:                            "opening parenthesis",
	`(type = 'a'`:                            "closing parenthesis",
	`()`:                                     "should be a column",
	`type LIKE 'a' ESCAPE '\'`:               "no ESCAPE",
	`type = 'a' 'b'`:                         "AND, OR or the end",
	`type ? 'a'`:                             "unexpected character '?'",
	`type = ?`:                               "unexpected character '?'",
	"type = 'a\x00'":                         "not UTF-8 text",
	"type = '\xff'":                          "not UTF-8",
	"type = 'a' \u00a0":                      "unexpected character",
	"'message' = type":                       "should be a column",
	"type = '" + strings.Repeat("a", 4096):   "longer than 4096",
	strings.Repeat("(", 65) + "id=1":         "deeper than 64",
	strings.Repeat("NOT ", 65) + "id=1":      "deeper than 64",
	strings.Repeat("(", 4000):                "deeper than 64",
	strings.Repeat("not(", 1000):             "deeper than 64",
	"id = 1 " + strings.Repeat("\x1b", 1000): "unexpected character",
}

// accepted maps filters to their canonical form.
var accepted = map[string]string{
	``:                                     ``,
	" \t\r\n":                              ``,
	`type = 'message' AND source = 'self'`: `type = 'message' AND source = 'self'`,
	`subtype IS NULL`:                      `subtype IS NULL`,
	`source LIKE 'external:%'`:             `source LIKE 'external:%'`,
	`id >= 2`:                              `id >= 2`,
	`ID<>-3 or not Type='it''s'`:           `id != -3 OR NOT type = 'it''s'`,
	`id = 007`:                             `id = 7`,
	`((type='a'))`:                         `type = 'a'`,
	`type='a' and type='b' and type='c'`:   `type = 'a' AND type = 'b' AND type = 'c'`,
	`(id=1 OR id=2) AND id=3`:              `(id = 1 OR id = 2) AND id = 3`,
	`id=1 OR (id=2 AND id=3)`:              `id = 1 OR id = 2 AND id = 3`,
	`id=1 OR (id=2 OR id=3)`:               `id = 1 OR (id = 2 OR id = 3)`,
	`not(id=1 and id=2)`:                   `NOT (id = 1 AND id = 2)`,
	`NOT NOT id=1`:                         `NOT NOT id = 1`,
	`type not in('a','','''')`:             `type NOT IN ('a', '', '''')`,
	`subtype is not null`:                  `subtype IS NOT NULL`,
	`created_at not like '2026-%'`:         `created_at NOT LIKE '2026-%'`,
	`type = '你好 ; -- "x" (SELECT 1)'`:      `type = '你好 ; -- "x" (SELECT 1)'`,
	"type = 'a'\nAND\nid < 5":              `type = 'a' AND id < 5`,
	strings.Repeat("(", 64) + "id=1" + strings.Repeat(")", 64): `id = 1`,
	`id = 9223372036854775807`:                                 `id = 9223372036854775807`,
	`id = -9223372036854775808`:                                `id = -9223372036854775808`,
}

// TestRefused covers S0-64 and the SQL injection row of SECURITY.
func TestRefused(t *testing.T) {
	for in, words := range refused {
		f, err := Parse(in)
		if f != nil || !fault.Is(err, fault.FilterInvalid) {
			t.Errorf("Parse(%q) = %v, %v, want FILTER_INVALID", in, f, err)
			continue
		}
		e, _ := errors.AsType[*fault.Error](err)
		if !strings.Contains(e.What, words) || e.Fix == "" || e.Meta["position"] == "" || len(e.Fields) != 1 {
			t.Errorf("Parse(%q): %q - %q, want %q", in, e.What, e.Fix, words)
		}
		if len(e.What) > 250 || strings.ContainsAny(e.What, "\n\x1b") {
			t.Errorf("Parse(%q): unfit to print: %q", in, e.What)
		}
	}
}

func TestErrorShowsThePlace(t *testing.T) {
	_, err := Parse(`type = '你好' AND source = "self" AND subtype IS NULL AND id > 1`)
	want := `Error: filter is not valid at position 26: texts stand in single quotes and columns in none: ...= '你好' AND source = ^"self" AND subty... - write 'text' instead of "text"`
	if got := fault.Line(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range accepted {
		f, err := Parse(in)
		if err != nil || f.String() != want {
			t.Errorf("Parse(%q) prints %q, %v, want %q", in, f, err, want)
			continue
		}
		again, err := Parse(f.String())
		if err != nil || again.String() != f.String() {
			t.Errorf("canonical %q parses to %q, %v", want, again, err)
		}
	}
}

func TestSQL(t *testing.T) {
	f, err := Parse(`type = 'message' AND (source like '%\_' OR NOT id in (1, 2)) AND subtype is null`)
	if err != nil {
		t.Fatal(err)
	}
	args := []any{"message", `%\_`, int64(1), int64(2)}
	sql, got := f.Where()
	if want := `((type = ?) AND ((source LIKE ?) OR (NOT (id IN (?, ?)))) AND (subtype IS NULL))`; sql != want || !cmp.Equal(args, got) {
		t.Errorf("Where = %s %v", sql, got)
	}
	sql, got = f.Numbered(3)
	if want := `((type COLLATE "C" = $3) AND ((source COLLATE "C" ILIKE $4 ESCAPE '') OR (NOT (id IN ($5, $6)))) AND (subtype IS NULL))`; sql != want || !cmp.Equal(args, got) {
		t.Errorf("Numbered = %s %v", sql, got)
	}
}

func TestNilFilter(t *testing.T) {
	var f *Filter
	w, wa := f.Where()
	n, na := f.Numbered(1)
	if !f.Match(Row{}) || w != "" || wa != nil || n != "" || na != nil || f.String() != "" {
		t.Error("the nil filter is not the empty one")
	}
}

func TestMatch(t *testing.T) {
	sub := "toolcall"
	row := Row{ID: 7, CreatedAt: "2026-11-20T10:15:02.474Z", Source: "external:Tui:x:dm:É:p", Type: "message", Subtype: &sub}
	bare := row
	bare.Subtype = nil
	for in, want := range map[string][2]bool{ // with a subtype, without
		`id > 6 AND id <= 7`:                           {true, true},
		`created_at >= '2026-11-20'`:                   {true, true},
		`source LIKE 'EXTERNAL:tui:%'`:                 {true, true},
		`source LIKE '%:é:p'`:                          {false, false},
		`source LIKE '%:_:p'`:                          {true, true},
		`source = 'external:tui:x:dm:É:p'`:             {false, false},
		`type LIKE 'm%s%_e'`:                           {true, true},
		`type LIKE ''`:                                 {false, false},
		`subtype = 'toolcall'`:                         {true, false},
		`subtype != 'x'`:                               {true, false},
		`NOT subtype = 'x'`:                            {true, false},
		`subtype NOT IN ('x')`:                         {true, false},
		`subtype NOT LIKE 'x'`:                         {true, false},
		`subtype IS NULL OR subtype = 'x'`:             {false, true},
		`NOT (subtype = 'x' AND type = 'record')`:      {true, true},
		`NOT (subtype = 'x' OR type = 'message')`:      {false, false},
		`subtype IS NOT NULL`:                          {true, false},
		`NOT subtype IS NULL`:                          {true, false},
		`type IN ('record', 'message') AND NOT id = 8`: {true, true},
	} {
		f, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{f.Match(row), f.Match(bare)}; got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}

// TestLikeIsNotExponential: this pattern takes ages if every % backtracks.
func TestLikeIsNotExponential(t *testing.T) {
	if matchLike(strings.Repeat("%a", 2000), strings.Repeat("a", 1024)+"b") {
		t.Error("matches")
	}
}
