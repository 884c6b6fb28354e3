// Command xgw stands in for the external gateway's `xgw send` in tests: its
// options, answers and its one exit code for everything that goes wrong.
//
// The configuration (--config, XGW_CONFIG, ~/.config/xgw/config.yaml) must be
// there and name the channel. Next to it is what a test writes and reads:
//
//	script.json     what it is to do; absent: everything succeeds
//	journal.ndjson  one line for each send that was understood, in their order
//
// The script's version decides the name of the session option: --session in
// 1.x, --conversation from 2 on. A failure applies to texts that hold its match,
// as often as times says; the text SENDFAIL fails always. A failure with an end is
// one after the message has left, as 1.0.9 was seen to have them while it closes its
// channel:
//
//	exit    the answer says success, the exit status 1
//	kill    the answer says success, and then the program is killed
//	cut     the program is killed before it answers
//	hang    the program does not answer and does not end, and while it lives it and a
//	        child of its own hold a lock on the file "hanging"
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/proofs/standin/option"
)

// Script is what a test wants.
type Script struct {
	Version  string
	Failures []Failure
}

// Failure is a send that does not succeed, or does not end well.
type Failure struct {
	Match string
	Times int
	Error string
	End   string // exit, kill, cut or hang; then Error counts for nothing
}

// Send is a line of the journal.
type Send struct {
	At                           time.Time
	Channel, Peer, Session, Text string
	Key                          string // THECLAW_DELIVERY_KEY
	Maybe                        string // THECLAW_MAYBE_DUPLICATE
	End                          string // of Failure
	OK                           bool
}

func main() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Main runs one command line.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 0 || args[0] != "send" && args[0] != "--version" {
		fmt.Fprintf(errs, "error: unknown command '%s'\n", strings.Join(args, " "))
		return 2
	}
	if err := run(args, in, out); err != nil {
		if !errors.Is(err, errClose) {
			fmt.Fprintln(errs, err)
		}
		return 1
	}
	return 0
}

// errClose is exit status 1 after a send that succeeded.
var errClose = errors.New("the channel did not close")

func run(args []string, in io.Reader, out io.Writer) error {
	path := configPath(args)
	dir := filepath.Dir(path)
	script, err := readScript(dir)
	if err != nil {
		return err
	}
	if args[0] == "--version" {
		fmt.Fprintln(out, script.Version)
		return nil
	}
	session := "session"
	if !strings.HasPrefix(script.Version, "1.") {
		session = "conversation"
	}
	if args[1:] != nil && (args[len(args)-1] == "--help" || args[len(args)-1] == "-h") {
		fmt.Fprintf(out, "Usage: xgw send [options]\n\nSend a message through a channel\n\nOptions:\n  --channel <id>  channel\n  --peer <id>  peer\n  --%s <id>  session\n  --message <text>  text\n  --reply-to <id>  id\n  --json  JSON\n  -h, --help  display help for command\n", session)
		return nil
	}
	o, err := option.Parse(option.Spec{Values: []string{"channel!", "peer!", session + "!", "message", "reply-to", "config"}, Flags: []string{"json"}}, args[1:])
	if err != nil {
		return err
	}
	config, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("Error: Config file not found at %s - Create the file or specify a valid path with --config", path) //nolint:staticcheck // the tool's words
	}
	channel := o.Get("channel")
	if !hasChannel(config, channel) {
		return fmt.Errorf("Error: Channel %s not found - Check channels with 'xgw channel list'", channel) //nolint:staticcheck // the tool's words
	}
	message := o.Get("message")
	if message == "" {
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		message = strings.TrimSpace(string(b))
	}
	if message == "" {
		return errors.New("Error: No message provided - Use --message or pipe text to stdin") //nolint:staticcheck // the tool's words
	}
	s := Send{At: time.Now(), Channel: channel, Peer: o.Get("peer"), Session: o.Get(session), Text: message, Key: os.Getenv("THECLAW_DELIVERY_KEY"), Maybe: os.Getenv("THECLAW_MAYBE_DUPLICATE")}
	cause, end, err := record(dir, script, s)
	if err != nil {
		return err
	}
	switch end {
	case "cut":
		return die()
	case "hang":
		return hang(dir)
	}
	if o.Has("json") {
		answer(out, s, cause)
	}
	switch {
	case end == "exit":
		return errClose
	case end == "kill":
		return die()
	case cause != "":
		return fmt.Errorf("Error: Failed to send message via channel %s - Check channel health with 'xgw channel health'", channel) //nolint:staticcheck // the tool's words
	case !o.Has("json"):
		fmt.Fprintf(out, "Message sent: channel=%s peer=%s\n", channel, s.Peer)
	}
	return nil
}

// hang holds the lock together with a child, which a signal to this process does not reach.
func hang(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "hanging"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	_, err = os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil, f}})
	if err != nil {
		return err
	}
	fmt.Fprintln(f, "ready")
	for { // with nothing else to run, the Go runtime would end a program that waits for nothing
		time.Sleep(time.Hour)
	}
}

// die is kill -9: nothing of the program runs after it.
func die() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {}
}

func answer(out io.Writer, s Send, cause string) {
	said := fmt.Sprintf("{\n  \"success\": %t,\n  \"channel_id\": %s,\n  \"peer_id\": %s", cause == "", quoted(s.Channel), quoted(s.Peer))
	if cause != "" {
		said += ",\n  \"error\": " + quoted(cause)
	}
	fmt.Fprintln(out, said+"\n}")
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}

func configPath(args []string) string {
	for i, a := range args[:len(args)-1] {
		if a == "--config" {
			return args[i+1]
		}
	}
	if path := os.Getenv("XGW_CONFIG"); path != "" {
		return path
	}
	return filepath.Join(os.Getenv("HOME"), ".config", "xgw", "config.yaml")
}

func readScript(dir string) (Script, error) {
	s := Script{Version: "1.0.9"}
	b, err := os.ReadFile(filepath.Join(dir, "script.json"))
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	return s, errors.Join(err, json.Unmarshal(b, &s))
}

// hasChannel looks for the channel's id among the entries of channels.
func hasChannel(config []byte, id string) bool {
	_, channels, _ := strings.Cut(string(config), "channels:")
	for line := range strings.Lines(channels) {
		if !strings.HasPrefix(line, " ") && strings.TrimSpace(line) != "" {
			return false
		}
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "- id:"); ok && strings.TrimSpace(v) == id {
			return true
		}
	}
	return false
}

// record writes the send down and answers why it fails, if it does, and how it ends.
func record(dir string, script Script, s Send) (cause, end string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "journal.ndjson"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return "", "", err
	}
	before, err := io.ReadAll(f)
	if err != nil {
		return "", "", err
	}
	if strings.Contains(s.Text, "SENDFAIL") {
		cause = "stub channel failure"
	}
	for _, fail := range script.Failures {
		if strings.Contains(s.Text, fail.Match) && failed(before, fail.Match) < fail.Times {
			if cause, end = fail.Error, fail.End; end != "" {
				cause = ""
			}
		}
	}
	s.OK, s.End = cause == "", end
	return cause, end, json.NewEncoder(f).Encode(s)
}

// failed counts the sends of such a text that have failed or did not end well.
func failed(journal []byte, match string) int {
	n := 0
	for line := range bytes.Lines(journal) {
		var s Send
		if json.Unmarshal(line, &s) == nil && (!s.OK || s.End != "") && strings.Contains(s.Text, match) {
			n++
		}
	}
	return n
}
