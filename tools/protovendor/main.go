// Command protovendor prints the .proto text of packages that other people
// own, from the descriptors their Go packages carry.
//
// No schema registry is needed: the text is exactly the version that go.mod
// pins, imports resolve without a network, and a change of version shows up as
// a change of the files. It writes the named files and everything they import,
// except google/protobuf, which every compiler brings along.
//
//	protovendor DIR FILE...
package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate" // buf/validate/validate.proto
	"github.com/jhump/protoreflect/v2/protoprint"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // google/rpc/error_details.proto
	_ "google.golang.org/genproto/googleapis/rpc/status"     // google/rpc/status.proto
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run writes every file of args[1:], and its imports, below the folder args[0].
func run(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(stderr, "usage: protovendor DIR FILE...")
		return 2
	}
	seen := map[string]bool{}
	for _, name := range args[1:] {
		if err := vendor(args[0], name, seen); err != nil {
			fmt.Fprintf(stderr, "protovendor: %v\n", err)
			return 1
		}
	}
	return 0
}

// vendor writes one file and then what it imports; seen keeps a file that
// several others import from being written twice.
func vendor(dir, name string, seen map[string]bool) error {
	if seen[name] || path.Dir(name) == "google/protobuf" {
		return nil
	}
	seen[name] = true
	fd, err := protoregistry.GlobalFiles.FindFileByPath(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := printFile(filepath.Join(dir, filepath.FromSlash(name)), fd); err != nil {
		return fmt.Errorf("print %s: %w", name, err)
	}
	for i := range fd.Imports().Len() {
		if err := vendor(dir, fd.Imports().Get(i).Path(), seen); err != nil {
			return err
		}
	}
	return nil
}

// printFile writes the text of fd to the file at target.
func printFile(target string, fd protoreflect.FileDescriptor) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	printer := protoprint.Printer{}
	if err := printer.PrintProtoFile(fd, out); err != nil {
		_ = out.Close() // the print's error is the one to tell
		return err
	}
	return out.Close()
}
