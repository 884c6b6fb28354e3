package markup

import (
	"cmp"
	"slices"
	"strings"
)

// Entity is a form of a part of a text, as the Bot API of Telegram has it.
type Entity struct {
	Type string `json:"type"` // bold, italic, strikethrough, code, pre, text_link or blockquote
	// Offset and Length are in UTF-16 units.
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
}

// maxEntities is how many the Bot API takes; the last ones are left out.
const maxEntities = 100

// Telegram returns the text with its entities, by offset, those around others first. None is
// empty; code is in no other than a quote; those of one type are apart. Addresses of mail have none:
// Telegram finds them.
func (d Doc) Telegram() (string, []Entity) {
	var text strings.Builder
	var list []Entity
	open := map[string]int{} // type -> where its last entity is in list
	at := 0
	for _, r := range d.runs {
		length := UTF16(r.text)
		for _, e := range r.entities() {
			e.Offset, e.Length = at, length
			i, ok := open[e.Type]
			if ok && list[i].Offset+list[i].Length == at && list[i].URL == e.URL && e.Type != "pre" {
				list[i].Length += length
				continue
			}
			open[e.Type] = len(list)
			list = append(list, e)
		}
		text.WriteString(r.text)
		at += length
	}
	list = nest(list)
	return text.String(), list[:min(len(list), maxEntities)]
}

func (e Entity) end() int { return e.Offset + e.Length }

// nest sorts entities, and cuts those that begin in another one and end behind it.
func nest(list []Entity) []Entity {
	order := func(a, b Entity) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Length, a.Length))
	}
	slices.SortStableFunc(list, order)
	var ends []int // of those around the next one, the innermost last
	for i := 0; i < len(list); {
		e := list[i]
		for len(ends) > 0 && ends[len(ends)-1] <= e.Offset {
			ends = ends[:len(ends)-1]
		}
		if len(ends) > 0 && e.end() > ends[len(ends)-1] {
			end := ends[len(ends)-1]
			behind := e
			behind.Offset, behind.Length = end, e.end()-end
			list[i].Length = end - e.Offset
			list = append(list, behind)
			slices.SortStableFunc(list[i:], order)
			continue // another one may be the longest here now
		}
		ends = append(ends, e.end())
		i++
	}
	return list
}

// entities returns the forms of a run, without places.
func (r run) entities() (list []Entity) {
	for _, f := range []struct {
		on bool
		Entity
	}{
		{r.quote, Entity{Type: "blockquote"}},
		{strings.HasPrefix(r.to, "http"), Entity{Type: "text_link", URL: r.to}},
		{r.bold, Entity{Type: "bold"}},
		{r.italic, Entity{Type: "italic"}},
		{r.strike, Entity{Type: "strikethrough"}},
		{r.code, Entity{Type: "code"}},
		{r.pre, Entity{Type: "pre", Language: r.language}},
	} {
		if f.on {
			list = append(list, f.Entity)
		}
	}
	return list
}

// UTF16 returns the length of a text in UTF-16 units, by which Telegram measures.
func UTF16(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
