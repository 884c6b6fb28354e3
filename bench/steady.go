package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
)

// steady holds a load of 70 % of what is measured first as the most, and answers
// whether latency and memory stay what they are.
func steady(ctx context.Context, agentd string, length time.Duration, progress io.Writer) (_ *table.Table, err error) {
	dir, err := os.MkdirTemp("", "theclaw-steady-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.Start(ctx, agentd, filepath.Join(dir, "home"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Agent(ctx, "bench"); err != nil {
		return nil, err
	}
	const conversations, share = 64, .7
	if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: 32, Messages: 20}, "warm"); err != nil {
		return nil, err
	}
	most, err := load.Run(ctx, s.Conn, load.Plan{Agent: "bench", Conversations: conversations, Messages: 60}, "most")
	if err != nil {
		return nil, err
	}
	var p50, p99 []time.Duration
	var rss []float64
	messages := 0
	err = load.Keep(ctx, s.Conn, load.Pace{
		Agent: "bench", Conversations: conversations, Rate: share * most.Rate(), For: length, Window: min(time.Minute, length/5),
	}, "steady", func(w load.Slice) {
		mb, _ := s.RSS()
		messages, rss = messages+w.Messages, append(rss, mb)
		p50, p99 = append(p50, load.Percentile(w.Latency, .5)), append(p99, load.Percentile(w.Latency, .99))
		fmt.Fprintf(progress, "%d messages, p50 %s, p99 %s, %.0f MB\n", w.Messages, table.Short(p50[len(p50)-1]), table.Short(p99[len(p99)-1]), mb)
	})
	if err != nil {
		return nil, err
	}
	if len(rss) < 3 {
		return nil, fmt.Errorf("%d windows are too few to tell anything", len(rss))
	}
	t := &table.Table{Notes: []string{"Latency counts from when a message was due, in " + fmt.Sprint(conversations) + " conversations; every reply was checked."}}
	t.Figure("most: turns/s, everybody asking as fast as answered", fmt.Sprintf("%.0f", most.Rate()))
	t.Figure(fmt.Sprintf("held for %s: messages, and of them lost or wrong", length), fmt.Sprintf("%d, 0", messages))
	slices.Sort(p50)
	t.Figure("p50 of the median window", table.Short(p50[len(p50)/2]))
	third := len(p99) / 3
	t.Figure("p99 of the windows, from first to last", fmt.Sprint(table.Short(p99[0]), " ... ", table.Short(p99[len(p99)-1])))
	t.Below("p99: mean of the last third / of the first", mean(p99[len(p99)-third:])/mean(p99[:third]), 1.5)
	t.Figure("RSS after the first window, MB", fmt.Sprintf("%.0f", rss[0]))
	t.Below("RSS: last window / middle one", rss[len(rss)-1]/rss[len(rss)/2], 1.1)
	return t, nil
}

func mean(list []time.Duration) float64 {
	sum := 0.0
	for _, d := range list {
		sum += float64(d)
	}
	return sum / float64(len(list))
}
