package layer

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
)

// Storage is where the registry of a home keeps agents and threads.
//
//	storage:
//	  engine: postgres        # or sqlite, the default: this home
//	  dsns: ["env:THECLAW_DSN"] # one: a reference (env:NAME, file:PATH) or a URL
type Storage struct {
	Postgres bool
	DSNs     []string // as given; the opening of more than one is refused
}

// ReadStorage returns what the file of the home says of it. Every error is an [*Error].
func ReadStorage(f File) (Storage, error) {
	h, err := ParseHome(f)
	if err != nil {
		return Storage{}, err
	}
	return h.storage, nil
}

func (l *layer) storage(kv *ast.MappingValueNode) (s Storage) {
	pairs, ok := l.pairs(kv.Value, "storage")
	if !ok {
		l.fail(orKey(kv), "storage", "storage wants `engine: ...` and `dsns: [...]` below it")
		return s
	}
	engine := "sqlite"
	for _, kv := range pairs {
		switch name := "storage." + key(kv); name {
		case "storage.engine":
			if problem := text(kv.Value, &engine); problem != "" || engine != "sqlite" && engine != "postgres" {
				l.fail(orKey(kv), name, "storage.engine is sqlite or postgres")
			}
		case "storage.dsns":
			items, ok := yamldoc.Items(kv.Value)
			if !ok {
				l.fail(orKey(kv), name, "storage.dsns must be a list")
			}
			for _, n := range items {
				var dsn string
				if problem := text(n, &dsn); problem != "" {
					l.fail(n, name, "storage.dsns must be a list of texts")
				} else if problem := CheckDSN(dsn); problem != "" {
					l.fail(n, name, "storage.dsns: "+problem)
				}
				s.DSNs = append(s.DSNs, dsn)
			}
		default:
			text := suggest(name, []string{"storage.engine", "storage.dsns"})
			l.fail(kv, name, fmt.Sprintf("unknown key %q%s", config.Clip(name), cmp.Or(text, "; there are engine and dsns")))
		}
	}
	if s.Postgres = engine == "postgres"; s.Postgres != (len(s.DSNs) > 0) {
		l.fail(orKey(kv), "storage", "the engine postgres needs storage.dsns, and only it")
	}
	return s
}

// CheckDSN says what is wrong with the address of a database as it is given: a
// password belongs behind a reference.
func CheckDSN(dsn string) string {
	if strings.HasPrefix(dsn, "env:") || strings.HasPrefix(dsn, "file:") {
		return ""
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "write env:NAME, file:PATH or postgres://user@host:5432/name"
	}
	if _, secret := u.User.Password(); secret {
		return "a URL with a password is given as env:NAME or file:PATH"
	}
	return ""
}

// RestartKeys returns the keys with which a running registry does not go along and that have
// another value than in an earlier file.
func (h *Home) RestartKeys(earlier *Home) (keys []string) {
	if h.storage.Postgres != earlier.storage.Postgres {
		keys = append(keys, "storage.engine")
	}
	if !slices.Equal(h.storage.DSNs, earlier.storage.DSNs) {
		keys = append(keys, "storage.dsns")
	}
	now, before := h.Settings.Gateway, earlier.Settings.Gateway
	if now.HTTP != before.HTTP {
		keys = append(keys, "gateway.http")
	}
	if now.PublicURL != before.PublicURL {
		keys = append(keys, "gateway.public_url")
	}
	if !slices.Equal(now.TrustedProxies, before.TrustedProxies) {
		keys = append(keys, "gateway.trusted_proxies")
	}
	return keys
}

// AgentDirProblem is the problem of an agent_dir in agents.list.
func (h *Home) AgentDirProblem(id, text string) *Error {
	return h.problemAt(id+".agent_dir", "agent_dir", text)
}

// ServerProblem is a problem of an entry of mcp.servers.
func (h *Home) ServerProblem(name, text string) *Error {
	return h.problemAt("mcp.servers."+name, "mcp.servers."+name, text)
}

func (h *Home) problemAt(mark, key, text string) *Error {
	if !isJSON5(h.file.Name) {
		return &Error{Problems: []Problem{at(h.at[mark], key, text)}}
	}
	return &Error{Problems: []Problem{{File: h.file.Name, Key: key, Text: text}}}
}
