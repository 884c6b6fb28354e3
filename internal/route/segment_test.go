package route

import (
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSegment(t *testing.T) {
	long := strings.Repeat("a", 121)
	for in, want := range map[string]string{
		"":                       "%",
		"telegram-main":          "telegram-main",
		"user_42":                "user_42",
		"-100":                   "-100",
		"a.b:c@d+e":              "a.b:c@d+e",
		".":                      "%2E",
		"..":                     "%2E%2E",
		"...":                    "...",
		"../x":                   "..%2Fx",
		"U12A":                   "%5512%41",
		"a b%c~":                 "a%20b%25c%7E",
		"é\x00\xff":              "%C3%A9%00%FF",
		strings.Repeat("a", 120): strings.Repeat("a", 120),
		long:                     strings.Repeat("a", 80) + "~e9615320128cc7a3d6078e9af0560318",
		strings.Repeat("a", 79) + strings.Repeat("é", 30): strings.Repeat("a", 79) + "~",
		strings.Repeat("a", 78) + strings.Repeat("é", 30): strings.Repeat("a", 78) + "~",
		strings.Repeat("a", 77) + strings.Repeat("é", 30): strings.Repeat("a", 77) + "%C3~",
	} {
		got := Segment(in)
		if got != want && !(strings.HasSuffix(want, "~") && strings.HasPrefix(got, want) && len(got) == len(want)+32) {
			t.Errorf("Segment(%q) = %q, want %q", in, got, want)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "%2f", "%2", "%zz", "A", "a~" + strings.Repeat("0", 32), Segment(long), "é", strings.Repeat("a", 121)} {
		if s, ok := Raw(bad); ok {
			t.Errorf("Raw(%q) = %q", bad, s)
		}
	}
}

// checkSegment is what every segment must be.
func checkSegment(t interface{ Errorf(string, ...any) }, s, seg string) {
	if seg == "" || seg == "." || seg == ".." || len(seg) > maxSegment || strings.ContainsAny(seg, "/\\\x00") ||
		strings.ToLower(seg) != seg && !strings.Contains(seg, "%") {
		t.Errorf("Segment(%q) = %q is not a safe segment", s, seg)
	}
	if raw, ok := Raw(seg); ok == strings.Contains(seg, "~") || ok && raw != s {
		t.Errorf("%q encodes to %q, which decodes to %q, %v", s, seg, raw, ok)
	}
}

var anyID = rapid.OneOf(
	rapid.String(),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 200), func(b []byte) string { return string(b) }),
	rapid.StringOfN(rapid.SampledFrom([]rune("ab-./%~2EeU")), 0, 130, -1),
	rapid.SampledFrom([]string{"cli", "internal", "%63li", "-", "..", "../../etc/passwd", "a-b"}),
)

func TestSegmentDecodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyID.Draw(t, "id")
		checkSegment(t, s, Segment(s))
	})
}

// TestSegmentsDiffer also on a file system that ignores case.
func TestSegmentsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyID.Draw(t, "a"), anyID.Draw(t, "b")
		if a != b && strings.EqualFold(Segment(a), Segment(b)) {
			t.Fatalf("%q and %q share %q", a, b, Segment(a))
		}
	})
}

// checkInside fails if a thread path or a file name leaves its directory.
func checkInside(t interface{ Errorf(string, ...any) }, threadID string, files ...string) {
	if !filepath.IsLocal(threadID) || path.Clean(threadID) != threadID || !strings.HasPrefix(threadID, "threads/") || strings.Count(threadID, "/") > 2 {
		t.Errorf("thread %q is not a plain path below threads", threadID)
	}
	for _, f := range append(files, strings.Split(threadID, "/")...) {
		if f == "" || len(f) > 255 || strings.ContainsAny(f, "/\x00") || f == "." || f == ".." {
			t.Errorf("%q of %q is not a file name", f, threadID)
		}
	}
}

// TestTenThousandTuples is S7 and the second half of S0-31: as many threads,
// session files and memory files as (channel, peer) pairs.
func TestTenThousandTuples(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 31))
	alphabet := []string{"a", "b", "-", "--", ".", "..", "/", "%", "%2D", "%2d", "A", "é", "~", "\x00", "\xff", " ", "cli", "internal", strings.Repeat("x", 60)}
	draw := func() string {
		var b strings.Builder
		for range rnd.IntN(7) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		return b.String()
	}
	type pair struct{ channel, peer string }
	pairs := map[pair]bool{}
	names := [4]map[string]bool{{}, {}, {}, {}}
	for len(pairs) < 10_000 {
		p := pair{draw(), draw()}
		if pairs[p] {
			continue
		}
		pairs[p] = true
		tuple := Tuple{ChannelType: "x", ChannelID: p.channel, PeerID: p.peer}
		id := Thread(PerPeer, tuple)
		files := []string{SessionFile(id), MemoryUserFile(tuple), MemoryThreadFile(id)}
		checkInside(t, id, files...)
		checkInside(t, Thread(PerChannel, tuple))
		for i, n := range append(files, id) {
			names[i][strings.ToLower(n)] = true
		}
	}
	if got := fmt.Sprint(len(names[0]), len(names[1]), len(names[2]), len(names[3])); got != "10000 10000 10000 10000" {
		t.Errorf("10000 pairs give %s session, user, thread files and threads", got)
	}
}

func FuzzSegment(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a-b", "A", "../..", "cli", "internal", "é", "\x00", "\xff", "%", "~", strings.Repeat("a", 79) + "é" + strings.Repeat("b", 60)} {
		f.Add(s, "peer")
		f.Add("channel", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		checkSegment(t, a, Segment(a))
		if a != b && strings.EqualFold(Segment(a), Segment(b)) {
			t.Errorf("%q and %q share %q", a, b, Segment(a))
		}
		x, y := Tuple{ChannelID: a, PeerID: b}, Tuple{ChannelID: b, PeerID: a}
		id := Thread(PerPeer, x)
		checkInside(t, id, SessionFile(id), MemoryUserFile(x), MemoryThreadFile(id))
		if a != b && strings.EqualFold(id, Thread(PerPeer, y)) {
			t.Errorf("%+v and %+v share %q", x, y, id)
		}
		channel, peer := id[len(peersDir):strings.LastIndexByte(id, '-')], id[strings.LastIndexByte(id, '-')+1:]
		if c, ok := Raw(channel); ok && c != a {
			t.Errorf("channel %q of %q, want %q", c, id, a)
		}
		if p, ok := Raw(peer); ok && p != b {
			t.Errorf("peer %q of %q, want %q", p, id, b)
		}
		if name := SessionFile(a); strings.Contains(name, "/") || len(name) > 255 {
			t.Errorf("session file %q of the foreign thread %q", name, a)
		}
	})
}
