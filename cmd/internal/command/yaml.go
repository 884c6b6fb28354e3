package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// toYAML writes the value that b holds as JSON in YAML, keys in the same order. Every
// string that could be read as something else is quoted as in JSON, which YAML reads too;
// the library for YAML writes some of them so that they are not read back.
func toYAML(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var y yamlWriter
	if err := y.value(d, "", false); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return y.Bytes(), nil
}

type yamlWriter struct{ bytes.Buffer }

// value writes one value after what is on the line already: a key, or the dash of a list,
// behind which an object begins on the same line.
func (y *yamlWriter) value(d *json.Decoder, indent string, dash bool) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	open, nested := t.(json.Delim)
	switch text, isText := t.(string); {
	case isText:
		y.WriteString(" " + yamlText(text, indent) + "\n")
		return nil
	case t == nil:
		y.WriteString(" null\n")
		return nil
	case !nested:
		fmt.Fprintf(y, " %v\n", t)
		return nil
	}
	first := true
	for ; d.More(); first = false {
		switch {
		case !first || !dash && y.Len() > 0 || open == '[' && dash:
			if first {
				y.WriteString("\n")
			}
			y.WriteString(indent)
		case dash:
			y.WriteString(" ")
		}
		if open == '[' {
			y.WriteString("-")
			if err := y.value(d, indent+"  ", true); err != nil {
				return err
			}
			continue
		}
		k, err := d.Token()
		if err != nil {
			return err
		}
		y.WriteString(yamlText(fmt.Sprint(k), "") + ":")
		if err := y.value(d, indent+"  ", false); err != nil {
			return err
		}
	}
	if first {
		y.WriteString(map[json.Delim]string{'{': " {}\n", '[': " []\n"}[open])
	}
	_, err = d.Token()
	return err
}

// yamlPlain are strings that mean themselves without quotes, but for the words of
// yamlWords.
var (
	yamlPlain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./@-]*( [A-Za-z0-9_./@(-][A-Za-z0-9_./@(),;-]*)*$`)
	yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// yamlText is a string as it stands in YAML; several lines are a block below indent, where
// there is one and they hold nothing that a block would change.
func yamlText(s, indent string) string {
	if yamlPlain.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	body := strings.TrimSuffix(s, "\n")
	odd := func(r rune) bool {
		return r != '\n' && !unicode.IsGraphic(r) || r == 0x2028 || r == 0x2029 || r == 0x85 || r == 0xfeff
	}
	if indent != "" && strings.Contains(s, "\n") && body != "" && body[0] != ' ' && body[0] != '\n' && !strings.HasSuffix(body, "\n") && strings.IndexFunc(s, odd) < 0 {
		mark := "|-\n"
		if body != s {
			mark = "|\n"
		}
		lines := strings.Split(body, "\n")
		for i, l := range lines {
			if l != "" {
				lines[i] = indent + l
			}
		}
		return mark + strings.Join(lines, "\n")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always is
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\x7f`)
}
