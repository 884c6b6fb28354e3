//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/internal/testing/need"
)

// notRun are the examples that this test does not run, and why.
var notRun = map[string]string{
	"agentctl setup":                      "asks at a terminal: TestSetupAtATerminal",
	"agentctl channels test tg --to 1207": "needs an account of a platform: TestTelegramCommands of the gateway",
	"agentctl config import shared.yaml":  "needs registries over PostgreSQL: TestSharedSettings",
	"agentctl setup --yes --channel telegram --token-env TG_TOKEN --owner 1207": "needs a token: TestSetupChannel",
	"agentctl setup --yes --provider openai --key-env OPENAI_API_KEY":           "needs a key: TestSetup",
	"agentctl setup --yes --provider anthropic --key-file key.txt --service":    "needs a key and a login with systemd: TestSetup, TestSetupService",
	"agentctl service install":                                "needs a login with systemd: TestService",
	"agentctl service install --home /srv/claw":               "needs a login with systemd: TestService",
	"agentctl service start":                                  "needs a login with systemd: TestService",
	"agentctl service start && agentctl chat admin":           "needs a login with systemd: TestService",
	"agentctl service stop":                                   "needs a login with systemd: TestService",
	"agentctl service status":                                 "needs a login with systemd: TestService",
	"agentctl service status --json":                          "needs a login with systemd: TestService",
	"agentctl service logs":                                   "needs a login with systemd: TestService",
	"agentctl service logs --lines 1000 | grep level=ERROR":   "needs a login with systemd: TestService",
	"agentctl service logs --follow":                          "needs a login with systemd: TestService",
	"agentctl service uninstall":                              "needs a login with systemd: TestService",
	"agentctl gateway run":                                    "ends with Ctrl-C: TestGatewayRun",
	"agentctl gateway run --port 19001":                       "the same",
	"agentctl rm alice":                                       "asks at a terminal: TestScripts/removed",
	"agentctl approvals watch":                                "ends with Ctrl-C: TestScripts/identity",
	"agentctl drill --kills 200":                              "takes a minute: TestScripts/drill kills four times",
	"agentctl drill":                                          "takes longer than the others together: TestScripts/drill kills four times",
	"agentctl drill --json | jq '.states[]'":                  "the same",
	"agentctl providers test openai":                          "needs the network and a key: TestScripts/provider tests one on this machine",
	"agentctl providers test work --model small --timeout 1m": "needs a provider: TestScripts/provider",
	"agentctl events alice threads/peers/cli-cli --follow":    "ends with Ctrl-C: TestFollow",
	"agentctl approvals watch --json | jq -r 'select(.state == \"pending\") | .command'":                                                        "ends with Ctrl-C: TestScripts/identity",
	"agentctl approvals approve 019aa2c1f3e5b7d21":                                                                                              "needs a command that waits for approval: TestScripts/identity",
	"agentctl approvals policy import exec-approvals.json":                                                                                      "needs a home without a policy: TestApprovalPolicy",
	"agentctl approvals deny 019aa2c1f3e5b7d21":                                                                                                 "the same",
	"agentctl questions watch":                                                                                                                  "ends with Ctrl-C: TestScripts/questions",
	"agentctl questions watch --json | jq -r 'select(.state == \"pending\") | .text'":                                                           "ends with Ctrl-C: TestScripts/questions",
	"agentctl questions answer 019aa2c1f3e5b7d21 2":                                                                                             "needs a question that waits: TestScripts/questions",
	"agentctl questions answer 019aa2c1f3e5b7d21 \"the savings account\"":                                                                       "the same",
	"agentctl mcp add github --agent alice --env TOKEN=env:GH_TOKEN --network api.github.com -- github-mcp-server stdio":                        "needs an MCP server: TestScripts/mcp",
	"agentctl mcp add github --agent alice --env GITHUB_PERSONAL_ACCESS_TOKEN=env:GH_TOKEN --network api.github.com -- github-mcp-server stdio": "the same",
	"agentctl mcp add shop --url https://mcp.shop.example/mcp --header \"Authorization=Bearer {{secret:SHOP}}\"":                                "the same",
	"agentctl mcp add browser --preset playwright":                                                                                              "the same",
	"agentctl mcp approve github":                                                                                                               "the same",
	"agentctl mcp approve github list_issues get_issue --yes":                                                                                   "the same",
	"agentctl mcp deny github":                                                                                                                  "the same",
	"agentctl mcp deny github delete_file":                                                                                                      "the same",
	"agentctl mcp diff github":                                                                                                                  "the same",
	"agentctl mcp diff github --json | jq -r '.[] | select(.state == \"changed\") | .tool'":                                                     "the same",
	"agentctl pair approve QX4T7MHD":                                                                                                            "codes are random: the script pair",
	"agentctl pair approve tg:1207 --owner":                                                                                                     "needs a person who asked: the script pair",
	"agentctl pair list --account tg --all --json":                                                                                              "needs the account: the script pair",
	"agentctl pair deny tg:1207":                                                                                                                "the same",
	"agentctl pair block tg:1207":                                                                                                               "the same",
	"agentctl pair revoke tg:1207":                                                                                                              "the same",
	"agentctl mcp test github --agent alice":                                                                                                    "the same",
	"agentctl mcp restart github --agent alice":                                                                                                 "the same",
	"agentctl mcp remove github":                                                                                                                "the same",
	`agentctl completion zsh > "${fpath[1]}/_agentctl"`:                                                                                         "a line of zsh; the script is printed by TestCompletion",
	"agentctl completion fish | source":                                                                                                         "a line of fish; the script is printed by TestCompletion",
	"agentctl dlq retry alice d:threads/peers/cli-cli:4":                                                                                        "needs a channel that fails: services/deliverer tests retries",
	"agentctl migrate --all --undo --apply":                                                                                                     "needs an agent of the earlier version: migrate.TestUndoInterrupted",
	"agentctl fsck --dsn postgres://claw@db/claw":                                                                                               "needs PostgreSQL: fsck.TestSharedDatabases",
	"agentctl migrate-store alice --to database --dsn postgres://claw@db/claw":                                                                  "needs PostgreSQL: migratestore.TestMigrateStore",
	"agentctl migrate-store --all --to database --dsn postgres://claw@db/claw --apply":                                                          "the same",
	"agentctl migrate-store alice --to home --dsn postgres://claw@db/claw --apply":                                                              "the same",
	"agentctl migrate-store --all --to home --dsn env:THECLAW_DSN --json | jq '.agents[].digest'":                                               "the same",
}

