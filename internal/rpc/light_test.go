package rpc_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The dispatch shim dials with this package for each message and has six process
// times for everything, so what it links is a decision, made here.
func TestImportsStayLight(t *testing.T) {
	allowed := map[string]bool{
		"github.com/google/renameio/v2": true, "golang.org/x/sys/unix": true,
		"google.golang.org/grpc": true, "google.golang.org/grpc/backoff": true, "google.golang.org/grpc/codes": true,
		"google.golang.org/grpc/credentials": true, "google.golang.org/grpc/credentials/insecure": true,
		"google.golang.org/grpc/keepalive": true, "google.golang.org/grpc/metadata": true, "google.golang.org/grpc/stats": true, "google.golang.org/grpc/status": true,
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(path, ".") && !allowed[path] {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
