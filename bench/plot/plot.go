// Package plot draws curves as SVG: a few series over one logarithmic axis, and the line
// of the limit that each is compared with.
//
// It promises a file that needs nothing else: no script, no font of its own, readable
// on a light and a dark background. It knows nothing about what is measured.
package plot

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Point of a series.
type Point struct{ X, Y float64 }

// Series is one curve. A limit is drawn broken.
type Series struct {
	Name   string
	Limit  bool
	Points []Point
}

// Chart is one picture. Its x axis is logarithmic; its y axis begins at 0, or is
// logarithmic too.
type Chart struct {
	Title, X, Y string
	LogY        bool
	Series      []Series
}

const (
	width, height            = 720, 420
	left, right, top, bottom = 70, 20, 46, 56
)

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"}

// scale puts a value between 0 and 1.
type scale struct {
	min, max float64
	log      bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		return (math.Log10(v) - math.Log10(s.min)) / (math.Log10(s.max) - math.Log10(s.min))
	}
	return (v - s.min) / (s.max - s.min)
}

// ticks are round values within the scale.
func (s scale) ticks() (out []float64) {
	if s.log {
		for p := math.Ceil(math.Log10(s.min) - 1e-9); p <= math.Log10(s.max)+1e-9; p++ {
			out = append(out, math.Pow(10, p))
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(s.max)))
	for s.max/step < 4 {
		step /= 2
	}
	for v := 0.0; v <= s.max*1.0001; v += step {
		out = append(out, v)
	}
	return out
}

func (c Chart) scales() (x, y scale) {
	x, y = scale{math.Inf(1), math.Inf(-1), true}, scale{math.Inf(1), math.Inf(-1), c.LogY}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.min, x.max = min(x.min, p.X), max(x.max, p.X)
			y.min, y.max = min(y.min, p.Y), max(y.max, p.Y)
		}
	}
	if x.min >= x.max {
		x.min, x.max = x.min/2, x.max*2
	}
	if y.log {
		y.min, y.max = math.Pow(10, math.Floor(math.Log10(y.min))), math.Pow(10, math.Ceil(math.Log10(y.max)+1e-9))
	} else {
		y.min, y.max = 0, y.max*1.08
	}
	if y.min >= y.max {
		y.max = y.min + 1
	}
	return x, y
}

// SVG is the picture.
func (c Chart) SVG() string {
	var b strings.Builder
	x, y := c.scales()
	px := func(v float64) float64 { return left + x.at(v)*(width-left-right) }
	py := func(v float64) float64 { return height - bottom - y.at(v)*(height-top-bottom) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/><text x="%d" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", width, height, left, html.EscapeString(c.Title))
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, width-right, py(v), py(v), left-6, py(v)+4, number(v))
	}
	for _, v := range c.values(x) {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#eeeeee"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px(v), px(v), top, height-bottom, px(v), height-bottom+16, number(v))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		(left+width-right)/2, height-bottom+34, html.EscapeString(c.X), (top+height-bottom)/2, html.EscapeString(c.Y))
	at := left
	for i, s := range c.Series {
		colour, dash := colours[i%len(colours)], ""
		if s.Limit {
			dash = ` stroke-dasharray="6 4"`
		}
		var path []string
		for _, p := range s.Points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(p.X), py(p.Y)))
			if !s.Limit {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px(p.X), py(p.Y), colour)
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", strings.Join(path, " "), colour, dash)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="36" y2="36" stroke="%s" stroke-width="2"%s/><text x="%d" y="40">%s</text>`+"\n", at, at+22, colour, dash, at+26, html.EscapeString(s.Name))
		at += 46 + 7*len(s.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// values are where something was measured, or powers when that is too close.
func (c Chart) values(x scale) []float64 {
	var out []float64
	for _, s := range c.Series {
		if s.Limit {
			continue
		}
		for _, p := range s.Points {
			out = append(out, p.X)
		}
		if len(out) > 0 && len(out) <= 10 {
			return out
		}
	}
	return x.ticks()
}

func number(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%gk", math.Round(v/100)/10)
	}
	return fmt.Sprintf("%.4g", v)
}

// Write puts the picture into a file of a folder, which is made.
func (c Chart) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(c.SVG()), 0o644)
}