// before is what has to be so for an example that is not true of a home in which alice is
// started and has answered one message: the lines of a shell before it.
var before = map[string]string{
	"agentctl agent rm alice --yes":                                         "agentctl stop alice",
	"agentctl rm alice --force --yes --timeout 2m":                          "agentctl init alice",
	"agentctl approvals policy import policy.json --replace":                "agentctl approvals policy show --json >policy.json",
	"agentctl audit verify --head 5f0c...":                                  "",
	"agentctl bindings remove 2":                                            "agentctl bindings add alice --channel discord --guild 81; agentctl bindings add alice --channel discord --guild 82",
	"agentctl channels add webhook shop --secret env:SHOP_SECRET --dm open": "agentctl channels remove shop || true",
	"agentctl channels add webhook shop --secret file:/etc/shop.key --allow-from c7 --url https://shop.example/replies": "agentctl channels remove shop || true",
	"agentctl channels add plugin irc --plugin unix:/run/theclaw/irc.sock":                                              "agentctl channels remove irc || true",
	"agentctl channels restart shop": "shop",
	"agentctl channels remove shop":  "shop",
	"printf '{\"id\":\"o-1\",\"from\":{\"id\":\"c7\"},\"text\":\"hello\"}' | agentctl channels sign shop": "shop",
	"agentctl cancel alice 17":                                               "agentctl stop alice; messages 17",
	"agentctl certs init":                                                    "rm -rf $THECLAW_HOME/tls",
	"agentctl certs init --domain agents.example.org":                        "rm -rf $THECLAW_HOME/tls",
	"agentctl certs issue runner-2":                                          "authority",
	"agentctl certs rotate":                                                  "authority",
	"agentctl certs show":                                                    "authority",
	"agentctl certs rotate runner-2":                                         "agentctl certs issue runner-2",
	"agentctl config set alice pai.model gpt-5":                              "agentctl config set alice pai.provider openai",
	"agentctl context show alice threads/main --at 12 --json":                "agentctl config set alice routing.default per-agent; agentctl send alice hello --wait",
	"agentctl dlq drop alice t:17":                                           "messages 16; dead",
	"agentctl dlq retry alice t:17":                                          "messages 16; dead",
	"agentctl dlq drop alice --all":                                          "dead",
	"agentctl erase alice --peer bob":                                        "bob",
	"agentctl stop alice && agentctl erase alice --peer bob --yes":           "bob",
	"agentctl events alice threads/main --filter \"subtype = 'error'\"":      "agentctl config set alice routing.default per-agent; agentctl send alice hello --wait",
	"agentctl explain alice 1":                                               "agentctl send alice hello --wait",
	"agentctl memory compact alice threads/peers/cli-cli":                    "agentctl config set alice compaction.strategy truncate",
	"agentctl explain alice 17":                                              "messages 17",
	"agentctl explain alice 17 --diff":                                       "messages 17",
	"agentctl export alice bob.tar --peer bob":                               "bob",
	"agentctl export alice - --peer external:telegram:main:dm:12:12 | tar t": `agentctl config set alice pai.provider offline; agentctl send alice --source external:telegram:main:dm:12:12 --type message --content '{"channel_id":"main","peer_id":"12","session_id":"12","text":"hi"}'`,
	"agentctl hooks test no-links --text \"see https://example.org\"":        "nolinks",
	"agentctl hooks test no-links --agent alice --event message_sent":        "nolinks",
	"agentctl init alice":                                                    "agentctl rm alice --force --yes",
	"agentctl init watcher --kind system --provider openai --model gpt-5":    "",
	"agentctl log show alice --lines 1000 | grep WARN":                       "agentctl send alice 'fail: unavailable 1' --wait",
	"agentctl restore agents.tar":                                            "agentctl backup agents.tar; agentctl rm alice --force --yes",
	"agentctl restore agents.tar --agent alice --replace":                    "agentctl stop alice",
	"zstd -dc agents.tar.zst | agentctl restore -":                           "agentctl rm alice2 --force --yes; agentctl backup - | zstd > agents.tar.zst; agentctl rm alice --force --yes",
	"agentctl run abort alice RUN":                                           "agentctl stop alice",
	"git log -5 | agentctl send alice -":                                     "git init -q . && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m first",
	"thread peek --thread ./t --last-event-id 0":                             "thread init ./t",
}

