package provider

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// maxKey bounds a key file, in bytes.
const maxKey = 16 << 10

// reference turns env:NAME or file:PATH into the function that reads the key
// now. Only upper-case variable names are taken, so that a key written behind
// env: by mistake is not one.
func reference(ref, dir string, getenv func(string) string) (func() (string, error), bool) {
	kind, value, _ := strings.Cut(ref, ":")
	switch {
	case kind == "env" && envName.MatchString(value):
		return func() (string, error) {
			if key := strings.TrimSpace(getenv(value)); key != "" {
				return key, nil
			}
			return "", fmt.Errorf("the environment variable %s is not set", value)
		}, true
	case kind == "file" && value != "":
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = filepath.Join(getenv("HOME"), rest)
		} else if !filepath.IsAbs(value) {
			value = filepath.Join(dir, value)
		}
		return func() (string, error) { return readKey(value) }, true
	}
	return nil, false
}

func readKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open key file: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return "", fmt.Errorf("look at key file: %w", err)
	} else if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("the key file %s can be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKey+1))
	if err != nil {
		return "", fmt.Errorf("read key file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	switch {
	case key == "":
		return "", fmt.Errorf("the key file %s is empty", path)
	case len(data) > maxKey, strings.ContainsAny(key, "\r\n"):
		return "", errors.New("the key file holds more than a key")
	}
	return key, nil
}
