// Package envfile reads the file .env of a home: variables for programs that are started
// without them, such as the key of a model provider.
//
//	# comments and empty lines
//	OPENAI_API_KEY=sk-...
//	export GREETING="hello there"   # a comment after a value
//
// A value is taken as it is: between quotes everything up to the same quote, otherwise
// everything up to ` #` or the end of the line, without the spaces around it. Nothing in it is
// expanded.
//
// It promises: the environment of the process wins over the file; a file that others can read
// is refused, as is a variable that would change which home, which programs or which libraries
// are used; an error names the line and never shows a value. It reads the file once and changes
// no environment.
package envfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// maxBytes bounds the file.
const maxBytes = 64 << 10

// Vars are the variables of a file.
type Vars map[string]string

// Read reads a file; without it there are no variables. The error has reason CONFIG_INVALID.
func Read(path string) (Vars, error) {
	// O_NONBLOCK: a pipe of that name is no file, and is not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // OpenHome reports a home that is no directory
		return nil, nil
	}
	if err != nil {
		return nil, invalid(path, err.Error(), "make it readable for you, or remove it")
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, invalid(path, err.Error(), "make it readable for you, or remove it")
	case !info.Mode().IsRegular():
		return nil, invalid(path, "it is not a file", "remove it, or make it a file")
	case info.Mode().Perm()&0o077 != 0:
		return nil, invalid(path, fmt.Sprintf("others can read it (mode %04o)", info.Mode().Perm()), "run: chmod 600 "+path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, invalid(path, err.Error(), "make it readable for you, or remove it")
	}
	if len(b) > maxBytes {
		return nil, invalid(path, fmt.Sprintf("it is larger than %d KiB", maxBytes>>10), "keep only variables in it")
	}
	vars, line, problem := parse(b)
	if problem != "" {
		return nil, invalid(path, fmt.Sprintf("line %d: %s", line, problem), "write NAME=VALUE")
	}
	return vars, nil
}

func invalid(path, what, fix string) error {
	return fault.New(codes.FailedPrecondition, fault.ConfigInvalid, path+": "+what, fix)
}

var assignment = regexp.MustCompile(`^(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)$`)

// parse returns the variables, or what is wrong in which line.
func parse(b []byte) (vars Vars, line int, problem string) {
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil, 1, "the file is not text in UTF-8"
	}
	vars = Vars{}
	for text := range strings.Lines(strings.TrimPrefix(string(b), "\ufeff")) {
		line++
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		m := assignment.FindStringSubmatch(text)
		if m == nil {
			return nil, line, "this is no assignment"
		}
		name := m[1]
		_, again := vars[name]
		switch {
		case again:
			return nil, line, name + " is set a second time"
		case refused(name):
			return nil, line, name + " cannot be set in this file; set it in the environment"
		}
		value, ok := valueOf(m[2])
		if !ok {
			return nil, line, "the value of " + name + " has a quote that does not end, or text after it"
		}
		vars[name] = value
	}
	return vars, 0, ""
}

// valueOf reads what follows the '='.
func valueOf(s string) (string, bool) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		if strings.HasPrefix(s, "#") {
			return "", true
		}
		for _, comment := range []string{" #", "\t#"} {
			s, _, _ = strings.Cut(s, comment)
		}
		return strings.TrimSpace(s), true
	}
	value, rest, ok := strings.Cut(s[1:], s[:1])
	rest = strings.TrimSpace(rest)
	return value, ok && (rest == "" || rest[0] == '#')
}

// refused reports whether the file may not set a variable: the home and the profile are known
// before it is read, and the others change which code runs.
func refused(name string) bool {
	switch name {
	case "THECLAW_HOME", "THECLAW_PROFILE", "PATH", "HOME", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_")
}

// Getenv returns getenv, with the variables of the file where that gives none.
func (v Vars) Getenv(getenv func(string) string) func(string) string {
	if len(v) == 0 {
		return getenv
	}
	return func(name string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return v[name]
	}
}

// Environ returns an environment with the variables of the file that it does not have.
func (v Vars) Environ(environ []string) []string {
	has := map[string]bool{}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		has[name] = true
	}
	for name, value := range v {
		if !has[name] {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}