// resting are examples that are run while no service runs.
var resting = regexp.MustCompile(`^agentctl (fsck --agent|migrate .*--apply)`)

// standIns are the words of examples that stand for what a reader puts there.
var standIns = strings.NewReplacer(
	"5f0c...", `"$(agentctl audit verify -o name)"`, " RUN", ` "$(agentctl agent alice --message hello)"`,
	"10000", "10", "--seconds 20", "--seconds 1", "  --timeout 5m", "--timeout 5m",
)

// shell has the words of before.
const shell = `set -eu -o pipefail
shop() { printf 'SHOP_SECRET=a\n' >"$THECLAW_HOME/.env"; chmod 600 "$THECLAW_HOME/.env"; agentctl channels remove shop 2>/dev/null || true; agentctl channels add webhook shop --secret env:SHOP_SECRET; }
messages() { for i in $(seq 2 "$1"); do agentctl send alice "say: $i" >/dev/null; done; }
dead() { agentctl send alice "fail: auth" --wait 2>/dev/null && exit 1; return 0; }
nolinks() {
	mkdir -p "$THECLAW_HOME/hooks"; printf '#!/bin/sh\n' >"$THECLAW_HOME/hooks/no-links.sh"; chmod 700 "$THECLAW_HOME/hooks/no-links.sh"
	grep -q no-links "$THECLAW_HOME/theclaw.yaml" 2>/dev/null || echo 'hooks: [{name: no-links, events: [message_sending, message_sent], command: [no-links.sh]}]' >>"$THECLAW_HOME/theclaw.yaml"
}
authority() { [ -e "$THECLAW_HOME/tls/ca.key" ] || agentctl certs init; }
bob() {
	agentctl start alice >/dev/null; agentctl config set alice outbound '[]'; agentctl config set alice pai.provider offline
	agentctl send alice --source external:telegram:main:dm:bob:bob --type message --wait \
		--content '{"channel_id":"main","peer_id":"bob","session_id":"bob","text":"hi"}'
}
`

