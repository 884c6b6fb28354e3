// Command botapi serves the Bot API of Telegram on this machine, so that a bot can be tried out
// without an account: the terminal is the phone of the people who write to it.
//
//	go run ./examples/botapi -listen 127.0.0.1:8081
//
// Each line is a message of Bob, whose id is 1207, to the bot in private; :help lists the commands
// that write in groups, send files, press buttons and more. What the bot sends is printed. The
// bot's account needs the address as its api, and the token that is printed at the start.
//
// The lines may come from a file or a pipe. Then :wait makes it a test: when the bot does not send
// what is waited for, the program ends with status 1. What the program does is also reached over
// HTTP, below /control/ of the same address.
//
// It keeps nothing: each start is a new Telegram.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

func main() { os.Exit(Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("botapi", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:8081", "`address` to serve at")
	token := f.String("token", telegramtest.DefaultToken, "`token` that the bot has to use")
	username := f.String("username", "demo_bot", "`name` of the bot")
	wait := f.Duration("wait", 30*time.Second, "how long :wait waits")
	stay := f.Bool("stay", false, "serve on when the input has ended")
	if f.Parse(args) != nil {
		return 2
	}
	if f.NArg() > 0 {
		fmt.Fprintln(stderr, "Error: no arguments are expected - see 'botapi -help'")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	phone := &telegramtest.Phone{Out: stdout, Wait: *wait, Faint: getenv("NO_COLOR") == "" && terminal(stdout)}
	ready := make(chan struct{}) // a bot may call before the phone has its server
	server, err := telegramtest.Start(telegramtest.Config{Address: *listen, Token: *token, Username: *username, OnCall: func(c telegramtest.Call) {
		<-ready
		phone.Print(c)
	}})
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err, "- give -listen another address, or -token one of the form 123456:ABC")
		return 1
	}
	defer server.Close()
	phone.Server = server
	close(ready)
	fmt.Fprintf(stdout, "Bot API at %s, token %s - :help lists the commands\n", server.URL(), server.Token())
	ended := make(chan error, 1)
	go func() { ended <- phone.Run(ctx, stdin) }() // a read of a terminal has no end of its own
	select {
	case err = <-ended:
		if err == nil && *stay {
			<-ctx.Done()
		}
	case <-ctx.Done():
	}
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	return 0
}

// terminal reports whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
