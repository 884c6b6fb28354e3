package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

var writeSpec = toolset.Spec{
	Name:        nameWrite,
	Description: "Writes a file in the working directory with this content, and makes the directories it needs. A file that exists is replaced and keeps its mode.",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, relative to the working directory"},` +
		`"content":{"type":"string","description":"the complete content"}},` +
		`"required":["path","content"],"additionalProperties":false}`),
	Summary: toolset.Summarize("path"),
}

// write plans a call of the tool write.
func write(_ context.Context, d *dir, c toolset.Call) ([]change, string, error) {
	var a struct{ Path, Content string }
	if err := parse(c, &a); err != nil {
		return nil, "", err
	}
	name, info, err := d.resolve(a.Path)
	if err != nil {
		return nil, "", err
	}
	if strings.HasSuffix(a.Path, "/") {
		return nil, "", fmt.Errorf("%s names a directory: name a file", shown(a.Path))
	}
	size, how := fmt.Sprintf("%d bytes", len(a.Content)), "new file"
	var before []byte
	if info != nil {
		if before, err = d.content(name, info); err != nil {
			return nil, "", err
		}
		if string(before) == a.Content {
			return nil, fmt.Sprintf("%s has this content already (%s)", shown(name), size), nil
		}
		how = "replaced"
	}
	return []change{d.put(name, info, before, []byte(a.Content))}, fmt.Sprintf("wrote %s (%s, %s)", shown(name), how, size), nil
}

var editSpec = toolset.Spec{
	Name: nameEdit,
	Description: "Replaces a text in a file in the working directory. old_text must occur exactly once, " +
		"with its spaces and line breaks, unless replace_all is set.",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, relative to the working directory"},` +
		`"old_text":{"type":"string","description":"the text to replace"},` +
		`"new_text":{"type":"string","description":"the text to write in its place"},` +
		`"replace_all":{"type":"boolean","description":"replace every occurrence"}},` +
		`"required":["path","old_text","new_text"],"additionalProperties":false}`),
	Summary: toolset.Summarize("path"),
}

const (
	// maxCounted bounds the occurrences of a text that are counted.
	maxCounted = 1000
	// maxNamed bounds the line numbers in a result.
	maxNamed = 10
)

// edit plans a call of the tool edit.
func edit(_ context.Context, d *dir, c toolset.Call) ([]change, string, error) {
	var a struct {
		Path string
		Old  string `json:"old_text"`
		New  string `json:"new_text"`
		All  bool   `json:"replace_all"`
	}
	if err := parse(c, &a); err != nil {
		return nil, "", err
	}
	switch a.Old {
	case "":
		return nil, "", errors.New("old_text is empty: give the text to replace, or use write to write the complete file")
	case a.New:
		return nil, "", errors.New("old_text and new_text are the same, so there is nothing to change")
	}
	name, info, err := d.find(a.Path)
	if err != nil {
		return nil, "", err
	}
	raw, text, e, err := d.text(name, info)
	if err != nil {
		return nil, "", err
	}
	if !strings.Contains(a.Old, "\r\n") && endsInCRLF(text) {
		a.New = crlf(a.New)
	}
	if !strings.Contains(text, a.Old) {
		a.Old, a.New = crlf(a.Old), crlf(a.New)
	}
	at := occurrences(text, a.Old)
	lines := lineNumbers(text, at)
	switch {
	case len(at) == 0:
		return nil, "", fmt.Errorf("old_text does not occur in %s, nothing was changed: read the file and copy the text with its spaces and line breaks", shown(name))
	case len(at) > 1 && !a.All:
		return nil, "", fmt.Errorf("old_text occurs %s in %s, in %s, nothing was changed: give more of the text around it so that it occurs once, or set replace_all", times(len(at)), shown(name), lines)
	}
	n := 1
	if a.All {
		n = strings.Count(text, a.Old)
	}
	if len(text)+n*(len(a.New)-len(a.Old)) > maxFile {
		return nil, "", fmt.Errorf("%s would become larger than %d MiB, nothing was changed: change it with a command", shown(name), maxFile>>20)
	}
	after := e.encode(strings.Replace(text, a.Old, a.New, n))
	return []change{d.put(name, info, raw, after)}, fmt.Sprintf("edited %s: replaced %s, in %s", shown(name), plural(n, "occurrence"), lines), nil
}

// times is how often a text occurs.
func times(n int) string {
	if n >= maxCounted {
		return fmt.Sprintf("at least %d times", n)
	}
	return fmt.Sprintf("%d times", n)
}

// occurrences are where a text occurs, also where two of them overlap: which of these is
// meant is not known either.
func occurrences(text, of string) (at []int) {
	for from := 0; len(at) < maxCounted; {
		i := strings.Index(text[from:], of)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
	}
	return at
}

// lineNumbers names the lines of the first positions in a text, which are in order.
func lineNumbers(text string, at []int) string {
	var names []string
	line, from := 1, 0
	for _, i := range at[:min(len(at), maxNamed)] {
		line += strings.Count(text[from:i], "\n")
		from = i
		names = append(names, strconv.Itoa(line))
	}
	switch {
	case len(at) > maxNamed:
		return "lines " + strings.Join(names, ", ") + " and more"
	case len(names) == 1:
		return "line " + names[0]
	}
	return "lines " + strings.Join(names, ", ")
}
