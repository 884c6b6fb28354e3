package plot_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/bench/plot"
)

// Every point and every limit is in the picture, inside of its frame, and the
// picture is well formed.
func TestChart(t *testing.T) {
	for _, log := range []bool{false, true} {
		c := plot.Chart{Title: "a < b & c", X: "conversations", Y: "turns/s", LogY: log, Series: []plot.Series{
			{Name: "turns", Points: []plot.Point{{1, 100}, {8, 400}, {256, 350}}},
			{Name: "limit", Limit: true, Points: []plot.Point{{1, 12000}, {256, 74000}}},
		}}
		dir := filepath.Join(t.TempDir(), "curves")
		if err := c.Write(dir, "x.svg"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "x.svg"))
		if err != nil {
			t.Fatal(err)
		}
		d, seen := xml.NewDecoder(strings.NewReader(string(b))), map[string]int{}
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := tok.(xml.StartElement); ok {
				seen[e.Name.Local]++
			}
		}
		if seen["circle"] != 3 || seen["polyline"] != 2 {
			t.Errorf("%v in\n%s", seen, b)
		}
		if s := string(b); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") || strings.Contains(s, `="-`) {
			t.Errorf("a point is outside:\n%s", s)
		}
	}
}

// One point, or none of any height, is drawn too.
func TestLittle(t *testing.T) {
	for _, points := range [][]plot.Point{{{1, 0}}, {{10, 5}}, {{1, 3}, {2, 3}}} {
		if s := (plot.Chart{Series: []plot.Series{{Name: "s", Points: points}}}).SVG(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("%v:\n%s", points, s)
		}
	}
}
