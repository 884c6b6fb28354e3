package intake

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// An attachment is tried three times, 30 s each, and within the time that its message has; not again where that cannot
// help. One that breaks off takes nothing else with it.
func TestTries(t *testing.T) {
	const limit = 100 * time.Second
	hangs := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", errors.New("hangs") }
	for _, c := range []struct {
		name  string
		open  func(ctx context.Context) (string, error)
		full  bool // all places are taken
		tries int
		took  time.Duration // at least; less than a second more
		want  string
	}{
		{"refused", func(context.Context) (string, error) { return "", channel.Reject("", "no such file", "") }, false, 1, 0, "no such file"},
		{"too large", func(context.Context) (string, error) { return "", channel.ErrTooLarge }, false, 1, 0, "it has more than 1 MiB; channels.shop.media_max_mib is 1"},
		{"larger than stated", func(context.Context) (string, error) { return strings.Repeat("x", 1<<20+1), nil }, false, 1, 0, "it has more than 1 MiB; channels.shop.media_max_mib is 1"},
		{"empty", func(context.Context) (string, error) { return "", nil }, false, 1, 0, "it is empty"},
		{"failed", func(context.Context) (string, error) { return "", errors.New("it failed") }, false, 3, 0, "it failed"},
		{"hangs", hangs, false, 3, 90 * time.Second, "hangs"},
		{"panics", func(context.Context) (string, error) { panic("a defect") }, false, 1, 0, "it broke off, see the log of the gateway"},
		{"no place", hangs, true, 0, limit, "there was no time left to fetch it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, began := 0, time.Now()
				file := channel.Attachment{Name: "a.txt", Open: func(ctx context.Context, _ int64) (io.ReadCloser, error) {
					tries++
					s, err := c.open(ctx)
					return io.NopCloser(strings.NewReader(s)), err
				}}
				d := Deps{Logger: slog.New(slog.DiscardHandler)}.ForAll()
				places := make(chan struct{}, 1)
				if c.full {
					places <- struct{}{}
				}
				m := &registryv1.InboundMessage{}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				files{d, "shop", 1, places}.putAll(ctx, "admin", channel.Update{Attachments: []channel.Attachment{file, {Name: "b.txt"}}}, m)
				if took := time.Since(began); tries != c.tries || took < c.took || took >= c.took+time.Second {
					t.Errorf("%d tries in %v", tries, took)
				}
				if a, b := m.GetAttachments()[0], m.GetAttachments()[1]; a.GetError() != c.want || a.GetSha256() != "" || b.GetError() != "its data cannot be fetched" {
					t.Errorf("%v, %v", a, b)
				}
			})
		})
	}
}
