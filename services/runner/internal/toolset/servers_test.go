package toolset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// up are servers whose tools are offered now, in the order in which they came.
type up struct {
	servers []string
	each    int            // tools of one
	made    []toolset.Tool // nil: they are made in each call
}

func (u *up) Tools(context.Context, string, *registrypb.TurnConfig) (out []toolset.Tool, err error) {
	if u.made != nil {
		return u.made, nil
	}
	for _, server := range u.servers {
		for n := range u.each {
			t := named(fmt.Sprintf("%s__tool%d", server, n))
			t.spec.Server = server
			out = append(out, t)
		}
	}
	return out, nil
}

// servedTools are n tools of the runner and those of servers.
func servedTools(tb testing.TB, n int, servers toolset.Servers) *toolset.Tools {
	tb.Helper()
	var own []toolset.Tool
	for i := range n {
		own = append(own, named(fmt.Sprintf("tool%02d", i)))
	}
	list, err := toolset.New(own...)
	if err != nil {
		tb.Fatal(err)
	}
	list.Servers = servers
	return list
}

// Servers that come and go change the end of the list of tools, which is the beginning of every prompt: in 1,000
// turns with three servers that are restarted at random, no turn has other bytes before the first tool that has come
// or gone. The control lists them in the order in which they are up.
func TestServersLeaveThePrefix(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	servers := &up{each: 5}
	list := servedTools(t, 16, servers)
	config := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "a"}}, ToolLayers: []*registrypb.ToolLayer{{Name: "all"}}}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	own := encode(list.Set(config).Offered())
	own = own[:len(own)-1] // without the bracket
	breaks, control, before := 0, 0, map[string][]byte{}
	for range 1000 {
		servers.servers = []string{"alpha", "beta", "gamma"}
		rnd.Shuffle(3, func(i, j int) { servers.servers[i], servers.servers[j] = servers.servers[j], servers.servers[i] })
		servers.servers = servers.servers[:rnd.IntN(4)]
		set, err := list.For(t.Context(), "a1", config)
		if err != nil {
			t.Fatal(err)
		}
		got := encode(set.Offered())
		which := fmt.Sprint(slices.Sorted(slices.Values(servers.servers)))
		if !bytes.HasPrefix(got, own) || before[which] != nil && !bytes.Equal(before[which], got) {
			breaks++
		}
		before[which] = got
		unsorted, err := servers.Tools(t.Context(), "a1", config)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, tool := range unsorted {
			names = append(names, tool.Spec().Name)
		}
		if now := encode(names); before["control "+which] != nil && !bytes.Equal(before["control "+which], now) {
			control++
		}
		before["control "+which] = encode(names)
	}
	t.Logf("prefix breaks=%d control=%d", breaks, control)
	if breaks > 0 || control <= 50 {
		t.Errorf("%d breaks, %d without sorting", breaks, control)
	}
}

// large are 120 tools, 104 of them of servers, and 9 layers.
func large(tb testing.TB) (*toolset.Tools, *registrypb.TurnConfig) {
	tb.Helper()
	servers := &up{servers: []string{"alpha", "beta"}, each: 52}
	list := servedTools(tb, 16, servers)
	config := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "a"}}}
	for n := range 9 {
		config.ToolLayers = append(config.ToolLayers, &registrypb.ToolLayer{Name: fmt.Sprint("layer ", n), Allow: []string{"tool*", "alpha__*", "group:mcp"}, Deny: []string{"other", "group:web"}})
	}
	var err error
	if servers.made, err = servers.Tools(tb.Context(), "a1", config); err != nil {
		tb.Fatal(err)
	}
	return list, config
}

// BenchmarkSet makes the set of a turn of 120 tools under 9 layers.
func BenchmarkSet(b *testing.B) {
	list, config := large(b)
	b.ReportAllocs()
	for b.Loop() {
		set, err := list.For(b.Context(), "a1", config)
		if err != nil || len(set.Offered()) != 120 {
			b.Fatal(len(set.Offered()), err)
		}
	}
}

// The set of a turn takes at most 50 allocations, however many tools there are.
func TestSetAllocations(t *testing.T) {
	list, config := large(t)
	if n := testing.AllocsPerRun(20, func() {
		if set, err := list.For(t.Context(), "a1", config); err != nil || len(set.Offered()) != 120 {
			t.Fatal(len(set.Offered()), err)
		}
	}); n > 50 {
		t.Errorf("%.0f allocations", n)
	}
}