var continued = regexp.MustCompile(`\\\n *`)

// linesOf are the command lines of an example, without the remark behind some.
func linesOf(example string) (lines []string) {
	example = continued.ReplaceAllString(example, "")
	for l := range strings.Lines(example) {
		l, _, _ = strings.Cut(strings.TrimSpace(l), "     ")
		lines = append(lines, strings.TrimSpace(l))
	}
	return lines
}

// TestExamples runs each example of the help as a reader pastes it, against the real
// services, and checks that it succeeds.
func TestExamples(t *testing.T) {
	// The first use of the tool compiles it, which is not part of an example's time: the examples
	// use the same cache and the same flags.
	pprof := exec.Command("go", "tool", "-n", "pprof")
	pprof.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GOCACHE=" + goCache(t)}
	if out, err := pprof.CombinedOutput(); err != nil {
		t.Fatalf("go tool pprof: %v: %s", err, out)
	}
	var run, left atomic.Int64
	seen := map[string]bool{}
	t.Run("all", func(t *testing.T) {
		var visit func(c *cobra.Command)
		visit = func(c *cobra.Command) {
			lines := linesOf(c.Example)
			for _, l := range lines {
				seen[l] = true
			}
			t.Run(strings.ReplaceAll(c.CommandPath(), " ", "_"), func(t *testing.T) {
				t.Parallel()
				var site *reader
				for _, l := range lines {
					if notRun[l] != "" {
						left.Add(1)
						continue
					}
					if site == nil {
						site = newReader(t)
					}
					t.Run(l, func(t *testing.T) {
						site.paste(t, l)
						run.Add(1)
					})
				}
			})
			for _, sub := range c.Commands() {
				visit(sub)
			}
		}
		visit(tree())
	})
	for _, m := range []map[string]string{notRun, before} {
		for l := range m {
			if !seen[l] {
				t.Errorf("no command has the example %q", l)
			}
		}
	}
	fmt.Printf("examples run=%d left_out=%d\n", run.Load(), left.Load())
}

// reader pastes examples; it has its own home and directory.
type reader struct {
	home, dir, path string
	stop            func()
}

func newReader(t *testing.T) *reader {
	r := &reader{home: filepath.Join(t.TempDir(), "h"), dir: t.TempDir()}
	r.path = built(t) + string(os.PathListSeparator) + os.Getenv("PATH")
	for _, name := range []string{"IDENTITY.md", "agent.md", "notes.md"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte("Alice likes tea.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.stop = services(t, r.home)
	r.shell(t, `agentctl init alice; agentctl start alice; agentctl send alice hello --wait; agentctl file put alice memory/agent.md --from notes.md`)
	return r
}

// paste runs one example.
func (r *reader) paste(t *testing.T, line string) {
	t.Helper()
	for _, p := range []struct{ name, debian string }{{"jq", "jq"}, {"zstd", "zstd"}, {"git", "git"}, {"man", "man-db"}} {
		if regexp.MustCompile(`(^|\| *)` + p.name + ` `).MatchString(line) {
			need.Program(t, p.name, p.debian)
		}
	}
	r.shell(t, before[line])
	if resting.MatchString(line) {
		r.stop()
		defer func() { r.stop = services(t, r.home) }()
	}
	r.shell(t, standIns.Replace(line))
}

// goCache is the cache of what the go command has compiled.
func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func (r *reader) shell(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", shell+script)
	c.Dir, c.WaitDelay = r.dir, 10*time.Second
	c.Env = []string{"THECLAW_HOME=" + r.home, "HOME=" + r.dir, "PATH=" + r.path, "GOCACHE=" + goCache(t)}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s\n%v\n%s", script, err, out)
	}
}
