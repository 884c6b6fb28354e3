package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	processv1 "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
)

func profileCommand(e *command.Env) *cobra.Command {
	service := command.Choice{Value: command.Registry, Values: services}
	seconds := 10
	c := &cobra.Command{
		Use:   "profile KIND FILE",
		Short: "Take a profile of a process: cpu, heap or goroutine",
		Long: `Take a profile of the process of a service, in pprof format, and write it to a
file that only you can read: it may contain data from memory. It is read over the
service's socket, with your token; there is no other way to read it.`,
		Example: `  agentctl profile cpu cpu.pprof --seconds 20 --service runner
  agentctl profile heap heap.pprof && go tool pprof -top heap.pprof`,
		ValidArgs: []string{"cpu", "heap", "goroutine"},
		RunE: func(c *cobra.Command, args []string) error {
			kind := processv1.ProfileKind(processv1.ProfileKind_value["PROFILE_KIND_"+strings.ToUpper(args[0])])
			if kind == 0 {
				return command.Usage(c, "%.40q is no profile: use cpu, heap or goroutine", args[0])
			}
			if at, err := os.Stat(args[1]); err == nil && at.IsDir() {
				return command.Usage(c, "%q is a directory: name the file, such as %q", args[1], filepath.Join(args[1], args[0]+".pprof"))
			}
			length := time.Duration(seconds) * time.Second
			ctx, cancel := context.WithTimeout(c.Context(), length+e.Flags.Timeout)
			defer cancel()
			n, err := take(ctx, e, service.Value, args[1], &processv1.ProfileProcessRequest{Kind: kind, Duration: durationpb.New(length)})
			if err != nil {
				return err
			}
			return e.Show(struct {
				File  string `json:"file"`
				Bytes int    `json:"bytes"`
			}{args[1], n}, args[1], "%s: %d bytes; see 'go tool pprof %s'", args[1], n, args[1])
		},
	}
	c.Flags().Var(&service, "service", "service whose process is profiled")
	command.NumberFlag(c, &seconds, "seconds", 1, 60, "duration of a CPU profile in seconds")
	return c
}

// take writes a profile into a file, whole or not at all.
func take(ctx context.Context, e *command.Env, service, path string, req *processv1.ProfileProcessRequest) (int, error) {
	s, err := e.Process(service).ProfileProcess(ctx, req)
	if err != nil {
		return 0, tooOld(err, service)
	}
	var all []byte
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, tooOld(err, service)
		}
		all = append(all, r.GetChunk()...)
	}
	if err := renameio.WriteFile(path, all, 0o600, renameio.IgnoreUmask()); err != nil {
		return 0, agentdir.Fault(fmt.Errorf("write profile %s: %w", path, cause(err)))
	}
	return len(all), nil
}

// cause is an error of a file without the name of the temporary file that it is about.
func cause(err error) error {
	if of := new(fs.PathError); errors.As(err, &of) {
		return of.Err
	}
	if of := new(os.LinkError); errors.As(err, &of) {
		return of.Err
	}
	return err
}
