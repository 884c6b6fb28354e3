// Command record runs proofs one after the other, each as `make TARGET SIZE=n`,
// and records what they print.
//
//	record [-page FILE] [-jobs N] 'crash-matrix KILLS=150' 'zombie N=20' ...
//
// With -jobs, N of them run at once, and the output of each is printed when it has ended:
// most of them wait for processes that start, so two take little more time than one. A
// proof that fails does not stop those after it: the complete list is run, the failures
// are repeated at the end, and the exit code is 1. With -page, and only when all of them
// passed, the part of FILE between the two marks is replaced by a table of the results;
// the text around it is kept.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A proof is one target that was run.
type proof struct {
	command string // as typed, without make
	took    time.Duration
	lines   []string // of figures
	err     error
}

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the list and answers with the exit code: 0, 1 for a proof that
// failed or a page that could not be written, 2 for wrong arguments.
func Main(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	flags.SetOutput(stderr)
	page := flags.String("page", "", "page whose table is written anew")
	jobs := flags.Int("jobs", 1, "how many run at once")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "Error: no proof is named - say for instance: record 'zombie N=20'")
		return 2
	}
	if *jobs < 1 {
		fmt.Fprintln(stderr, "Error: -jobs is less than 1 - say how many run at once")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	proofs, failed := runAll(ctx, flags.Args(), *jobs, stdout, stderr)
	if len(failed) > 0 {
		fmt.Fprintf(stderr, "Error: %d of %d proofs failed: %s - run each by itself; a printed SEED replays it\n",
			len(failed), flags.NArg(), strings.Join(failed, ", "))
		return 1
	}
	if *page != "" {
		if err := writePage(*page, table(proofs, time.Now())); err != nil {
			fmt.Fprintf(stderr, "Error: %v - the page needs the lines %q and %q\n", err, begin, end)
			return 1
		}
	}
	return 0
}

// runAll runs the list, jobs at once, and answers in its order.
func runAll(ctx context.Context, commands []string, jobs int, stdout, stderr io.Writer) (proofs []proof, failed []string) {
	proofs = make([]proof, len(commands))
	room := make(chan struct{}, jobs)
	var all sync.WaitGroup
	var tell sync.Mutex // one speaks at a time
	for i, c := range commands {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if ctx.Err() != nil {
				proofs[i] = proof{command: c, err: ctx.Err()}
				return
			}
			if jobs == 1 {
				proofs[i] = run(ctx, c, stdout, stderr)
				fmt.Fprintf(stdout, "%5.0fs  make %s\n", proofs[i].took.Seconds(), c)
				return
			}
			var out, errs bytes.Buffer
			proofs[i] = run(ctx, c, &out, &errs)
			tell.Lock()
			defer tell.Unlock()
			_, _ = io.Copy(stdout, &out)
			_, _ = io.Copy(stderr, &errs)
			fmt.Fprintf(stdout, "%5.0fs  make %s\n", proofs[i].took.Seconds(), c)
		})
	}
	all.Wait()
	for _, p := range proofs {
		switch {
		case p.err == nil:
		case p.took == 0:
			failed = append(failed, p.command+" (not run)")
		default:
			failed = append(failed, p.command)
		}
	}
	return proofs, failed
}

// run makes one target. What it prints is passed on at once and kept; a proof
// that passes without a word has proved nothing.
func run(ctx context.Context, command string, stdout, stderr io.Writer) proof {
	p := proof{command: command}
	words := strings.Fields(command)
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, words...)...)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.err = err
		return p
	}
	started := time.Now()
	if p.err = cmd.Start(); p.err != nil {
		return p
	}
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		fmt.Fprintln(stdout, scan.Text())
		if figures(words[0], scan.Text()) {
			p.lines = append(p.lines, strings.TrimSpace(scan.Text()))
		}
	}
	p.err = errors.Join(scan.Err(), cmd.Wait())
	p.took = time.Since(started)
	if p.err == nil && len(p.lines) == 0 {
		p.err = errors.New("it printed no figures")
		fmt.Fprintf(stderr, "make %s: %v\n", command, p.err)
	}
	return p
}

// figures tells the line of a proof from the rest: a word that begins with its
// name, then key=value, or "skipped:" and the reason.
func figures(target, line string) bool {
	words := strings.Fields(line)
	return len(words) > 1 && strings.HasPrefix(words[0], target) && (strings.Contains(words[1], "=") || words[1] == "skipped:")
}

const (
	begin = "<!-- written by make proofs -->"
	end   = "<!-- end of what make proofs wrote -->"
)

// table is what came out, as Markdown.
func table(proofs []proof, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s.\n\n", now.UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version())
	b.WriteString("| command | seconds | what came out |\n|---|---|---|\n")
	for _, p := range proofs {
		for i, l := range p.lines {
			command, took := "", ""
			if i == 0 {
				command, took = "`make "+p.command+"`", fmt.Sprintf("%.0f", p.took.Seconds())
			}
			_, rest, _ := strings.Cut(l, " ")
			fmt.Fprintf(&b, "| %s | %s | %s |\n", command, took, strings.ReplaceAll(rest, "|", `\|`))
		}
	}
	return b.String()
}

// writePage puts text between the marks of the page.
func writePage(name, text string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	head, rest, ok := strings.Cut(string(raw), begin+"\n")
	_, tail, closed := strings.Cut(rest, end+"\n")
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the table", name)
	}
	return os.WriteFile(name, []byte(head+begin+"\n\n"+text+"\n"+end+"\n"+tail), 0o644)
}
