package agentdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
)

// Fault gives an error of the file system its meaning: DISK_FULL, READ_ONLY,
// PERMISSION_DENIED, a missing file. What is a fault already, an ended context and
// anything it does not know come back as they are; nil stays nil. The path is not
// part of the text, only of the cause.
func Fault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var e *fault.Error
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e = fault.New(codes.ResourceExhausted, fault.DiskFull, "there is no room left on the disk", "free some space; work resumes automatically")
	case errors.Is(err, syscall.EROFS):
		e = fault.New(codes.FailedPrecondition, fault.ReadOnly, "the file system is read-only", "mount it read-write, or choose another THECLAW_HOME")
	case isEscape(err), errors.Is(err, syscall.ELOOP):
		e = fault.New(codes.PermissionDenied, fault.PermissionDenied, "the path leads outside the agent's directory", "remove the symbolic link")
	case errors.Is(err, fs.ErrPermission): // EACCES, EPERM
		e = fault.New(codes.FailedPrecondition, fault.ReadOnly, "the file or directory may not be used by this user", "give the user who runs TheClaw the ownership of the home directory")
	case errors.Is(err, fs.ErrNotExist):
		e = fault.New(codes.NotFound, fault.InvalidArgument, "the file does not exist", "check the name; the file may have been removed")
	case errors.Is(err, syscall.ENAMETOOLONG):
		e = fault.New(codes.InvalidArgument, fault.InvalidArgument, "a name is too long for the file system", "use a shorter name")
	default:
		return err
	}
	return fault.Wrap(e, err)
}

// isEscape recognises the refusal of os.Root, which has no exported error.
func isEscape(err error) bool {
	pe, ok := errors.AsType[*fs.PathError](err)
	return ok && pe.Err != nil && strings.Contains(pe.Err.Error(), "escapes from parent")
}

// invalid turns a problem with settings into a fault. The code says whether what is on
// disk (FailedPrecondition) or what the caller sent (InvalidArgument) is wrong. Meta
// holds file, line, column, key and source: the line with a caret below, for a terminal.
func invalid(code codes.Code, err error) error {
	le, ok := errors.AsType[*layer.Error](err)
	if !ok {
		return err
	}
	first := le.Problems[0]
	what := first.String()
	if more := len(le.Problems) - 1; more > 0 {
		what += fmt.Sprintf(" (and %d more)", more)
	}
	e := fault.New(code, fault.ConfigInvalid, what, "correct that place and try again")
	// The text above is one line; Meta holds the lines with the caret.
	e.Meta = map[string]string{
		"file": first.File, "key": first.Key, "source": first.Source,
		"line": strconv.Itoa(first.Line), "column": strconv.Itoa(first.Column),
	}
	for _, p := range le.Problems {
		name := p.Key
		if name == "" {
			name = p.File
		}
		e.Fields = append(e.Fields, fault.Field{Name: name, Problem: p.String()})
	}
	return fault.Wrap(e, err)
}
