package rpc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/rpc"
)

// S2: the token file is 0600, and a new start makes a new token.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := rpc.ReadToken(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	first, err := rpc.NewToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if got, err := rpc.ReadToken(path); err != nil || got != first || len(got) != 64 {
		t.Errorf("read %q %v, wrote %q", got, err, first)
	}
	second, err := rpc.NewToken(path)
	if err != nil || second == first {
		t.Errorf("not rotated: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("leftovers: %v %v", entries, err)
	}
}

func TestReadTokenRefusesWhatIsNoSecret(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := rpc.NewToken(good); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"short": "abc", "empty": "", "words": strings.Repeat("z", 64), "long": strings.Repeat("a", 100)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "short", "empty", "words", "long", "."} {
		if got, err := rpc.ReadToken(filepath.Join(dir, name)); err == nil || strings.Contains(err.Error(), "zzz") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := os.Chmod(good, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.ReadToken(good); err == nil {
		t.Error("read a token that others can read")
	}
}

func TestBearerProvesOneIdentity(t *testing.T) {
	const root, other = "00aa", "00ab"
	for _, id := range []rpc.Identity{{Kind: rpc.Owner}, {Kind: rpc.Service, Name: "runner"}, {Kind: rpc.Agent, Name: "a:b"}} {
		b := rpc.Bearer(root, id)
		if got, ok := rpc.VerifyBearer(root, b); !ok || got != id {
			t.Errorf("%v: got %v %v", id, got, ok)
		}
		if _, ok := rpc.VerifyBearer(other, b); ok {
			t.Errorf("%v: good under another token", id)
		}
		if id.Kind != rpc.Owner && strings.Contains(b, root) {
			t.Errorf("%v: bearer holds the token", id)
		}
	}
	agent := rpc.Bearer(root, rpc.Identity{Kind: rpc.Agent, Name: "a1"})
	for _, forged := range []string{
		"", ":", "::", "owner::", "agent::00", "agent:a2:" + agent[len("agent:a1:"):], "service:a1:" + agent[len("agent:a1:"):],
		agent + "00", agent[:len(agent)-2], strings.TrimPrefix(agent, "agent:"),
	} {
		if id, ok := rpc.VerifyBearer(root, forged); ok {
			t.Errorf("%q taken for %v", forged, id)
		}
	}
	if _, ok := rpc.VerifyBearer("", ""); ok {
		t.Error("an empty token opens the door")
	}
}

// incoming turns what a client sends into what a server sees.
func incoming(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestFenceTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resource := rapid.StringMatching(`(agent|deliver)/[a-z0-9][a-z0-9_-]{0,20}`).Draw(t, "resource")
		token := rapid.Uint64Min(1).Draw(t, "token")
		ctx := rpc.WithFence(context.Background(), "agent/old", 1, "old")
		ctx = rpc.WithFence(ctx, resource, token, "runner-1")
		r, n, h, ok := rpc.FenceFrom(incoming(ctx))
		if !ok || r != resource || n != token || h != "runner-1" {
			t.Fatalf("got %q %d %q %v", r, n, h, ok)
		}
	})
}

func TestHalfAFenceIsNone(t *testing.T) {
	whole, _ := metadata.FromOutgoingContext(rpc.WithFence(t.Context(), "agent/a", 7, "h"))
	if len(whole) != 3 {
		t.Fatalf("metadata %v", whole)
	}
	for key := range whole {
		for _, v := range [][]string{nil, {""}, {"7", "8"}} {
			md := whole.Copy()
			md[key] = v
			if _, _, _, ok := rpc.FenceFrom(metadata.NewIncomingContext(t.Context(), md)); ok {
				t.Errorf("%s=%q accepted", key, v)
			}
		}
	}
	for _, n := range []string{"0", "-1", "x", "18446744073709551616"} {
		md := whole.Copy()
		md.Set("x-theclaw-fence-token", n)
		if _, _, _, ok := rpc.FenceFrom(metadata.NewIncomingContext(t.Context(), md)); ok {
			t.Errorf("token %q accepted", n)
		}
	}
	if _, _, _, ok := rpc.FenceFrom(t.Context()); ok {
		t.Error("a fence out of nothing")
	}
}

func TestOutsideOfACallThereIsNobody(t *testing.T) {
	if id, ok := rpc.IdentityFrom(t.Context()); ok || id != (rpc.Identity{}) {
		t.Errorf("identity %v", id)
	}
	if rpc.RequestID(t.Context()) != "" || rpc.Draining(t.Context()) != nil {
		t.Error("a request id or a drain out of nothing")
	}
}

// SECURITY: no token in plaintext off the machine.
func TestDialRefusesPlaintext(t *testing.T) {
	for _, target := range []string{"dns:///example.invalid:1", "127.0.0.1:1", "passthrough:///x"} {
		if cc, err := rpc.Dial(target, rpc.DialOptions{}); err == nil {
			cc.Close()
			t.Errorf("%s accepted", target)
		}
	}
	if _, err := rpc.Dial("unix:///x", rpc.DialOptions{Safe: []string{"NoSlash"}}); err == nil {
		t.Error("a bad method name accepted")
	}
}

func BenchmarkVerifyBearer(b *testing.B) {
	token := strings.Repeat("0a", 32)
	for _, id := range []rpc.Identity{{Kind: rpc.Owner}, {Kind: rpc.Service, Name: "runner"}} {
		bearer := rpc.Bearer(token, id)
		b.Run(string(id.Kind), func(b *testing.B) {
			for b.Loop() {
				if _, ok := rpc.VerifyBearer(token, bearer); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
