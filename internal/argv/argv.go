// Package argv makes the words of a command line from a template and the JSON arguments of a call.
//
// A word of the template that has {name} in it stands for the value of the argument of that name: a text as it is, a
// number as it is written, true or false. The word is left out when the argument is missing or null, and it is
// repeated for each value of a list. Every other word stays as it is.
//
//	template    resize --width={width} -- {file}
//	arguments   {"width": 80, "file": ["a.png", "b c.png"]}
//	words       resize, --width=80, --, a.png, b c.png
//
// It promises that a value never becomes two words, that it is read by no shell, and that it becomes an option only
// where the template has begun one: a word that begins with its placeholder must not begin with -, unless a word --
// of the template is before it. It does not check the arguments against a schema, and starts nothing.
package argv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// MaxBytes bounds all words of a command line: the kernel takes one word of so many bytes at most.
const MaxBytes = 128<<10 - 1

// NameForm is the form of the name of an argument, in words.
const NameForm = "letters, digits, _ and -, at most 64, starting with a letter"

var (
	name        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`) })
	placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{([A-Za-z][A-Za-z0-9_-]{0,63})\}`) })
)

// IsName reports whether s may name an argument.
func IsName(s string) bool { return name().MatchString(s) }

// Placeholders returns the names that a template has, sorted. The error is what is wrong with the template.
func Placeholders(template []string) (names []string, err error) {
	for i, word := range template {
		found := placeholder().FindAllStringSubmatch(word, -1)
		switch {
		case len(found) == 0:
			continue
		case i == 0:
			return nil, errors.New("the program itself must not depend on the arguments")
		case len(found) > 1:
			return nil, fmt.Errorf("%.80q has two placeholders; write one in each word", word)
		}
		names = append(names, found[0][1])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Fill returns the words for the arguments of a call, which are a JSON object. The error is for who has made the call.
func Fill(template []string, arguments json.RawMessage) ([]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	var given map[string]any
	if err := decoder.Decode(&given); err != nil {
		return nil, errors.New("the arguments are not a JSON object")
	}
	var out []string
	size, operands := 0, false
	for _, word := range template {
		words := []string{word}
		if at := placeholder().FindStringSubmatchIndex(word); at != nil {
			name := word[at[2]:at[3]]
			values, err := texts(given[name])
			if err != nil {
				return nil, fmt.Errorf("%s %w", name, err)
			}
			words = nil
			for _, v := range values {
				filled := word[:at[0]] + v + word[at[1]:]
				if at[0] == 0 && !operands && strings.HasPrefix(filled, "-") {
					return nil, fmt.Errorf("%s must not begin with -: %.80q would be an option of the program", name, filled)
				}
				words = append(words, filled)
			}
		}
		operands = operands || word == "--"
		for _, w := range words {
			if size += len(w) + 1; size > MaxBytes {
				return nil, fmt.Errorf("the arguments are larger than %d KiB", MaxBytes>>10)
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// texts are the values of an argument, in the order of a list.
func texts(value any) (out []string, err error) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, v := range list {
		switch v := v.(type) {
		case nil:
			if ok {
				return nil, errors.New("has a null in its list")
			}
		case string:
			if strings.ContainsRune(v, 0) {
				return nil, errors.New("has a character of code 0")
			}
			out = append(out, v)
		case json.Number:
			out = append(out, v.String())
		case bool:
			out = append(out, fmt.Sprint(v))
		default:
			return nil, errors.New("must be a text, a number, true, false, or a list of them")
		}
	}
	return out, nil
}
