package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// panics is a type whose receiver breaks off after it has connected, or passes on an attachment that does.
var panics = channel.Type{
	Name: "panics", Keys: []string{"token"},
	Check: func(channel.Definition) (string, string) { return "", "" },
	Open:  func(string, channel.Definition, channel.Deps) (channel.Channel, error) { return channel.Console{}, nil },
	Receive: func(name string, _ channel.Definition, _ channel.Deps) (channel.Receiver, error) {
		return panicking(name), nil
	},
}

type panicking string

func (p panicking) Receive(ctx context.Context, in channel.Intake) error {
	_ = in.Connected(string(p), string(p))
	if strings.HasSuffix(string(p), "8") {
		u := channel.Update{Key: "panics:1", Kind: "dm", SessionID: "1", PeerID: "1", Attachments: []channel.Attachment{{Open: func(context.Context, int64) (io.ReadCloser, error) { panic("a defect of an attachment") }}}}
		if err := in.Take(ctx, u, func() {}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	panic("a defect of the receiver")
}

// S2-12: 64 accounts of which 63 do not work, each in one of nine ways: the other one answers all its
// messages about as soon as without them, and goroutines do not become more. MINUTES is for how
// long; without it some seconds.
func TestBrokenAccounts(t *testing.T) {
	catalog.Types = append(catalog.Types, panics)
	t.Cleanup(func() { catalog.Types = catalog.Types[:len(catalog.Types)-1] })
	last := 8 * time.Second
	if m := os.Getenv("MINUTES"); m != "" {
		var minutes int
		if _, err := fmt.Sscan(m, &minutes); err != nil {
			t.Fatalf("MINUTES: %v", err)
		}
		last = time.Duration(minutes) * time.Minute
	}
	good := botAPI(t)
	entry := fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n", good.URL())
	alone := open(t, world.Options{}, entry)
	alone.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	without := p50(t, good, 100)
	alone.Stop()

	updates := func(f telegramtest.Fault) telegramtest.Fault {
		f.Method = "getUpdates"
		return f
	}
	entries, faults := entry, map[string]telegramtest.Fault{
		"401": {Status: 401}, "409": updates(telegramtest.Fault{Status: 409}), "429": updates(telegramtest.Fault{Status: 429, RetryAfter: 60}),
		"502": {Status: 502}, "hang": {Delay: time.Hour}, "bad JSON": updates(telegramtest.Fault{Body: `{"ok":true,"result":[{]}`}),
		"1 MiB": updates(telegramtest.Fault{Body: `{"ok":true,"result":[{"update_id":1,"message":{"text":"` + strings.Repeat("x", 2<<20) + `"}}]}`}),
	}
	ways := []string{"401", "409", "429", "502", "hang", "bad JSON", "1 MiB", "half-open", "panic"}
	for n := range 63 {
		kind, at := "telegram", ""
		switch way := ways[n%len(ways)]; way {
		case "panic":
			kind = panics.Name
		case "half-open":
			at = silent(t)
		default:
			at = brokenAPI(t, n, faults[way])
		}
		entries += fmt.Sprintf("  b%d: {type: %s, token: \"env:B%d\", dm: open", n, kind, n)
		if at != "" {
			entries += fmt.Sprintf(", api: %q", at)
		}
		entries += "}\n"
	}
	h := open(t, world.Options{}, entries)
	h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	times := []time.Duration{p50(t, good, 200)} // while all are started
	if err := pause.For(t.Context(), last/4); err != nil {
		t.Fatal(err)
	}
	times = append(times, p50(t, good, 300))
	before := runtime.NumGoroutine()
	if err := pause.For(t.Context(), last*3/4); err != nil {
		t.Fatal(err)
	}
	after := runtime.NumGoroutine()
	times = append(times, p50(t, good, 400))
	// Requests come and go: each of the 63 has a connection or none.
	if after > before+2*63 {
		t.Errorf("%d goroutines have become %d", before, after)
	}
	ratio := float64(slices.Sorted(slices.Values(times))[1]) / float64(without)
	fmt.Printf("broken-accounts accounts=64 broken=63 p50=%s without=%s ratio=%.2f goroutines=%d..%d for=%s\n", times, without, ratio, before, after, last)
	if ratio > 3 {
		t.Errorf("the account answers %.1f times later than alone", ratio)
	}
	r, err := h.World.Gateway.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.GetChannels() {
		if c.GetName() != "tg" && c.GetState() == gatewayv1.ChannelState_CHANNEL_STATE_UP && c.GetIn() > 0 {
			t.Errorf("%v", c)
		}
	}
}

// p50 sends messages in chats from an id on, and returns the median time to the answer.
func p50(t *testing.T, api *telegramtest.Server, from int64) time.Duration {
	t.Helper()
	var took []time.Duration
	for n := range 30 {
		u := telegramtest.User{ID: from + int64(n), FirstName: "P"}
		began := time.Now()
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: "say: yes"})
		if got := awaitReplies(t, api, u.ID, 1); got[0] != "yes" {
			t.Fatalf("%q", got)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(100 * time.Microsecond)
}

// botToken is the token of the bot of a broken account: each is another bot.
func botToken(n int) string { return fmt.Sprintf("%d:TEST-token", 5000+n) }

// brokenAPI is the address of the Bot API of an account, with a fault that never ends.
func brokenAPI(t *testing.T, n int, f telegramtest.Fault) string {
	api, err := telegramtest.Start(telegramtest.Config{Token: botToken(n)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	f.Times = -1
	api.Fail(f)
	return api.URL()
}

// silent is an address that accepts connections and answers nothing.
func silent(t *testing.T) string {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()
	return "http://" + l.Addr().String()
}
